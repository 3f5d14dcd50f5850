"""A report as a browser lays it out, from a telephone to a large screen.

Where there is a browser, one page in one width is looked at in every run of the tests; the others are slow ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

pytest.importorskip("torch")

from lab.report.headless_browser import (
    LEAST_LETTERS,
    SHOWN_DRAWINGS,
    WIDTHS,
    Browser,
    assert_nothing_overflows,
    measure,
    open_browser,
    show_all,
)
from lab.simulation.report.made_up_runs import changed, run_of, run_of_sixteen
from shieldfl.lab.report.run_report import write_report
from shieldfl.lab.report.run_summary import compared_rows
from shieldfl.lab.simulation.results import RunResult
from small_pictures import small_pictures

RUNS = {
    "one": lambda: run_of("fedavg"),
    "three": lambda: run_of("fedavg", "selective-shield", "full-he"),
    "sixteen": run_of_sixteen,
}


def run_of_long_names() -> RunResult:
    """Measured by a metric of one's own, as diverse as it is long."""
    name = "mean_absolute_percentage_error"
    result = replace(run_of("fedavg", "own-method-of-someone", "full-he"), metrics=(name, "mse"))
    for number, value in enumerate((12345.678, 0.00012345, math.nan)):
        figures = {name: value, "mse": value}
        result = changed(
            result,
            number,
            metrics=figures,
            personalised_metrics=figures | {name: 0.5 * value},
            accuracy=math.nan,
        )
    return result


RUNS["own"] = run_of_long_names


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with open_browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def page_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    @cache
    def page(name: str) -> Path:
        with small_pictures():  # of the files beside the page, which shows drawings
            return write_report(RUNS[name](), tmp_path_factory.mktemp(name))[-1]

    return page


@pytest.fixture(
    params=[
        pytest.param(
            (name, width),
            id=f"{name}-{width}",
            marks=() if (name, width) == ("three", 1280) else pytest.mark.slow,
        )
        for name in RUNS
        for width in WIDTHS
    ]
)
def shown(request: pytest.FixtureRequest, browser: Browser, page_of: Callable[[str], Path]) -> Browser:
    name, width = request.param
    return show_all(browser, page_of(name), width)


def test_the_page_never_overflows(shown: Browser) -> None:
    assert_nothing_overflows(shown)


def test_each_plot_is_shown_once_and_whole_with_letters_of_a_readable_size(shown: Browser) -> None:
    drawings = measure(
        shown,
        f"""return {SHOWN_DRAWINGS}.map(svg => {{
        const box = svg.getBoundingClientRect(), scale = box.width / svg.viewBox.baseVal.width;
        const texts = [...svg.querySelectorAll("text")];
        const beyond = texts.filter(text => {{
          const own = text.getBoundingClientRect();
          return own.left < box.left - 1 || own.right > box.right + 1
            || own.top < box.top - 1 || own.bottom > box.bottom + 1;
        }});
        return {{
          label: svg.getAttribute("aria-label"),
          inside: box.left >= 0 && box.right <= innerWidth,
          letters: Math.min(...texts.map(text => parseFloat(getComputedStyle(text).fontSize) * scale)),
          beyond: beyond.map(text => text.textContent),
        }};
        }});""",
    )
    assert len(drawings) == 3
    for drawing in drawings:
        assert drawing["inside"], drawing
        assert drawing["letters"] >= LEAST_LETTERS, drawing
        assert drawing["beyond"] == [], drawing


def test_texts_of_a_plot_do_not_lie_on_each_other(shown: Browser) -> None:
    pairs = measure(
        shown,
        f"""return {SHOWN_DRAWINGS}.flatMap(svg => {{
        const texts = [...svg.querySelectorAll("text")].map(text => [text.textContent, text.getBoundingClientRect()]);
        return texts.flatMap(([one, a], i) => texts.slice(i + 1)
          .filter(([_, b]) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2
            && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 0.4 * Math.min(a.height, b.height))
          .map(([other, _]) => one + " / " + other));
        }});""",
    )
    assert pairs == []


def test_names_and_heads_stay_where_a_table_is_moved(shown: Browser) -> None:
    moved = measure(
        shown,
        """return [...document.querySelectorAll(".scroll")].map(box => {
        box.scrollLeft = 1e6; box.scrollTop = 1e6;
        const outer = box.getBoundingClientRect();
        const names = [...box.querySelectorAll("tbody th, thead tr:first-child th:first-child")];
        const offsets = names.map(one => one.getBoundingClientRect().left - outer.left);
        const last = box.querySelector("tbody tr:last-child td:last-child").getBoundingClientRect();
        const head = box.querySelector("thead").getBoundingClientRect();
        return {
          names: names.length, offset: Math.max(...offsets.map(Math.abs)), right: last.right - outer.right,
          top: head.top - outer.top, share: names[0].getBoundingClientRect().width / outer.width,
        };
        });""",
    )
    assert moved
    for table in moved:
        assert table["names"] >= 2
        assert table["offset"] <= 1.0, table
        assert table["right"] <= 1.0, table
        assert abs(table["top"]) <= 1.0, table
        assert table["share"] < 0.55, table


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 1920])
@pytest.mark.parametrize("name", [name for name in RUNS if name != "sixteen"])
def test_on_a_desktop_no_column_of_the_first_table_is_out_of_sight(
    browser: Browser, page_of: Callable[[str], Path], name: str, width: int
) -> None:
    browser.show(page_of(name), width)
    width, room = measure(
        browser, 'const box = document.querySelector(".scroll"); return [box.scrollWidth, box.clientWidth];'
    )
    assert width <= room


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_all_figures_are_in_sight(browser: Browser, page_of: Callable[[str], Path], width: int) -> None:
    browser.show(page_of("sixteen"), width)
    names = measure(
        browser,
        """const box = document.querySelector(".scroll"), outer = box.getBoundingClientRect();
        return [...box.querySelectorAll("tbody th")].filter(one => {
          const own = one.getBoundingClientRect();
          return own.right <= outer.right && own.bottom <= outer.bottom;
        }).map(one => one.textContent);""",
    )
    assert names == [row.label for row in compared_rows(run_of_sixteen())]
