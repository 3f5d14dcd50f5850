"""Files, page, chart and sentences of an audit's report, against made-up results."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

pytest.importorskip("torch")

import numpy as np
import torch
from PIL import Image

from lab.audit.report.made_up_audits import audit_of, audit_of_one_try, cell, example, small_audit
from page_reader import PageReader, assert_needs_nothing_from_elsewhere
from shieldfl.errors import ParameterError
from shieldfl.lab.audit.attack import BUILT_IN, FIGURES, Cell, usable_attacks
from shieldfl.lab.audit.attacks.labels import Ilrg
from shieldfl.lab.audit.attacks.searches import Dlg
from shieldfl.lab.report.audit_report import (
    LIMITS,
    MEANINGS,
    attack_tables,
    draw_chart,
    findings,
    write_report,
)
from shieldfl.lab.report.page import NARROW, WIDE, Shape

FILES = ["audit.json", "cells.csv", "index.html"]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_report(small_audit(), tmp_path_factory.mktemp("audit") / "new" / "folder")


@pytest.fixture(scope="module")
def page(written: list[Path]) -> str:
    return written[-1].read_text("utf-8")


def test_json_and_csv_hold_every_cell(written: list[Path]) -> None:
    result = small_audit()
    assert json.loads(written[0].read_text("utf-8")) == result.to_json()
    lines = list(csv.DictReader(io.StringIO(written[1].read_text("utf-8"), newline="")))
    assert len(lines) == len(result.cells)
    for line, one in zip(lines, result.cells, strict=True):
        assert [line[name] for name in ("method", "attack", "party")] == [one.method, one.attack, one.party]
        assert line["verdict"] == result.verdict(one)
        assert line["figure"] == ("" if one.status != "attacked" else str(one.figure))
        assert line["low"] == ("" if one.tries < 2 else str(one.low))
        assert line["PSNR"] == str(one.others.get("PSNR", ""))


def test_every_file_is_written_alike_and_the_page_needs_nothing_from_elsewhere(
    written: list[Path], page: str, tmp_path: Path
) -> None:
    assert [path.name for path in written] == FILES
    assert sorted(path.name for path in written[0].parent.iterdir()) == sorted(FILES)
    assert_needs_nothing_from_elsewhere(page)
    assert str(written[0].parent) not in page
    for one, other in zip(written, write_report(small_audit(), tmp_path), strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name


def test_page_says_what_came_out_and_on_what(page: str) -> None:
    text = PageReader(page).text
    for expected in (
        *findings(small_audit()),
        "made-up data (<100 & more)",
        "a <fast> one",
        "<it> was refused",
        "full-he: dlg, does not apply: <nothing> is known of it",
        "full-he: dlg, not attacked: the budget was over",
        "key authority",
        *(f"Source: {kind.source}." for kind in (Ilrg, Dlg)),
        *(MEANINGS[name] for name in ("LnAcc", "IIP")),
    ):
        assert expected in text, expected
    assert not re.search(r"\b(nan|inf)\b", text)


def test_each_figure_has_a_meaning() -> None:
    own = {kind.measured_by for kind in usable_attacks(BUILT_IN)[0] if isinstance(kind, type)}
    assert set(MEANINGS) == {*FIGURES.values(), *own}


def rows_of(page: str, attack: str) -> dict[str, list[str]]:
    """The cells of an attack's table, as they are read, by method."""
    (table,) = re.findall(rf'aria-label="{attack}: methods by parties">(.*?)</table>', page, re.DOTALL)
    return {
        method: [
            " ".join(unescape(re.sub(r"<[^>]*>", " ", one)).split())
            for one in re.findall(r"<td[^>]*>(.*?)</td>", row)
        ]
        for method, row in re.findall(r'<tr><th scope="row">([^<]*)</th>(.*?)</tr>', table)
    }


def test_a_table_has_for_each_method_and_party_a_word_and_figures(page: str) -> None:
    assert rows_of(page, "ilrg") == {
        "fedavg": ["all 0.90 (0.25) n=12", "some 0.60 (0.25) n=12", "nothing received"],
        "full-he": ["nothing received", "chance 0.30 (0.25) n=12", "nothing received"],
        "mask-crypt": ["some 0.60 (0.25) n=12", "all 0.95 (0.25) n=12", "nothing received"],
    }
    dlg = rows_of(page, "dlg")
    assert dlg["full-he"] == ["does not apply", "chance 0.30 (0.25) n=12", "not attacked"]
    assert dlg["mask-crypt"][1] == "too few trials 0.90 (0.25) n=1"


def test_colours_go_with_words(page: str) -> None:
    colours = {
        "nothing received": "chance",
        "too few trials": "too-few-trials",
        "does not apply": "not-attacked",
    }
    found = re.findall(r'<td class="verdict ([\w-]+)"><strong>([^<]*)<', page)
    assert len(found) == len(small_audit().cells)
    for colour, said in found:
        assert colour == colours.get(said, said.replace(" ", "-"))


def test_page_is_made_for_all_who_read_it(page: str) -> None:
    assert '<html lang="en">' in page
    for tag in ("main", "header", "h1"):
        assert PageReader(page).tags.count(tag) == 1
    for table in re.findall(r"<table>.*?</table>", page, re.DOTALL):
        assert re.search(r"<caption>[^<]+</caption>", table)
        assert not re.search(r"<th(?![^>]* scope=)", table.replace("<thead>", ""))
    labels = [unescape(label) for label in re.findall(r'role="img" aria-label="([^"]*)"', page)]
    assert len(labels) == 4  # of two attacks, each for two kinds of screens
    assert labels[0].startswith("ilrg: LnAcc beside chance. For the aggregator and, below it,")
    assert labels[0].endswith("The figures are in the tables and files of this page.")
    names = re.findall(r' id="([^"]*)"', page)
    assert len(set(names)) == len(names)


