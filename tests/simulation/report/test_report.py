from __future__ import annotations

import base64
import io
import json
import math
import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pytest

pytest.importorskip("torch")
from PIL import Image

from page_reader import PageReader, assert_needs_nothing_from_elsewhere
from shieldfl.errors import ParameterError
from shieldfl.methods.settings import MethodSettings
from shieldfl.reporting.figure_style import DARK, LIGHT, Theme, render_png
from shieldfl.scheme.registry import DEFAULT_ENCRYPTION
from shieldfl.simulation.config import RunConfig
from shieldfl.simulation.driver import run_methods
from shieldfl.simulation.report.page import write_report
from shieldfl.simulation.report.plots import PLOTS
from shieldfl.simulation.report.summary import describe_run, summarise
from shieldfl.simulation.results import STAGES, MethodResult, RoundRecord
from shieldfl.simulation.run_result import RunResult
from small_pictures import small_pictures

FILES = ["result.json", "accuracy.png", "zones.png", "stages.png", "bytes.png", "index.html"]


def record(number: int, protected: bool) -> RoundRecord:
    shares = {"encrypted": 0.02, "personalised": 0.04, "noise": 0.94, "clear": 0.0}
    return RoundRecord(
        round=number,
        participants=19,
        dropped=0,
        loss=1.0 / number,
        accuracy=1.0 - 0.5 / number,
        personalised_accuracy=1.0 - (0.6 if protected else 0.5) / number,
        zone_shares=shares
        if protected
        else {"encrypted": 0.0, "personalised": 0.0, "noise": 0.0, "clear": 1.0},
        stage_seconds=dict.fromkeys(STAGES, 0.25) if protected else {"train": 0.5},
        bytes_up=1_500_000 if protected else 1_000_000,
        bytes_down=1_200_000 if protected else 1_000_000,
        epsilon=2.5 * number if protected else math.inf,
        epsilon_of_noise=2.5 * number if protected else math.nan,
        epsilon_if_participants_true=0.75 * number if protected else math.nan,
        seconds=2.0 if protected else 0.75,
    )


def run_of(*methods: str, rounds: int = 3) -> RunResult:
    return RunResult(
        dataset="made-up data (<100 & more)",
        model="mlp",
        config=asdict(RunConfig(clients=20, rounds=rounds)),
        environment={"version": "9.9", "processor": "a <fast> one"},
        parameters=12_345,
        methods=[
            MethodResult(
                method=name,
                settings={} if name == "fedavg" else {"threshold": 0.05, "target_epsilon": None},
                parameters=12_345,
                delta=math.nan if name == "fedavg" else 1e-5,
                rounds=[record(number, name != "fedavg") for number in range(1, rounds + 1)],
                seconds=6.0,
                privacy_unit=None if name == "fedavg" else "client",
                privacy_adversary=None if name == "fedavg" else "the aggregator, which sees no model",
                notes=[] if name == "fedavg" else ["a note to the reader"],
            )
            for name in methods
        ],
    )


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


