from __future__ import annotations

import pytest

pytest.importorskip("torch")

import html
import io
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

from PIL import Image

from lab.report.headless_browser import (
    LEAST_LETTERS,
    SHOWN_DRAWINGS,
    WIDTHS,
    Browser,
    assert_nothing_overflows,
    measure,
    open_browser,
    show_all,
)
from lab.simulation.report.made_up_runs import changed, run_of, run_of_sixteen
from lab.simulation.small_runs import run_methods
from page_reader import PageReader, assert_needs_nothing_from_elsewhere
from shieldfl.errors import ParameterError
from shieldfl.lab.report.page import BACKGROUND, FAINT, NEUTRAL, TEXT
from shieldfl.lab.report.run_report import PLOTS, write_report
from shieldfl.lab.report.run_summary import compared_rows, describe_run, findings, footnotes, summarise
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.lab.simulation.results import STAGES, RunResult
from shieldfl.methods.registry import MethodSettings
from small_pictures import one_picture, small_pictures

ENDINGS = (".svg", ".pdf", ".png")
FILES = [
    "result.json",
    "summary.csv",
    "rounds.csv",
    *(f"{name}{ending}" for name in ("accuracy", "zones", "stages") for ending in ENDINGS),
    "index.html",
]


@dataclass(frozen=True)
class Written:
    """A report on disk, which tests read and leave as it is."""

    result: RunResult
    folder: Path
    told: list[Path]

    @property
    def page(self) -> str:
        return (self.folder / "index.html").read_text()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Written:
    result = run_of("fedavg", "selective-shield")
    folder = tmp_path_factory.mktemp("two") / "new" / "folder"
    return Written(result, folder, write_report(result, folder))


def test_writes_every_file_and_says_so(report: Written) -> None:
    assert [path.name for path in report.told] == FILES
    assert sorted(path.name for path in report.folder.iterdir()) == sorted(FILES)
    assert json.loads((report.folder / "result.json").read_text()) == report.result.to_json()


def test_page_needs_nothing_from_elsewhere(report: Written) -> None:
    assert_needs_nothing_from_elsewhere(report.page)
    assert str(report.folder) not in report.page
    assert "<fast>" not in report.page
    assert "made-up data (<100 & more)" in PageReader(report.page).text


def test_each_plot_is_in_three_files_and_in_the_page_for_two_widths(report: Written) -> None:
    for plot in PLOTS:
        svg, pdf, png = ((report.folder / f"{plot.name}{ending}").read_bytes() for ending in ENDINGS)
        assert ElementTree.fromstring(svg).tag.endswith("}svg")
        assert b"<text" in svg
        assert pdf.startswith(b"%PDF-")
        assert Image.open(io.BytesIO(png)).width > 1000
    for kind in ("wide", "narrow"):
        assert report.page.count(f'<svg class="{kind}"') == len(PLOTS)


def test_drawings_in_the_page_follow_its_colours_and_share_no_names(report: Written) -> None:
    drawn = "".join(re.findall(r"<svg.*?</svg>", report.page, re.DOTALL))
    for colour in (TEXT, FAINT, BACKGROUND, NEUTRAL):
        assert colour not in drawn
    assert "var(--text)" in drawn
    assert "@media (prefers-color-scheme: dark)" in report.page
    names = re.findall(r' id="([^"]*)"', report.page)
    assert len(set(names)) == len(names)
    assert set(re.findall(r'(?:href="|url\()#([^")]*)', report.page)) == set(names)


def test_page_is_made_for_all_who_read_it(report: Written) -> None:
    page, result = report.page, report.result
    assert '<html lang="en">' in page
    for tag in ("main", "header", "h1"):
        assert PageReader(page).tags.count(tag) == 1
    tables = re.findall(r"<table>.*?</table>", page, re.DOTALL)
    assert tables
    for table in tables:
        assert re.search(r"<caption>[^<]+</caption>", table)
    (table,) = tables
    assert re.findall(r'<th scope="col">([^<]*)<', table) == [
        "figure",
        *(one.method for one in result.methods),
    ]
    assert not re.search(r"<th(?![^>]* scope=)", table.replace("<thead>", ""))
    labels = [html.unescape(label) for label in re.findall(r'role="img" aria-label="([^"]*)"', page)]
    assert [label.partition(". ")[0] for label in labels] == [plot.title for plot in PLOTS for _ in range(2)]


