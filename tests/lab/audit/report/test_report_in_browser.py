"""An audit's report as a browser lays it out, from a telephone to a large screen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")

from lab.audit.report.made_up_audits import audit_of_one_try, audit_of_sixteen, small_audit
from lab.report.headless_browser import (
    SHOWN_DRAWINGS,
    WIDTHS,
    Browser,
    assert_nothing_overflows,
    measure,
    open_browser,
    show_all,
)
from shieldfl.lab.report.audit_report import write_report

pytestmark = pytest.mark.slow

AUDITS = {"one": audit_of_one_try, "small": small_audit, "sixteen": audit_of_sixteen}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with open_browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: write_report(make(), tmp_path_factory.mktemp(name))[-1] for name, make in AUDITS.items()}


@pytest.fixture(
    params=[(name, width) for name in AUDITS for width in WIDTHS], ids=lambda case: f"{case[0]}-{case[1]}"
)
def shown(request: pytest.FixtureRequest, browser: Browser, pages: dict[str, Path]) -> Browser:
    name, width = request.param
    return show_all(browser, pages[name], width)


def test_the_page_never_overflows(shown: Browser) -> None:
    assert_nothing_overflows(shown)


@pytest.mark.parametrize("width", WIDTHS)
def test_images_keep_their_pixels_and_their_shape(
    browser: Browser, pages: dict[str, Path], width: int
) -> None:
    browser.show(pages["sixteen"], width)
    images = measure(
        browser,
        """return [...document.querySelectorAll(".strip img")].map(one => {
        const box = one.getBoundingClientRect();
        return [getComputedStyle(one).imageRendering, box.width / box.height, one.naturalWidth / one.naturalHeight];
        });""",
    )
    assert images
    for rendering, ratio, own in images:
        assert rendering == "pixelated"
        assert ratio == pytest.approx(own, rel=0.02)


def test_a_dark_screen_gets_dark_charts_and_readable_cells(browser: Browser, pages: dict[str, Path]) -> None:
    for dark in (False, True):
        browser.show(pages["small"], 1280, dark=dark)
        letters, of_page, contrasts = measure(
            browser,
            f"""const parts = colour => (colour.match(/[\\d.]+/g) || []).map(Number);
            const light = ([r, g, b]) => [r, g, b].map(one => one / 255)
              .map(one => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
              .reduce((sum, one, i) => sum + one * [0.2126, 0.7152, 0.0722][i], 0);
            const card = parts(getComputedStyle(document.querySelector("section")).backgroundColor);
            const contrasts = [...document.querySelectorAll("td.verdict")].map(cell => {{
              const tint = parts(getComputedStyle(cell).backgroundColor), share = tint[3] === undefined ? 1 : tint[3];
              const back = card.slice(0, 3).map((one, i) => share * tint[i] + (1 - share) * one);
              const both = [light(back), light(parts(getComputedStyle(cell).color))];
              return (Math.max(...both) + 0.05) / (Math.min(...both) + 0.05);
            }});
            const text = {SHOWN_DRAWINGS}[0].querySelector("text");
            return [getComputedStyle(text).fill, getComputedStyle(document.body).color, contrasts];""",
        )
        assert letters == of_page
        assert min(contrasts) >= 7.0  # WCAG, AAA
