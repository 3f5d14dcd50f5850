"""What report pages have in common: pictures for light and dark screens, and templates that share one frame."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from shieldfl.reporting.figure_style import DARK, LIGHT, Theme, lay_out, render_png
from shieldfl.reporting.output_files import write_whole
from shieldfl.reporting.quantities import (
    MISSING,
)
from shieldfl.reporting.vector_figures import inline_svg, render_pdf, render_svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Drawing", "Picture", "data_uri", "draw_picture", "inline_drawing", "render_page", "write_figure"]


@dataclass(frozen=True)
class Picture:
    """A plot as a page shows it: data URIs for a light and for a dark screen."""

    title: str
    explanation: str
    light: str
    dark: str


def draw_picture(title: str, explanation: str, draw: Callable[[Theme], Figure], path: Path) -> Picture:
    """Draw a plot in both themes and write the light one to a PNG file. Raises OSError."""
    light, dark = (render_png(draw(theme)) for theme in (LIGHT, DARK))
    write_whole(path, light)
    return Picture(title, explanation, data_uri(light), data_uri(dark))


@dataclass(frozen=True)
class Drawing:
    """A plot as a page holds it: SVG elements for wide and for narrow screens, which follow the page's colours."""

    title: str
    explanation: str
    elements: tuple[str, ...]


def inline_drawing(
    name: str, title: str, explanation: str, said: str, shapes: Mapping[str, Figure]
) -> Drawing:
    """Return a plot as elements of a page, one for each kind of screen; ``said`` is what it shows, in words.

    ``name`` must be another for each drawing of a page.
    """
    elements = (
        inline_svg(render_svg(figure), f"{name}-{kind}", f"{title}. {said}", kind)
        for kind, figure in shapes.items()
    )
    return Drawing(title, explanation, tuple(elements))


def write_figure(figure: Figure, path: Path) -> list[Path]:
    """Write a figure as SVG, PDF and PNG files beside each other, and return their paths. Raises OSError.

    It stays as it is laid out for them.
    """
    lay_out(figure)
    contents: dict[str, str | bytes] = {
        ".svg": render_svg(figure),
        ".pdf": render_pdf(figure),
        ".png": render_png(figure),
    }
    written = []
    for ending, content in contents.items():
        written.append(path.with_name(path.name + ending))
        write_whole(written[-1], content)
    return written


def render_page(template: Path, **facts: Any) -> str:
    """Fill in a template, which may extend and import those that stand beside this file."""
    environment = Environment(
        loader=FileSystemLoader([template.parent, Path(__file__).parent]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["setting"] = _setting_text
    return environment.get_template(template.name).render(**facts)


def data_uri(png: bytes) -> str:
    """Return a PNG file as a page holds it."""
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def _setting_text(value: Any) -> str:
    if value is None:
        return "default"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return MISSING if math.isnan(value) else "∞" if math.isinf(value) else f"{value:g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(_setting_text(item) for item in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_setting_text(item)}" for name, item in value.items())
    return str(value)