def test_page_shows_what_methods_are_compared_by_and_files_have_all(report: Written) -> None:
    text = PageReader(report.page).text
    rows = compared_rows(report.result)
    assert len(rows) <= 12
    for row in rows:
        assert table_cells(report.page, row.label) == list(row.cells)
    written = (report.folder / "summary.csv").read_text().splitlines()[0].split(",")
    assert {row.name for section in summarise(report.result) for row in section.rows} <= set(written)
    for expected in (
        "How to read this",
        "ε of 7.5 at δ = 1e-05 protects a client in all rounds together, against the aggregator",
        "12,345 parameters",
        "target epsilon",
        "9.9",
        *findings(report.result),
        *FILES[:-1],
    ):
        assert expected in text


def table_cells(page: str, label: str) -> list[str]:
    """The cells of a figure's row, as they are read."""
    (row,) = re.findall(rf'<tr><th scope="row">{re.escape(html.escape(label))}</th>(.*?)</tr>', page)
    return [" ".join(html.unescape(re.sub(r"<[^>]*>", "", cell)).split()) for cell in row.split("</td>")[:-1]]


def test_of_every_method_and_attack_the_table_has_twelve_rows_and_a_line_of_notes_each() -> None:
    cell = {"status": "attacked", "figure": 0.91, "low": 0.885, "high": 0.93, "chance": 0.43}
    names = ("fedavg", "full-he", "selective-shield", "ddp-fedavg")
    result = run_of(*names)
    methods = [
        replace(one, scheme=None if one.method == "fedavg" else "kahe", opened_by="each client")
        for one in result.methods
    ]
    methods[0] = replace(methods[0], notes=["how to read", "why ε is ∞", "broke down in round 2"])
    cells = [{"method": "fedavg", **cell}, {"method": "full-he", **cell, "status": "nothing received"}]
    cells += [{"method": "selective-shield", **cell, "low": None}]
    result = replace(result, methods=methods, audit={"cells": cells})
    rows = {row.label: row.cells for row in compared_rows(result)}
    assert len(rows) <= 12
    assert rows["labels an attack reads"] == ("91 % (88–93)", "nothing", "91 %", "–")
    assert rows["  by chance"] == ("43 %", "43 %", "43 %", "–")
    assert rows["ε"] == ("∞", *["7.5 for a client"] * 3)
    (bare, note), (others, stated) = footnotes(result)
    assert (bare, note) == ("fedavg", "broke down in round 2 (1 more in the notes)")
    assert others == ", ".join(names[1:])
    assert stated.startswith("ε of 7.5 at δ = 1e-05 protects a client")
    assert RunResult.from_json(json.loads(json.dumps(result.to_json()))).audit == result.audit


