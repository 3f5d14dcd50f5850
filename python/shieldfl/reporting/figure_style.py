"""How figures look: colours for light and dark screens, axes without clutter, PNG files that repeat exactly.

Colours: Okabe and Ito's, which colour-blind readers can tell apart. matplotlib is imported when the first figure is
made, and none of its global state is used.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "DARK",
    "LIGHT",
    "LINE_COLOURS",
    "LINE_MARKERS",
    "STAGE_COLOURS",
    "Theme",
    "add_grid",
    "add_legend",
    "lay_out",
    "new_figure",
    "render_png",
    "set_title",
]


@dataclass(frozen=True)
class Theme:
    """The colours that depend on what the plot is seen against."""

    background: str
    text: str
    faint: str
    """Grid and axis lines."""
    neutral: str
    """For what is present but not the point."""


LIGHT = Theme(background="#ffffff", text="#1f2328", faint="#d8dce1", neutral="#b4bac2")
DARK = Theme(background="#161b22", text="#e6edf3", faint="#3a424c", neutral="#6e7681")

LINE_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")
LINE_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
STAGE_COLOURS = {
    "score": "#F0E442",
    "negotiate": "#E69F00",
    "select": "#E69F00",
    "encrypt": "#0072B2",
    "upload": "#56B4E9",
    "aggregate": "#009E73",
    "download": "#009E73",
    "open": "#D55E00",
    "merge": "#CC79A7",
}
"""Of what a round's time goes into, beside training and waiting; no picture shows two of one colour."""
_DOTS_AN_INCH = 160


def new_figure(
    theme: Theme, height: float, rows: int = 1, columns: int = 1, width: float = 8.4
) -> tuple[Figure, list[Axes]]:
    """Return a figure of ``width`` by ``height`` inches and its panels, row by row."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), facecolor=theme.background)
    figure.set_layout_engine("constrained", w_pad=0.14, h_pad=0.11)
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in panels:
        axes.set_facecolor(theme.background)
        axes.set_axisbelow(True)
        axes.tick_params(colors=theme.text, labelsize=9.5, length=0)
        axes.xaxis.label.set_color(theme.text)
        axes.yaxis.label.set_color(theme.text)
        for side, spine in axes.spines.items():
            spine.set_visible(side == "bottom")
            spine.set_color(theme.faint)
    return figure, panels


def set_title(axes: Axes, title: str, theme: Theme, size: float = 10.5) -> None:
    """Write what a panel shows, above its left end."""
    axes.set_title(title, loc="left", fontsize=size, color=theme.text)


def add_grid(axes: Axes, theme: Theme, axis: Literal["x", "y", "both"] = "both") -> None:
    """Draw faint lines behind what is plotted, at the ticks of one axis or of both."""
    axes.grid(axis=axis, color=theme.faint, linewidth=0.8)


def add_legend(
    figure: Figure,
    place: Literal["outside lower center", "outside upper center"],
    panels: Sequence[Axes],
    theme: Theme,
    columns: int | None = None,
    size: float = 9.0,
) -> None:
    """Name the colours of all panels once, below or above them: in one line, or with so many names in each."""
    named: dict[str, Any] = {}
    for axes in panels:
        named |= {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(
        list(named.values()),
        list(named),
        loc=place,
        ncols=columns or len(named),
        frameon=False,
        fontsize=size,
        handlelength=1.0,
        handleheight=1.0,
        columnspacing=1.2,
        labelcolor=theme.text,
    )


def lay_out(figure: Figure) -> None:
    """Place everything once and for all, at the dots of a PNG file, so that all files of a figure are alike."""
    figure.set_dpi(_DOTS_AN_INCH)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")


def render_png(figure: Figure) -> bytes:
    """Render at 160 dots an inch, with nothing in the file that changes from run to run."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure.set_dpi(_DOTS_AN_INCH)
    canvas = FigureCanvasAgg(figure)
    buffer = io.BytesIO()
    # Draws once. ``savefig`` would draw twice: to lay the figure out, and then its file.
    canvas.print_png(buffer, metadata={"Software": None})  # type: ignore[no-untyped-call]
    return buffer.getvalue()
