"""The one page of all reports, its figures, and the files beside it.

A page has a head, and sections of texts, tables, drawings, facts and what can be folded away. Colours of
figures are Okabe and Ito's, which colour-blind readers can tell apart. None of matplotlib's global state is
used. Files repeat exactly. Inside a page text stays text, in the page's font, and what depends on the
background follows the page's colours, so that one drawing serves light and dark screens.
"""

from __future__ import annotations

import base64
import io
import re
import textwrap
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from shieldfl.lab.report.output_files import write_whole

BACKGROUND, TEXT = "#ffffff", "#1f2328"
FAINT = "#d8dce1"
NEUTRAL = "#b4bac2"
LINE_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")
LINE_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
PART_COLOURS = {
    "train": NEUTRAL,
    "score": "#F0E442",
    "negotiate": "#E69F00",
    "select": "#E69F00",
    "encrypt": "#0072B2",
    "upload": "#56B4E9",
    "aggregate": "#009E73",
    "download": "#009E73",
    "open": "#D55E00",
    "merge": "#CC79A7",
    "wait": FAINT,
    "other": FAINT,
    "encrypted": "#0072B2",
    "personalised": "#E69F00",
    "noise": "#56B4E9",
    "clear": NEUTRAL,
}
"""Colours of the stages of a round and of the zones of parameters; no picture shows two of one colour."""

_PAGE_COLOURS = {
    BACKGROUND: "var(--card)",
    TEXT: "var(--text)",
    FAINT: "var(--line)",
    NEUTRAL: "var(--neutral)",
}
_DOTS_AN_INCH = 160
_POINTS_AN_INCH = 72.0


@dataclass(frozen=True)
class Shape:
    """The kind of screen that a figure is drawn for. Lengths are in points, which a page may show smaller."""

    width: float
    text: float
    """Size of letters, which stay readable when a page shows the drawing somewhat smaller."""

    @property
    def narrow(self) -> bool:
        return self.width < 500.0


WIDE = Shape(width=740.0, text=11.5)
NARROW = Shape(width=330.0, text=11.0)
"""Shape for telephones, which are 320 to 430 points wide."""


def new_figure(shape: Shape, height: float, rows: int = 1, columns: int = 1) -> tuple[Figure, list[Axes]]:
    size = (shape.width / _POINTS_AN_INCH, height / _POINTS_AN_INCH)
    figure = Figure(figsize=size, facecolor=BACKGROUND)
    figure.set_layout_engine("constrained", w_pad=6.0 / _POINTS_AN_INCH, h_pad=4.0 / _POINTS_AN_INCH)
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in panels:
        axes.set_facecolor(BACKGROUND)
        axes.set_axisbelow(True)
        axes.tick_params(colors=TEXT, labelsize=shape.text, length=0, grid_color=FAINT, grid_linewidth=0.8)
        for label in (axes.xaxis.label, axes.yaxis.label):
            label.set(color=TEXT, fontsize=shape.text)
        for side, spine in axes.spines.items():
            spine.set(visible=side == "bottom", color=FAINT)
    return figure, panels


def percent(share: float, _: object) -> str:
    return f"{share * 100:g} %"


def set_title(axes: Axes, title: str, shape: Shape) -> None:
    axes.set_title(title, loc="left", fontsize=shape.text, color=TEXT, parse_math=False)