def test_a_run_without_a_round_is_refused(tmp_path: Path) -> None:
    empty = run_of("fedavg")
    nothing = replace(empty, methods=[replace(empty.methods[0], rounds=[])])
    for result in (nothing, replace(empty, methods=[])):
        with pytest.raises(ParameterError, match="nothing to report"):
            write_report(result, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_report_of_the_same_run_is_the_same_over_an_earlier_one(report: Written, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    with small_pictures():
        write_report(run_of("fedavg"), folder)
    assert "selective-shield" not in (folder / "index.html").read_text()
    write_report(run_of("fedavg", "selective-shield"), folder)
    for name in FILES:
        assert (folder / name).read_bytes() == (report.folder / name).read_bytes(), name


def test_summary_compares_with_the_first_method() -> None:
    sections = {section.title: section.rows for section in summarise(run_of("fedavg", "selective-shield"))}
    up, down, *once = sections["Bytes a round and client"]
    assert up.cells == ("1.00 MB", "1.50 MB (×1.50)")
    assert down.cells == ("1.00 MB", "1.20 MB (×1.20)")
    assert [row.cells for row in once] == [("–", "–")] * 2
    accuracy, personalised = sections["Accuracy after the last round"]
    assert accuracy.cells == ("83.33 %", "83.33 %")
    assert personalised.cells == ("83.33 %", "80.00 %")
    hidden, stated, unit, against, alone, second, delta = sections["Privacy, all rounds"]
    assert hidden.label == "hidden from the aggregator"
    assert against.cells == ("–", "the aggregator, which sees no model")
    assert (stated.cells, alone.cells) == (("∞", "7.5"), ("–", "7.5"))
    assert second.cells == ("–", "2.25")
    assert "if K was true" in second.label
    assert len(summarise(run_of("fedavg"))[-1].rows) == 6  # without a second one, where no method has any
    assert (unit.cells, delta.cells) == (("–", "client"), ("–", "1e-05"))
    times = {row.label: row.cells for row in sections["Seconds a round, sum over clients"]}
    assert set(STAGES) < set(times)
    assert times["train"] == ("375 ms", "375 ms")  # the median of both: they train alike
    assert times["other"] == ("250 ms", "–")
    assert times["all but training"] == ("250 ms", "1.75 s (×7.0)")
    assert times["whole round"] == ("625 ms", "2.12 s (×3.4)")
    assert times["set-up, once"] == ("–", "–")
    assert times["encrypt"] == ("–", "250 ms")


@pytest.mark.parametrize(("alpha", "words"), [(0.5, "Dirichlet α = 0.5"), (math.inf, "iid partition")])
def test_headline(alpha: float, words: str) -> None:
    result = run_of("fedavg", rounds=1)
    headline = describe_run(replace(result, config=result.config | {"alpha": alpha}))
    assert headline.endswith(words)
    assert re.search(r"12,345 parameters, 20 clients, 1 round,", headline)


@pytest.mark.parametrize(
    ("shares", "parts", "text"),
    [
        ({"encrypted": 0.25, "personalised": 0.75}, [], "all"),
        ({"encrypted": 1.0}, ["ranges"], "all but ranges"),
        ({"encrypted": 0.5, "clear": 0.5}, [], "50.00 %"),
        ({"encrypted": 0.25, "noise": 0.25, "personalised": 0.5}, ["mask"], "50.00 %, mask readable"),
        ({"encrypted": 0.999999, "clear": 0.000001}, [], ">99.99 %"),
        ({"noise": 1.0}, [], "nothing"),
        ({"clear": 1.0}, ["mask"], "nothing"),
        ({"personalised": 1.0}, [], "–"),  # nothing was sent
    ],
)
def test_what_is_hidden_is_read_off_what_was_sent(shares, parts, text) -> None:
    result = run_of("fedavg", rounds=2)
    (method,) = result.methods
    rounds = [replace(record, zone_shares=shares) for record in method.rounds]
    changed = replace(result, methods=[replace(method, rounds=rounds, readable_parts=parts)])
    hidden = summarise(changed)[-1].rows[0]
    assert (hidden.label, hidden.cells) == ("hidden from the aggregator", (text,))
    opens = replace(changed, methods=[replace(changed.methods[0], opened_by="aggregator")])
    assert ("sums" in summarise(opens)[-1].rows[0].cells[0]) == (text not in ("nothing", "–"))


def test_noise_of_sigma_0_has_no_figure_and_no_page_says_nan(tmp_path: Path) -> None:
    silent = MethodSettings().changed("dp-fedavg", {"noise_multiplier": 0.0})
    config = RunConfig(clients=3, rounds=1, local_epochs=1, model="linear", threads=1, min_clients=2)
    with one_picture():
        write_report(run_methods(config, ["dp-fedavg"], silent), tmp_path)
    page = (tmp_path / "index.html").read_text("utf-8")
    row = re.search(r"epsilon of what was charged</th><td>([^<]*)</td>", page)
    assert row is not None
    assert row[1] == "–"
    assert not re.search(r">\s*nan\s*<", page, re.IGNORECASE)
    assert "NaN" not in (tmp_path / "result.json").read_text("utf-8")


RUNS = {
    "one": lambda: run_of("fedavg"),
    "three": lambda: run_of("fedavg", "selective-shield", "full-he"),
    "sixteen": run_of_sixteen,
}


def run_of_long_names() -> RunResult:
    """Measured by a metric of one's own, as diverse as it is long."""
    name = "mean_absolute_percentage_error"
    result = replace(run_of("fedavg", "own-method-of-someone", "full-he"), metrics=(name, "mse"))
    for number, value in enumerate((12345.678, 0.00012345, math.nan)):
        figures = {name: value, "mse": value}
        result = changed(
            result,
            number,
            metrics=figures,
            personalised_metrics=figures | {name: 0.5 * value},
            accuracy=math.nan,
        )
    return result


RUNS["own"] = run_of_long_names


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with open_browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def page_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    @cache
    def page(name: str) -> Path:
        with small_pictures():  # of the files beside the page, which shows drawings
            return write_report(RUNS[name](), tmp_path_factory.mktemp(name))[-1]

    return page


@pytest.fixture(
    params=[
        pytest.param(
            (name, width),
            id=f"{name}-{width}",
            marks=() if (name, width) == ("three", 1280) else pytest.mark.slow,
        )
        for name in RUNS
        for width in WIDTHS
    ]
)
def shown(request: pytest.FixtureRequest, browser: Browser, page_of: Callable[[str], Path]) -> Browser:
    name, width = request.param
    return show_all(browser, page_of(name), width)


def test_the_page_never_overflows(shown: Browser) -> None:
    assert_nothing_overflows(shown)


def test_each_plot_is_shown_once_and_whole_with_letters_of_a_readable_size(shown: Browser) -> None:
    drawings = measure(
        shown,
        f"""return {SHOWN_DRAWINGS}.map(svg => {{
        const box = svg.getBoundingClientRect(), scale = box.width / svg.viewBox.baseVal.width;
        const texts = [...svg.querySelectorAll("text")];
        const beyond = texts.filter(text => {{
          const own = text.getBoundingClientRect();
          return own.left < box.left - 1 || own.right > box.right + 1
            || own.top < box.top - 1 || own.bottom > box.bottom + 1;
        }});
        return {{
          label: svg.getAttribute("aria-label"),
          inside: box.left >= 0 && box.right <= innerWidth,
          letters: Math.min(...texts.map(text => parseFloat(getComputedStyle(text).fontSize) * scale)),
          beyond: beyond.map(text => text.textContent),
        }};
        }});""",
    )
    assert len(drawings) == 3
    for drawing in drawings:
        assert drawing["inside"], drawing
        assert drawing["letters"] >= LEAST_LETTERS, drawing
        assert drawing["beyond"] == [], drawing


def test_texts_of_a_plot_do_not_lie_on_each_other(shown: Browser) -> None:
    pairs = measure(
        shown,
        f"""return {SHOWN_DRAWINGS}.flatMap(svg => {{
        const texts = [...svg.querySelectorAll("text")].map(text => [text.textContent, text.getBoundingClientRect()]);
        return texts.flatMap(([one, a], i) => texts.slice(i + 1)
          .filter(([_, b]) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2
            && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 0.4 * Math.min(a.height, b.height))
          .map(([other, _]) => one + " / " + other));
        }});""",
    )
    assert pairs == []


def test_names_and_heads_stay_where_a_table_is_moved(shown: Browser) -> None:
    moved = measure(
        shown,
        """return [...document.querySelectorAll(".scroll")].map(box => {
        box.scrollLeft = 1e6; box.scrollTop = 1e6;
        const outer = box.getBoundingClientRect();
        const names = [...box.querySelectorAll("tbody th, thead tr:first-child th:first-child")];
        const offsets = names.map(one => one.getBoundingClientRect().left - outer.left);
        const last = box.querySelector("tbody tr:last-child td:last-child").getBoundingClientRect();
        const head = box.querySelector("thead").getBoundingClientRect();
        return {
          names: names.length, offset: Math.max(...offsets.map(Math.abs)), right: last.right - outer.right,
          top: head.top - outer.top, share: names[0].getBoundingClientRect().width / outer.width,
        };
        });""",
    )
    assert moved
    for table in moved:
        assert table["names"] >= 2
        assert table["offset"] <= 1.0, table
        assert table["right"] <= 1.0, table
        assert abs(table["top"]) <= 1.0, table
        assert table["share"] < 0.55, table


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 1920])
@pytest.mark.parametrize("name", [name for name in RUNS if name != "sixteen"])
def test_on_a_desktop_no_column_of_the_first_table_is_out_of_sight(
    browser: Browser, page_of: Callable[[str], Path], name: str, width: int
) -> None:
    browser.show(page_of(name), width)
    width, room = measure(
        browser, 'const box = document.querySelector(".scroll"); return [box.scrollWidth, box.clientWidth];'
    )
    assert width <= room


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_all_figures_are_in_sight(browser: Browser, page_of: Callable[[str], Path], width: int) -> None:
    browser.show(page_of("sixteen"), width)
    names = measure(
        browser,
        """const box = document.querySelector(".scroll"), outer = box.getBoundingClientRect();
        return [...box.querySelectorAll("tbody th")].filter(one => {
          const own = one.getBoundingClientRect();
          return own.right <= outer.right && own.bottom <= outer.bottom;
        }).map(one => one.textContent);""",
    )
    assert names == [row.label for row in compared_rows(run_of_sixteen())]
