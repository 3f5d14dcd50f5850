"""SVG and PDF of a figure, and what of it stands in a page."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

pytest.importorskip("matplotlib")

from shieldfl.lab.report.figures import (
    TEXT,
    WIDE,
    inline_svg,
    new_figure,
    render,
    render_svg,
    write_figure,
)

HOSTILE = 'a <b> & "c" 0.123456 #1f2328'


def figure():
    drawn, (axes,) = new_figure(WIDE, height=144.0)
    axes.plot([0.0, 1.0], [0.0, 1.0], marker="o")
    axes.text(0.5, 0.5, HOSTILE, color=TEXT, parse_math=False)
    return drawn


def test_files_repeat_exactly_and_keep_their_text(tmp_path):
    assert render_svg(figure()) == render_svg(figure())
    assert render(figure(), "pdf") == render(figure(), "pdf")
    names = {path.name for path in write_figure(figure(), tmp_path / "plot")}
    assert names == {"plot.svg", "plot.pdf", "plot.png"} == {path.name for path in tmp_path.iterdir()}
    texts = [
        text.text for text in ElementTree.parse(tmp_path / "plot.svg").iter() if text.tag.endswith("}text")
    ]
    assert HOSTILE in texts
    assert "date" not in (tmp_path / "plot.svg").read_text().lower()


def test_in_a_page_text_stays_and_colours_are_the_page_s():
    element = inline_svg(render_svg(figure()), "one", 'what "it" shows <', "wide")
    root = ElementTree.fromstring(element)
    assert root.attrib["aria-label"] == 'what "it" shows <'
    assert (root.attrib["role"], root.attrib["class"]) == ("img", "wide")
    assert HOSTILE in [text.text for text in root.iter("text")]
    assert "DejaVu" not in element
    assert "xmlns" not in element
    assert "<style" not in element
    assert not re.search(r"[\d.]+\.\d{3}", element.replace("0.123456", ""))
    assert "fill: var(--text)" in element


def test_two_drawings_of_a_page_share_no_name():
    svg = render_svg(figure())
    names = [set(re.findall(r' id="([^"]*)"', inline_svg(svg, name, "", "wide"))) for name in ("one", "two")]
    assert names[0]
    assert not names[0] & names[1]
    for name, own in zip(("one", "two"), names, strict=True):
        element = inline_svg(svg, name, "", "wide")
        assert set(re.findall(r'(?:href="|url\()#([^")]*)', element)) == own