@pytest.fixture(scope="module")
def report_of_one(report: Written, tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Of one method, over an earlier report of two."""
    result = run_of("fedavg")
    folder = tmp_path_factory.mktemp("one") / "folder"
    shutil.copytree(report.folder, folder)
    return Written(result, folder, write_report(result, folder))


@pytest.fixture
def _small_pictures() -> Iterator[None]:
    with small_pictures():
        yield


def test_writes_every_file_and_says_so(report: Written) -> None:
    assert [path.name for path in report.told] == FILES
    assert sorted(path.name for path in report.folder.iterdir()) == sorted(FILES)


def test_json_holds_the_result(report: Written) -> None:
    read = json.loads((report.folder / "result.json").read_text())
    assert read == report.result.to_json()
    assert read["methods"][0]["rounds"][0]["epsilon"] == "Infinity"
    assert read["methods"][1]["rounds"][2]["epsilon"] == 7.5


def test_page_needs_nothing_from_elsewhere(report: Written) -> None:
    assert_needs_nothing_from_elsewhere(report.page)
    assert len(PageReader(report.page).links) == 2 * len(PLOTS)
    assert str(report.folder) not in report.page


def test_page_shows_the_plots_that_are_on_disk(report: Written) -> None:
    links = PageReader(report.page).links
    pictures = [base64.b64decode(link.partition(",")[2]) for link in links]
    for plot in PLOTS:
        assert pictures.count((report.folder / f"{plot.name}.png").read_bytes()) == 1
    for picture in pictures:
        assert Image.open(io.BytesIO(picture)).width > 1000


def test_page_shows_all_figures(report: Written) -> None:
    text = PageReader(report.page).text
    for section in summarise(report.result):
        assert section.title in text
        for row in section.rows:
            assert " ".join([row.label, *(" ".join(cell.split()) for cell in row.cells)]) in text.replace(
                "  ", " "
            )
    for stage in STAGES:
        assert stage in text
    for expected in (
        "How to read this",
        "a note to the reader",
        "12,345 parameters",
        "target epsilon",
        "9.9",
    ):
        assert expected in text


def test_page_escapes_what_it_is_given(report_of_one: Written) -> None:
    page = report_of_one.page
    assert "<fast>" not in page
    assert "a <fast> one" in PageReader(page).text
    assert "made-up data (<100 & more)" in PageReader(page).text


def test_an_earlier_report_is_replaced(report: Written, report_of_one: Written) -> None:
    assert "selective-shield" in report.page
    assert "selective-shield" not in report_of_one.page
    assert sorted(path.name for path in report_of_one.folder.iterdir()) == sorted(FILES)


def test_a_run_without_a_round_is_refused(tmp_path: Path) -> None:
    empty = run_of("fedavg")
    nothing = replace(empty, methods=[replace(empty.methods[0], rounds=[])])
    for result in (nothing, replace(empty, methods=[])):
        with pytest.raises(ParameterError, match="nothing to report"):
            write_report(result, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("_small_pictures")
@pytest.mark.parametrize("plot", PLOTS, ids=lambda plot: plot.name)
@pytest.mark.parametrize(
    ("result", "theme"),
    [
        (run_of("fedavg", rounds=1), LIGHT),
        (run_of("selective-shield"), DARK),
        (run_of("fedavg", "selective-shield", rounds=1), LIGHT),
        (run_of(*(f"method-{number}" for number in range(9)), rounds=12), DARK),
    ],
    ids=["one-round", "one-method", "two-methods-one-round", "nine-methods"],
)
def test_plots_of_any_run(plot, result: RunResult, theme: Theme) -> None:
    picture = Image.open(io.BytesIO(render_png(plot.draw(result, theme)))).convert("RGB")
    assert "#" + bytes(picture.getpixel((0, 0))).hex() == theme.background
    assert len(picture.getcolors(1 << 24) or []) > 20


def test_a_plot_of_the_same_run_is_the_same_file(report: Written) -> None:
    again = run_of("fedavg", "selective-shield")
    for plot in PLOTS:
        written = (report.folder / f"{plot.name}.png").read_bytes()
        assert render_png(plot.draw(again, LIGHT)) == written


def test_personalised_accuracy_is_dashed_where_it_differs() -> None:
    (axes,) = PLOTS[0].draw(run_of("fedavg", "selective-shield"), LIGHT).axes
    styles = {line.get_label(): line.get_linestyle() for line in axes.lines}
    assert styles == {"fedavg": "-", "selective-shield": "-", "selective-shield, personalised": "--"}


def test_zone_bars_add_up_to_everything() -> None:
    (axes,) = PLOTS[1].draw(run_of("fedavg", "selective-shield"), LIGHT).axes
    tops = [
        max(bar.get_y() + bar.get_height() for bar in axes.patches if round(bar.get_x()) == n)
        for n in (1, 2, 3)
    ]
    assert tops == pytest.approx([1.0, 1.0, 1.0])
    assert axes.get_ylim()[0] == 0.0


def test_stage_bars_add_up_to_the_stages() -> None:
    whole, added = PLOTS[2].draw(run_of("fedavg", "selective-shield"), LIGHT).axes
    for axes, expected in ((whole, [0.625, 2.125]), (added, [0.25, 1.75])):
        ends = [max(bar.get_x() + bar.get_width() for bar in list(axes.patches)[row::2]) for row in (0, 1)]
        assert ends == pytest.approx(expected)


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
    assert unit.cells == ("–", "client")
    assert against.cells == ("–", "the aggregator")
    assert stated.cells == ("∞", "7.5")
    assert alone.cells == ("–", "7.5")
    assert second.cells == ("–", "2.25")
    assert "if K was true" in second.label
    assert delta.cells == ("–", "1e-05")
    times = {row.label: row.cells for row in sections["Seconds a round, sum over clients"]}
    assert set(STAGES) < set(times)
    assert times["train"] == ("375 ms", "375 ms")  # the median of both: they train alike
    assert times["other"] == ("250 ms", "–")
    assert times["all but training"] == ("250 ms", "1.75 s (×7.0)")
    assert times["whole round"] == ("625 ms", "2.12 s (×3.4)")
    assert times["set-up, once"] == ("–", "–")
    assert times["encrypt"] == ("–", "250 ms")


def test_a_second_epsilon_is_left_out_where_no_method_has_one() -> None:
    labels = [row.label for row in summarise(run_of("fedavg"))[-1].rows]
    assert labels == [
        "hidden from the aggregator",
        "ε",
        "privacy unit",
        "against",
        "of the noise alone",
        "at δ",
    ]


@pytest.mark.parametrize(
    ("value", "plain"),
    [(math.inf, "Infinity"), (-math.inf, "-Infinity"), (math.nan, None), (2.5, 2.5)],
)
def test_json_tells_infinite_from_undefined(value: float, plain: str | float | None) -> None:
    result = run_of("fedavg")
    read = replace(result, methods=[replace(result.methods[0], delta=value)]).to_json()
    assert read["methods"][0]["delta"] == plain


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
        # Nothing was sent.
        ({"personalised": 1.0}, [], "–"),
    ],
)
def test_what_is_hidden_is_read_off_what_was_sent(shares, parts, text) -> None:
    result = run_of("fedavg", rounds=2)
    (method,) = result.methods
    rounds = [replace(record, zone_shares=shares) for record in method.rounds]
    changed = replace(result, methods=[replace(method, rounds=rounds, readable_parts=parts)])
    hidden = summarise(changed)[-1].rows[0]
    assert (hidden.label, hidden.cells) == ("hidden from the aggregator", (text,))


def test_noise_of_sigma_0_has_no_figure_and_no_page_says_nan(tmp_path: Path) -> None:
    from shieldfl.methods.settings import MethodSettings
    from shieldfl.simulation.driver import run_methods

    silent = MethodSettings().changed("dp-fedavg", {"noise_multiplier": 0.0})
    config = RunConfig(clients=3, rounds=1, local_epochs=1, model="mlp", threads=1, min_clients=2)
    with small_pictures():
        write_report(run_methods(config, ["dp-fedavg"], silent), tmp_path)
    page = (tmp_path / "index.html").read_text("utf-8")
    row = re.search(r"epsilon of what was charged</th><td>([^<]*)</td>", page)
    assert row is not None
    assert row[1] == "–"
    assert not re.search(r">\s*nan\s*<", page, re.IGNORECASE)
    assert "NaN" not in (tmp_path / "result.json").read_text("utf-8")


def test_the_table_says_by_which_scheme_each_method_encrypts() -> None:
    config = RunConfig(clients=3, min_clients=3, rounds=1, local_epochs=1, model="linear", threads=1)
    names = ("fedavg", "full-he", "top-2", "batch-crypt")
    settings = MethodSettings().encrypted_by("ckks", ("fedavg", "full-he", "batch-crypt"))
    settings = settings.changed("batch-crypt", {"key_bits": 2048})
    result = run_methods(config, names, settings)
    rows = {row.label: row.cells for section in summarise(result) for row in section.rows}
    assert rows["encrypted by"] == ("–", "ckks", DEFAULT_ENCRYPTION, "paillier-dense")
    told = [one["scheme"] for one in result.to_json()["methods"]]
    assert told == [None, "ckks", DEFAULT_ENCRYPTION, "paillier-dense"]
