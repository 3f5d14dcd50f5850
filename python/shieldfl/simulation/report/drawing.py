"""What the plots of a run have in common: two widths, rows of methods, and labels that are not cut."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from shieldfl.reporting.figure_style import Theme, add_grid, new_figure

__all__ = [
    "NARROW",
    "WIDE",
    "Shape",
    "bar_rows",
    "label_bars",
    "label_dots",
    "new_plot",
    "percent",
    "quantity",
    "spread_widely",
]

_UNITS_AN_INCH = 72.0
_WIDEST_SPREAD = 30.0
"""Of values that are drawn as bars, the largest over the smallest."""


@dataclass(frozen=True)
class Shape:
    """For which screen a plot is drawn. Lengths are in units of the drawing, which are points in a file."""

    width: float
    text: float
    """Size of letters, which stay readable when a page shows the drawing somewhat smaller."""

    @property
    def narrow(self) -> bool:
        """Whether panels stand below each other, and names above their bars."""
        return self.width < 500.0

    def width_of(self, text: str) -> float:
        """Return about how wide a line of text is, in a wide font."""
        return 0.64 * self.text * max(map(len, text.split("\n")))


WIDE = Shape(width=740.0, text=11.5)
NARROW = Shape(width=330.0, text=11.0)
"""For telephones, which are 320 to 430 points wide."""


def new_plot(
    theme: Theme, shape: Shape, height: float, rows: int = 1, columns: int = 1
) -> tuple[Figure, list[Axes]]:
    """Return a figure as wide as a shape and its panels, row by row; lengths in units of the drawing."""
    figure, panels = new_figure(
        theme, height / _UNITS_AN_INCH, rows, columns, width=shape.width / _UNITS_AN_INCH
    )
    figure.set_layout_engine("constrained", w_pad=6.0 / _UNITS_AN_INCH, h_pad=4.0 / _UNITS_AN_INCH)
    for axes in panels:
        axes.tick_params(labelsize=shape.text)
        axes.xaxis.label.set_fontsize(shape.text)
        axes.yaxis.label.set_fontsize(shape.text)
    return figure, panels


def bar_rows(axes: Axes, names: Sequence[str], shape: Shape, theme: Theme, named: bool = True) -> None:
    """Make room for a bar for each name, the first on top; where it is narrow names stand above their bars."""
    if shape.narrow:
        axes.set_yticks([])
        for row, name in enumerate(names):
            axes.annotate(
                name,
                (0.0, row - 0.34),
                xycoords=("axes fraction", "data"),
                va="bottom",
                fontsize=shape.text,
                color=theme.text,
                parse_math=False,
            )
    elif named:
        axes.set_yticks(range(len(names)), list(names), parse_math=False)
    else:
        axes.set_yticks([])
    axes.set_ylim(len(names) - 0.4, -0.9 if shape.narrow else -0.6)


def label_bars(
    axes: Axes, lengths: Sequence[float], texts: Sequence[str], room: float, shape: Shape, theme: Theme
) -> None:
    """Write what each bar says behind its end, and make the axis, ``room`` long, so long that none is cut."""
    axes.set_xlim(0.0, _end(lengths, texts, room, shape) or 1.0)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=4))
    add_grid(axes, theme, "x")
    _write_ends(axes, lengths, texts, shape, theme)


def spread_widely(values: Sequence[float]) -> bool:
    """Whether bars of values would leave of the smaller ones nothing to see."""
    return min(values) > 0.0 and max(values) > _WIDEST_SPREAD * min(values)


def label_dots(
    axes: Axes,
    values: Sequence[float],
    texts: Sequence[str],
    room: float,
    shape: Shape,
    theme: Theme,
    colour: str,
) -> None:
    """Draw values that are spread widely as dots on a logarithmic axis, with what each says behind it."""
    low = 10.0 ** math.floor(math.log10(min(values)))
    decades = [math.log10(value / low) for value in values]
    axes.set_xscale("log")
    axes.set_xlim(low, low * 10.0 ** _end(decades, texts, room, shape))
    axes.xaxis.set_major_locator(LogLocator(numticks=5 if shape.narrow else 4))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.hlines(range(len(values)), low, values, color=theme.faint, linewidth=1.0)
    axes.plot(values, range(len(values)), "o", color=colour, markersize=7.0)
    add_grid(axes, theme, "x")
    _write_ends(axes, values, texts, shape, theme)


def _end(lengths: Sequence[float], texts: Sequence[str], room: float, shape: Shape) -> float:
    """Return to where an axis must go for all texts to find room behind what has these lengths."""
    return max(
        length * room / max(room - shape.width_of(text) - 12.0, 0.3 * room)
        for length, text in zip(lengths, texts, strict=True)
    )


def _write_ends(
    axes: Axes, lengths: Sequence[float], texts: Sequence[str], shape: Shape, theme: Theme
) -> None:
    for row, (length, text) in enumerate(zip(lengths, texts, strict=True)):
        axes.annotate(
            text,
            (length, row),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=shape.text,
            color=theme.text,
        )


def quantity(text: Callable[[float], str]) -> FuncFormatter:
    """Write the ticks of an axis as ``text`` writes its figures, without noughts behind the point."""

    def tick(value: float, _: int | None) -> str:
        if value <= 0.0:
            return "0"
        number, unit = text(value).split(" ")
        return f"{float(number):g} {unit}"

    return FuncFormatter(tick)


def percent() -> FuncFormatter:
    """Write shares in percent."""
    return FuncFormatter(lambda share, _: f"{share * 100:g} %")
