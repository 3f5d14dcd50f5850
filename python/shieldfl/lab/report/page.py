"""The one page of all reports: a head, and sections of texts, tables, drawings, facts and what can be folded away."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from shieldfl.lab.report.figures import inline_svg, render_svg
from shieldfl.quantities import MISSING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Text:
    text: str
    strong: str = ""
    css: str = ""


@dataclass(frozen=True)
class Table:
    """Cells, of which the first of each row names it."""

    caption: str
    """For those who do not see the table."""
    heads: Sequence[str | Text]
    rows: Sequence[Sequence[str | Text]]
    note: str = ""


@dataclass(frozen=True)
class Drawing:
    explanation: str
    elements: tuple[str, ...]


@dataclass(frozen=True)
class Terms:
    meanings: Mapping[str, str]
    css: Mapping[str, str] = field(default_factory=dict)
    """Classes of some of the words."""


@dataclass(frozen=True)
class Images:
    title: str
    caption: str
    count: int
    rows: Mapping[str, bytes]
    """By what it shows, a PNG file."""


@dataclass(frozen=True)
class Section:
    title: str
    blocks: Sequence[Any]
    folded: bool | None = None
    """Whether it is folded away at first, where it can be."""


def inline_drawing(name: str, title: str, explanation: str, shapes: Mapping[str, Figure]) -> Drawing:
    """Return a figure as elements, one for each kind of screen; ``name`` is another for each of a page."""
    label = f"{title}. {explanation} The figures are in the tables and files of this page."
    elements = (
        inline_svg(render_svg(figure), f"{name}-{kind}", label, kind) for kind, figure in shapes.items()
    )
    return Drawing(explanation, tuple(elements))


def render_page(
    title: str,
    findings: Sequence[str],
    headline: str,
    sections: Sequence[Section],
    beside: Sequence[Section] = (),
    warning: str = "",
    files: Sequence[Path] = (),
) -> str:
    """Return an HTML page that needs no other file; sections ``beside`` each other stand below the others."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "setting": _setting_text,
        "kind": lambda block: type(block).__name__,
        "data_uri": lambda png: "data:image/png;base64," + base64.b64encode(png).decode("ascii"),
    }
    return environment.get_template("page.html.j2").render(
        title=title,
        findings=findings,
        headline=headline,
        warning=warning,
        sections=sections,
        beside=beside,
        files=[path.name for path in files],
    )


def _setting_text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "default", True: "yes", False: "no"}[value]
    if isinstance(value, float):
        return MISSING if math.isnan(value) else "∞" if math.isinf(value) else f"{value:g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(_setting_text(item) for item in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_setting_text(item)}" for name, item in value.items())
    return str(value)
