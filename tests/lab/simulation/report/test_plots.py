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
from shieldfl.lab.report.page import BACKGROUND, FAINT, NARROW, NEUTRAL, TEXT, WIDE, Shape, render_png
from shieldfl.lab.report.run_report import PLOTS
from shieldfl.lab.simulation.results import RunResult
from small_pictures import small_pictures

ACCURACY, ZONES, STAGE_TIMES = PLOTS
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


@pytest.mark.every_run(
    "nine-methods-accuracy", "nine-methods-stages", "no-accuracy-stages", "one-round-zones"
)
@pytest.mark.usefixtures("_small_pictures")
@pytest.mark.parametrize("plot", PLOTS, ids=lambda plot: plot.name)
@pytest.mark.parametrize(
    "result",
    [
        run_of("fedavg", rounds=1),
        run_without_accuracy(),
        run_of(*(f"method-{number}" for number in range(9)), rounds=12),
    ],
    ids=["one-round", "no-accuracy", "nine-methods"],
)
@both_shapes
def test_plots_of_any_run(plot, result: RunResult, shape: Shape) -> None:
    picture = Image.open(io.BytesIO(render_png(plot.draw(result, shape)))).convert("RGB")
    assert "#" + bytes(picture.getpixel((0, 0))).hex() == BACKGROUND
    assert len(picture.getcolors(1 << 24) or []) > 20


@pytest.mark.every_run("wide-accuracy", "wide-zones")
@pytest.mark.usefixtures("_small_pictures")
@pytest.mark.parametrize("plot", PLOTS, ids=lambda plot: plot.name)
@both_shapes
def test_letters_are_large_and_colours_few(plot, shape: Shape) -> None:
    figure = plot.draw(run_of_sixteen(), shape)
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
    figure.draw_without_rendering()
    box = legend.get_window_extent()
    assert box.x0 >= 0.0
    assert box.x1 <= figure.bbox.x1


def test_of_many_methods_each_has_a_panel_with_all_others_in_grey() -> None:
    panels = ACCURACY.draw(run_of_sixteen()).axes
    assert [axes.get_title(loc="left").split("\n")[0] for axes in panels] == SIXTEEN
    for axes in panels:
        colours = [to_hex(line.get_color()) for line in axes.lines]
        assert colours.count(NEUTRAL) == 16
        assert 1 <= len(colours) - 16 <= 2
    assert len({axes.get_ylim() for axes in panels}) == 1


@both_shapes
@pytest.mark.parametrize(
    ("plot", "said"),
    [
        (ZONES, ["clear 100.00 %", "encrypted 2.00 %, personalised 4.00 %, noise 94.00 %"]),
        (STAGE_TIMES, ["625 ms, of which 250 ms are not", "2.12 s, of which 1.75 s are not"]),
    ],
    ids=["zones", "stages"],
)
def test_bars_are_whole_and_say_what_they_are_of(plot, said: list[str], shape: Shape) -> None:
    (axes,) = plot.draw(run_of("fedavg", "selective-shield"), shape).axes
    ends = [0.0, 0.0]
    for bar in axes.patches:
        row = round(bar.get_y() + 0.5 * bar.get_height())
        ends[row] = max(ends[row], bar.get_x() + bar.get_width())
    assert ends == pytest.approx([1.0, 1.0])
    assert axes.get_xlim() == (0.0, 1.0)
    words = " ".join(text.get_text().replace("\n", " ") for text in axes.texts)
    assert all(one in words for one in said)