def add_legend(figure: Figure, panels: Sequence[Axes], shape: Shape, columns: int) -> None:
    """Name below the panels what any of them shows, once, with ``columns`` names in a line."""
    named: dict[str, Any] = {}
    for axes in panels:
        named |= {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    legend = figure.legend(
        list(named.values()),
        list(named),
        loc="outside lower center",
        ncols=min(columns, len(named)),
        frameon=False,
        fontsize=shape.text,
        columnspacing=1.2,
        labelcolor=TEXT,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def name_rows(axes: Axes, names: Sequence[str], shape: Shape, height: float) -> None:
    """Make rows around 0, 1, 2 …, the first on top, each with its name above what is drawn there.

    ``height`` is the height of what is drawn, in rows.
    """
    axes.set_yticks([])
    for row, name in enumerate(names):
        axes.annotate(
            name,
            (0.0, row - 0.5 * height),
            (0, 3),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            va="bottom",
            fontsize=shape.text,
            color=TEXT,
            parse_math=False,
        )
    axes.set_ylim(len(names) - 1.0 + 0.7 * height, 0.5 * height - 1.0)


def draw_bars(axes: Axes, parts: Mapping[str, ArrayLike], height: float) -> NDArray[np.float64]:
    """Draw a bar in each row, whose named parts stand one behind the other, and return where the bars end."""
    ends: NDArray[np.float64] = np.zeros(1)
    for name, lengths in parts.items():
        widths = np.asarray(lengths, dtype=np.float64)
        ends = np.broadcast_to(ends, widths.shape)
        axes.barh(range(widths.size), widths, height, ends, label=name, color=PART_COLOURS[name])
        ends = ends + widths
    axes.grid(axis="x")
    return ends


@dataclass(frozen=True)
class Line:
    label: str
    x: Sequence[float]
    y: Sequence[float]
    colour: str
    dashed: bool = False


def draw_lines(axes: Axes, lines: Sequence[Line]) -> None:
    """Draw lines, later ones thinner, with marks elsewhere, so that overlapping lines can be told apart."""
    for depth, line in enumerate(lines):
        width = max(4.8 - 0.8 * depth, 1.6)
        every = -(-len(line.x) // 8)  # marks, at most
        axes.plot(
            line.x,
            line.y,
            label=line.label,
            color=line.colour,
            linewidth=width,
            linestyle="--" if line.dashed else "-",
            marker=LINE_MARKERS[depth % len(LINE_MARKERS)],
            markersize=2.0 + 1.4 * width,
            markerfacecolor=BACKGROUND if line.dashed else line.colour,
            markevery=(depth % every, every),
        )


def wrapped(text: str, shape: Shape) -> str:
    """Break a text behind commas and colons into lines that a shape has room for."""
    kept = re.sub(r"(?<![,:]) ", "\xa0", text)
    filled = textwrap.fill(kept, int(shape.width / (0.64 * shape.text)), break_on_hyphens=False)
    return filled.replace("\xa0", " ")


def render_png(figure: Figure) -> bytes:
    figure.set_dpi(_DOTS_AN_INCH)
    buffer = io.BytesIO()
    # Draws once. ``savefig`` would draw twice: to lay the figure out, and then its file.
    FigureCanvasAgg(figure).print_png(buffer, metadata={"Software": None})  # type: ignore[no-untyped-call]
    return buffer.getvalue()


def render(figure: Figure, kind: Literal["svg", "pdf"]) -> bytes:
    """Return a file with letters that can be searched, and nothing that differs from run to run."""
    left_out = (
        ("Creator", "Date", "Format", "Type") if kind == "svg" else ("Creator", "Producer", "CreationDate")
    )
    buffer = io.BytesIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "shieldfl", "pdf.fonttype": 42}):
        figure.savefig(buffer, format=kind, metadata=dict.fromkeys(left_out))
    return buffer.getvalue()


def write_figure(figure: Figure, path: Path) -> list[Path]:
    """Write a figure as SVG, PDF and PNG files beside each other, and return their paths. Raises OSError.

    The figure keeps this layout, at the dots of the PNG file.
    """
    figure.set_dpi(_DOTS_AN_INCH)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    written = [path.with_name(path.name + ending) for ending in (".svg", ".pdf", ".png")]
    for target, content in zip(
        written, (render(figure, "svg"), render(figure, "pdf"), render_png(figure)), strict=True
    ):
        write_whole(target, content)
    return written


def render_row(images: NDArray[np.uint8], gap: int) -> bytes:
    """Return a PNG file of images (k, height, width, 3) in a row, with ``gap`` transparent pixels between.

    A pixel of an image is a pixel of the file, which is the same in every run.
    """
    from PIL import Image

    opaque = np.pad(images, ((0, 0), (0, 0), (0, 0), (0, 1)), constant_values=255)
    apart = np.pad(opaque, ((0, 0), (0, 0), (0, gap), (0, 0)))
    row = np.concatenate(list(apart), axis=1)[:, : -gap or None]
    buffer = io.BytesIO()
    Image.fromarray(row).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


_REFERENCE = re.compile(r"(?:xlink:href=\"|url\()#([^\")]+)")
_IDENTIFIER = re.compile(r' id="([^"]*)"')
_TAG = re.compile(r"<[^>]*>")
_TURNED_BY_NOTHING = re.compile(r' transform="rotate\(-?0 [^"]*"')
_LONG_NUMBER = re.compile(r"(\d+\.\d{2})\d+")


def inline_svg(figure: Figure, name: str, label: str, kind: str) -> str:
    """Return a figure as an element of a page, of class ``kind``.

    Identifiers that it refers to carry its ``name``, since a page has one space of names. ``label`` is for
    readers who cannot see it.
    """
    _, opening, body = re.split(r"(<svg\b[^>]*>)", render(figure, "svg").decode(), maxsplit=1)
    box = re.search(r'viewBox="([^"]*)"', opening)
    assert box is not None, "matplotlib gives every figure its size"
    body = re.sub(r"<metadata>.*?</metadata>|<style\b.*?</style>|<!--.*?-->", "", body, flags=re.DOTALL)
    used = set(_REFERENCE.findall(body))
    body = _REFERENCE.sub(lambda found: found[0].replace(f"#{found[1]}", f"#{name}-{found[1]}"), body)
    body = _IDENTIFIER.sub(lambda found: f' id="{name}-{found[1]}"' if found[1] in used else "", body)
    body = body.replace("xlink:href", "href")
    body = _TAG.sub(lambda found: _page_tag(found[0]), body)
    return f'<svg class="{kind}" viewBox="{box[1]}" role="img" aria-label="{escape(label)}">{body.strip()}'


def _page_tag(tag: str) -> str:
    """Rewrite numbers, colours and fonts in a tag, and never text that a reader sees."""
    tag = " ".join(_LONG_NUMBER.sub(r"\1", _TURNED_BY_NOTHING.sub("", tag)).split())
    for colour, variable in _PAGE_COLOURS.items():
        tag = tag.replace(colour, variable)
    tag = re.sub(r"font: ((?:\w+ )?[\d.]+px) [^;\"]*", r"font: \1 var(--font)", tag)
    return re.sub(r"font-family: [^;\"]*", "font-family: var(--font)", tag)


@dataclass(frozen=True)
class Text:
    text: str
    strong: str = ""
    css: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of cells; the first cell of a row names it."""

    caption: str
    """Text for readers who cannot see the table."""
    heads: Sequence[str]
    rows: Sequence[Sequence[str | Text]]
    note: str = ""
    words: Container[int] = ()
    """Numbers of the columns with words, whose long cells are wrapped."""


@dataclass(frozen=True)
class Drawing:
    explanation: str
    elements: tuple[str, ...]


@dataclass(frozen=True)
class Terms:
    meanings: Mapping[str, str]
    css: str = ""
    """CSS class before the class of each word; empty for no classes."""


@dataclass(frozen=True)
class Images:
    title: str
    caption: str
    count: int
    rows: Mapping[str, bytes]
    """PNG file of each row of images, by its label."""


@dataclass(frozen=True)
class Section:
    title: str
    blocks: Sequence[Any]
    folded: bool | None = None
    """Whether the section is folded at first; None if it cannot be folded."""


def inline_drawing(name: str, title: str, explanation: str, wide: Figure, narrow: Figure) -> Drawing:
    """Return a figure as elements, one for each kind of screen; each drawing has its own ``name``."""
    label = f"{title}. {explanation} The figures are in the tables and files of this page."
    shapes = {"wide": wide, "narrow": narrow}.items()
    elements = (inline_svg(figure, f"{name}-{kind}", label, kind) for kind, figure in shapes)
    return Drawing(explanation, tuple(elements))


def write_page(
    written: list[Path],
    title: str,
    findings: Sequence[str],
    headline: str,
    sections: Sequence[Section],
    beside: Sequence[Section] = (),
    warning: str = "",
) -> list[Path]:
    """Write an HTML page beside the files that were written, and return the paths of all, the page's last.

    It needs no other file. Sections ``beside`` each other stand below the others.
    """
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "kind": lambda block: type(block).__name__,
        "data_uri": lambda png: "data:image/png;base64," + base64.b64encode(png).decode("ascii"),
    }
    page = environment.get_template("page.html.j2").render(
        title=title,
        findings=findings,
        headline=headline,
        warning=warning,
        sections=sections,
        beside=beside,
        files=[path.name for path in written],
    )
    written.append(written[0].with_name("index.html"))
    write_whole(written[-1], page)
    return written
