"""Figures as SVG and PDF files that repeat exactly, and SVG that stands inside a page.

Inside a page text stays text, in the page's font, and what depends on the background follows the page's colours: one
drawing serves light and dark screens.
"""

from __future__ import annotations

import io
import re
from html import escape
from typing import TYPE_CHECKING

from shieldfl.reporting.figure_style import LIGHT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["inline_svg", "render_pdf", "render_svg"]

_PAGE_COLOURS = {
    LIGHT.background: "var(--card)",
    LIGHT.text: "var(--text)",
    LIGHT.faint: "var(--line)",
    LIGHT.neutral: "var(--neutral)",
}
_REFERENCE = re.compile(r"(?:xlink:href=\"|url\()#([^\")]+)")
_IDENTIFIER = re.compile(r' id="([^"]*)"')
_TAG = re.compile(r"<[^>]*>")
_TURNED_BY_NOTHING = re.compile(r' transform="rotate\(-?0 [^"]*"')
_LONG_NUMBER = re.compile(r"(\d+\.\d{2})\d+")


def render_svg(figure: Figure) -> str:
    """Return an SVG file, one unit of which is a 72nd of an inch, with text as text."""
    buffer = io.StringIO()
    _save(figure, buffer, "svg", dict.fromkeys(("Creator", "Date", "Format", "Type")))
    return buffer.getvalue()


def render_pdf(figure: Figure) -> bytes:
    """Return a PDF file."""
    buffer = io.BytesIO()
    _save(figure, buffer, "pdf", dict.fromkeys(("Creator", "Producer", "CreationDate")))
    return buffer.getvalue()


def _save(figure: Figure, target: io.StringIO | io.BytesIO, kind: str, metadata: dict[str, None]) -> None:
    from matplotlib import rc_context

    # Only settings say these: letters that can be searched and scaled, and names that do not differ from run to run.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "shieldfl", "pdf.fonttype": 42}):
        figure.savefig(target, format=kind, metadata=metadata)


def inline_svg(svg: str, name: str, label: str, kind: str) -> str:
    """Return what :func:`render_svg` wrote as an element of a page.

    Parameters
    ----------
        name : Of this drawing; what it refers to within itself bears it, since a page has one space of names.
        label : What the drawing shows, for those who do not see it.
        kind : Its class in the page.
    """
    _, opening, body = re.split(r"(<svg\b[^>]*>)", svg, maxsplit=1)
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
    """Rewrite what a tag says of numbers, colours and fonts, and never what a reader sees as text."""
    tag = " ".join(_LONG_NUMBER.sub(r"\1", _TURNED_BY_NOTHING.sub("", tag)).split())
    for colour, variable in _PAGE_COLOURS.items():
        tag = tag.replace(colour, variable)
    tag = re.sub(r"font: ((?:\w+ )?[\d.]+px) [^;\"]*", r"font: \1 var(--font)", tag)
    return re.sub(r"font-family: [^;\"]*", "font-family: var(--font)", tag)