def shown_images(page: str) -> dict[str, np.ndarray]:
    """What the page shows, by what is said of it: RGBA."""
    found = re.findall(r'src="data:image/png;base64,([^"]*)" alt="([^"]*)"', page)
    return {
        unescape(label): np.asarray(Image.open(io.BytesIO(base64.b64decode(png))).convert("RGBA"))
        for png, label in found
    }


def test_recovered_images_stand_beside_the_true_ones_and_the_nearest_others(page: str) -> None:
    images, shown = example(), shown_images(page)
    for label, expected in (
        ("recovered", images.recovered),
        ("the client's", images.true),
        ("nearest public", images.neighbour),
    ):
        pixels = shown[f"dlg on fedavg, {label}: 2 images"]
        assert pixels.shape == (8, 8 + 1 + 8, 4)
        assert (pixels[:, 8, 3] == 0).all()
        for number in range(2):
            grey = (expected[number, 0].clamp(0, 1) * 255).round().numpy()
            tile = pixels[:, number * 9 : number * 9 + 8]
            assert (tile[..., :3] == grey[..., None]).all()
            assert (tile[..., 3] == 255).all()
    text = PageReader(page).text
    assert (
        "aggregator and client: all; update, round 1; IIP 0.90 (0.25), images 2, PSNR 12.3 dB, n=12" in text
    )
    assert "aggregator: some; update, round 1; IIP 0.60 (0.25)" in text
    assert len(shown) == 6


def page_of(tmp_path: Path, *cells: Cell) -> str:
    return write_report(audit_of(*cells), tmp_path)[-1].read_text("utf-8")


def test_colours_stay_colours_and_no_number_is_no_image(tmp_path: Path) -> None:
    images = example(1, 3, 32, 32)
    images.recovered[0, :, 0, 0] = torch.tensor([float("nan"), float("inf"), -float("inf")])
    shown = shown_images(page_of(tmp_path, replace(cell("fedavg", "dlg", "aggregator"), example=images)))
    pixels = shown["dlg on fedavg, recovered: 1 image"]
    assert pixels.shape == (32, 32, 4)
    assert pixels[0, 0].tolist() == [0, 255, 0, 255]
    expected = (images.recovered[0, :, 5, 7].clamp(0, 1) * 255).round().tolist()
    assert pixels[5, 7, :3].tolist() == expected


def test_without_images_or_a_figure_there_are_none_and_no_chart(tmp_path: Path) -> None:
    page = page_of(tmp_path, replace(cell("fedavg", "dlg", "aggregator"), example=example(2, 30)))
    assert "<img" not in page
    assert "Recovered images" not in page
    page = page_of(tmp_path, Cell("fedavg", "idlg", "outsider", "does not apply", "why not"))
    assert rows_of(page, "idlg") == {"fedavg": ["does not apply"]}
    assert "<svg" not in page


def test_one_try_has_no_interval_and_the_page_says_so(tmp_path: Path) -> None:
    page = write_report(audit_of_one_try(), tmp_path)[-1].read_text("utf-8")
    assert rows_of(page, "ilrg") == {"fedavg": ["too few trials 0.90 (0.25) n=1"]}
    assert (
        "fedavg aggregator too few trials 0.90 – 0.25 1 update, round 1 LeAcc 0.75" in PageReader(page).text
    )


def test_an_audit_without_a_cell_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="nothing was audited"):
        write_report(audit_of(), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("shape", [WIDE, NARROW], ids=["wide", "narrow"])
def test_each_lane_has_its_figure_chance_and_interval(shape: Shape) -> None:
    table = attack_tables(small_audit())[0]
    # The aggregator and who got more: of fedavg nobody did, of full-he the aggregator got nothing.
    places = [
        ("fedavg", "aggregator"),
        ("full-he", "client"),
        ("mask-crypt", "aggregator"),
        ("mask-crypt", "client"),
    ]
    expected = [table.cells[place] for place in places]
    (axes,) = draw_chart(table, shape).axes
    dots = [line for line in axes.lines if len(line.get_xdata())]
    heights = [line.get_ydata()[0] for line in dots[::2]]
    assert heights == sorted(heights)
    assert [line.get_xdata()[0] for line in dots[::2]] == [one.chance for one in expected]
    assert [line.get_xdata()[0] for line in dots[1::2]] == [one.figure for one in expected]
    drawn = [lines.get_segments()[0][:, 0].tolist() for lines in axes.collections]
    assert drawn == [[one.low, one.high] for one in expected]


def test_findings_say_what_was_not_attacked_and_of_which_attacks_or_tries_nothing_follows() -> None:
    said = "Of 18 cells 2 were not attacked and 1 too few times to tell anything."
    assert findings(small_audit()) == [said, LIMITS]
    weak = [cell(method, "ilrg", "aggregator", "chance") for method in ("fedavg", "full-he")]
    first, *_ = findings(audit_of(*weak))
    assert first == "ilrg gets nothing of plain averaging: so weak an attack tells nothing of a method."
    for one in (
        cell("top-2", "ilrg", "client", "some"),
        Cell("top-2", "ilrg", "client", "does not apply", "why"),
    ):
        first, *_, last = findings(audit_of(one))
        assert first.startswith("There is no figure of ilrg of plain averaging")
        assert last == LIMITS
    few = "No cell has more tries than 1: intervals of so few are too narrow."
    assert few in findings(audit_of_one_try())
