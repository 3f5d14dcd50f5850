"""What is drawn of a run, for both kinds of screen."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator

import pytest

pytest.importorskip("torch")
from matplotlib.colors import to_hex
from matplotlib.text import Text
from PIL import Image

from lab.simulation.report.made_up_runs import SIXTEEN, changed, run_of, run_of_sixteen
from shieldfl.lab.report.figures import BACKGROUND, FAINT, NARROW, NEUTRAL, TEXT, WIDE, Shape, render_png
from shieldfl.lab.report.run_report import PLOTS
from shieldfl.lab.report.run_timing import compare_timings
from shieldfl.lab.simulation.run_result import RunResult
from small_pictures import small_pictures

ACCURACY, ZONES, STAGE_TIMES, BYTES = PLOTS
# A browser measures narrow ones, too, in the slow tests.
both_shapes = pytest.mark.parametrize(
    "shape", [WIDE, pytest.param(NARROW, marks=pytest.mark.slow)], ids=["wide", "narrow"]
)


@pytest.fixture
def _small_pictures() -> Iterator[None]:
    with small_pictures():
        yield


def run_without_accuracy() -> RunResult:
    unmeasured = {"accuracy": math.nan, "personalised_accuracy": math.nan}
    return changed(changed(run_of("fedavg", "full-he"), 0, **unmeasured), 1, **unmeasured)


@pytest.mark.every_run("nine-methods-accuracy", "nine-methods-bytes", "no-accuracy-stages", "one-round-zones")
@pytest.mark.usefixtures("_small_pictures")
@pytest.mark.parametrize("plot", PLOTS, ids=lambda plot: plot.name)
@pytest.mark.parametrize(
    "result",
    [
        run_of("fedavg", rounds=1),
        run_of("selective-shield"),
        run_of("fedavg", "selective-shield", rounds=1),
        run_without_accuracy(),
        run_of(*(f"method-{number}" for number in range(9)), rounds=12),
    ],
    ids=["one-round", "one-method", "two-methods-one-round", "no-accuracy", "nine-methods"],
)
@both_shapes
def test_plots_of_any_run(plot, result: RunResult, shape: Shape) -> None:
    picture = Image.open(io.BytesIO(render_png(plot.draw(result, shape)))).convert("RGB")
    assert "#" + bytes(picture.getpixel((0, 0))).hex() == BACKGROUND
    assert len(picture.getcolors(1 << 24) or []) > 20


@pytest.mark.every_run("wide-16-accuracy", "wide-16-zones")
@pytest.mark.usefixtures("_small_pictures")
@pytest.mark.parametrize("plot", PLOTS, ids=lambda plot: plot.name)
@pytest.mark.parametrize("methods", [pytest.param(3, marks=pytest.mark.slow), 16])
@both_shapes
def test_letters_are_large_and_colours_few(plot, methods: int, shape: Shape) -> None:
    result = run_of_sixteen() if methods == 16 else run_of("fedavg", "selective-shield", "full-he")
    figure = plot.draw(result, shape)
    render_png(figure)
    texts = [text for text in figure.findobj(Text) if text.get_text()]
    assert min(text.get_fontsize() for text in texts) >= 10.5
    greys = {BACKGROUND, TEXT, FAINT, NEUTRAL}
    drawn = {to_hex(line.get_color()) for axes in figure.axes for line in axes.lines}
    drawn |= {to_hex(bar.get_facecolor()) for axes in figure.axes for bar in axes.patches}
    assert len(drawn - greys) <= 8


@both_shapes
def test_few_methods_share_a_panel_and_their_ends_are_in_the_legend(shape: Shape) -> None:
    figure = ACCURACY.draw(run_of("fedavg", "selective-shield"), shape)
    (axes,), (legend,) = figure.axes, figure.legends
    styles = {line.get_label(): line.get_linestyle() for line in axes.lines}
    assert styles == {
        "fedavg  83.33 %": "-",
        "selective-shield  83.33 %": "-",
        "selective-shield, personalised  80.00 %": "--",
    }
    assert [text.get_text() for text in legend.get_texts()] == list(styles)
    # The two global lines are the same: the later one lies within the earlier.
    widths = [line.get_linewidth() for line in axes.lines]
    assert widths[0] > widths[1]
    figure.draw_without_rendering()
    box = legend.get_window_extent()
    assert box.x0 >= 0.0
    assert box.x1 <= figure.bbox.x1


def test_a_mean_of_equal_accuracies_is_no_line_of_its_own() -> None:
    result = run_of("fedavg", rounds=1)
    nearly = changed(result, 0, personalised_accuracy=result.methods[0].last.accuracy + 1e-16)
    (axes,) = ACCURACY.draw(nearly).axes
    assert len(axes.lines) == 1


def test_of_many_methods_each_has_a_panel_with_all_others_in_grey() -> None:
    panels = ACCURACY.draw(run_of_sixteen()).axes
    assert [axes.get_title(loc="left").split("\n")[0] for axes in panels] == SIXTEEN
    for axes in panels:
        colours = [to_hex(line.get_color()) for line in axes.lines]
        assert colours.count(NEUTRAL) == 16
        assert 1 <= len(colours) - 16 <= 2
    assert len({axes.get_ylim() for axes in panels}) == 1


@both_shapes
def test_zone_bars_are_whole(shape: Shape) -> None:
    (axes,) = ZONES.draw(run_of("fedavg", "selective-shield"), shape).axes
    ends = [
        max(bar.get_x() + bar.get_width() for bar in axes.patches if row_of(bar) == row) for row in (0, 1)
    ]
    assert ends == pytest.approx([1.0, 1.0])
    assert axes.get_xlim() == (0.0, 1.0)
    words = " ".join(text.get_text().replace("\n", " ") for text in axes.texts)
    assert "encrypted 2.00 %, personalised 4.00 %, noise 94.00 %" in words
    assert "clear 100.00 %" in words


def row_of(bar) -> int:
    return round(bar.get_y() + 0.5 * bar.get_height())


def test_stage_bars_add_up_to_the_stages() -> None:
    whole, added = STAGE_TIMES.draw(run_of("fedavg", "selective-shield")).axes
    for axes, expected in ((whole, [0.625, 2.125]), (added, [0.25, 1.75])):
        ends = [
            max(bar.get_x() + bar.get_width() for bar in axes.patches if row_of(bar) == row) for row in (0, 1)
        ]
        assert ends == pytest.approx(expected)
    assert [text.get_text() for text in whole.texts] == ["625 ms", "2.12 s (×3.4)"]


@both_shapes
@pytest.mark.parametrize("plot", [STAGE_TIMES, BYTES], ids=lambda plot: plot.name)
@pytest.mark.parametrize(
    "result", [run_of("fedavg", "selective-shield"), run_of_sixteen()], ids=["two", "sixteen"]
)
def test_bars_and_what_they_say_are_within_the_picture(plot, result: RunResult, shape: Shape) -> None:
    figure = plot.draw(result, shape)
    figure.draw_without_rendering()
    for axes in figure.axes:
        low, high = axes.get_xlim()
        # Bars begin at nought; what is on a logarithmic axis, which has none, is no bar.
        assert (low == 0.0, len(axes.patches) > 0) == (axes.get_xscale() == "linear",) * 2
        drawn = [bar.get_x() + bar.get_width() for bar in axes.patches]
        drawn += [value for line in axes.lines for value in line.get_xdata()]
        assert low <= min(drawn)
        assert max(drawn) <= high
        for text in axes.texts:
            box = text.get_window_extent()
            assert box.x0 >= 0.0
            assert box.x1 <= figure.bbox.x1 + 1.0


def test_costs_that_differ_widely_are_dots_and_shares() -> None:
    whole, added = STAGE_TIMES.draw(run_of_sixteen()).axes
    assert whole.get_title(loc="left") == "whole round, logarithmic"
    totals = [timing.round_seconds for timing in compare_timings(run_of_sixteen().methods)]
    (dots,) = whole.lines
    assert list(dots.get_xdata()) == pytest.approx(totals)
    for row in range(16):
        assert max(
            bar.get_x() + bar.get_width() for bar in added.patches if row_of(bar) == row
        ) == pytest.approx(1.0)
    up, down = BYTES.draw(run_of_sixteen()).axes
    assert (up.get_xscale(), down.get_xscale()) == ("log", "linear")


@pytest.mark.parametrize("plot", PLOTS, ids=lambda plot: plot.name)
def test_words_say_what_is_drawn(plot) -> None:
    said = plot.say(run_of("fedavg", "selective-shield"))
    expected = {
        "accuracy": "selective-shield from 50.00 % to 83.33 %, its clients' own models to 80.00 %",
        "zones": "fedavg clear 100.00 %; selective-shield encrypted 2.00 %, personalised 4.00 %, noise 94.00 %",
        "stages": "fedavg 625 ms, of which 250 ms are not training",
        "bytes": "selective-shield 1.50 MB up and 1.20 MB down",
    }
    assert expected[plot.name] in said
