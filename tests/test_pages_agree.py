"""What several pages say, they say alike: counts, names, and what an example tells an aggregator."""

from __future__ import annotations

import re

from documentation_pages import PAGES, ROOT, doc, name_of, text_of
from shieldfl.methods.registry import BUILT_IN

WORDS = """two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
    eighteen nineteen twenty"""
NUMBERS = {word: number for number, word in enumerate(WORDS.split(), 2)}
EXAMPLE_PAGES = [*sorted((ROOT / "examples").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.ipynb"))]


def numbers_before(noun, pages):
    """The numbers that stand in words before a noun, at most a bracket between them, by page."""
    words = re.compile(rf"\b({'|'.join(NUMBERS)})\s+\[?(?:{noun})", re.IGNORECASE)
    return {
        (name_of(page), found): NUMBERS[found.lower()]
        for page in pages
        for found in words.findall(text_of(page))
    }


def test_pages_say_how_many_methods_there_are():
    """Of all of them; a page of a method, or of a measurement, speaks of some."""
    pages = [
        ROOT / "README.md",
        *(ROOT / "docs").glob("*.md"),
        ROOT / "docs/methods/README.md",
        *EXAMPLE_PAGES,
    ]
    of_some = {"docs/audit.md", "docs/audit-papers.md", "docs/benchmarks.md", "docs/papers/README.md"}
    said = numbers_before("methods|ways of protecting", pages)
    said = {
        key: number for key, number in said.items() if key[0] not in of_some and number > len(BUILT_IN) // 2
    }
    assert len(said) >= 4
    assert set(said.values()) == {len(BUILT_IN)}, said


def test_pages_say_how_many_lines_protect_a_flower_app():
    diffs = sorted((ROOT / "examples/flower").rglob("protected.diff"))
    in_readme = re.search(r"^```diff\n(.*?)^```$", doc("README.md"), re.MULTILINE | re.DOTALL)[1]
    counts = {
        len(re.findall(r"^\+(?!\+\+)", text, re.MULTILINE)) for text in (in_readme, *map(text_of, diffs))
    }
    assert len(diffs) == 3
    assert len(counts) == 1
    pages = (ROOT / "README.md", ROOT / "docs/flower.md", ROOT / "docs/tutorial.md", *EXAMPLE_PAGES)
    said = numbers_before(r"lines\b", pages)
    assert len(said) >= 4
    assert set(said.values()) == counts, said


def test_examples_tell_an_aggregator_what_was_agreed_on():
    """What it is not told, the first batch decides, which may be an attacker's."""
    pages = (*PAGES, *EXAMPLE_PAGES, *sorted((ROOT / "examples").rglob("*.py")))
    calls = {
        (name_of(page), call)
        for page in pages
        for call in re.findall(r"= sf\.(?:kahe|pads)\.Aggregator\(((?:[^()]|\([^()]*\))*)\)", text_of(page))
    }
    assert len(calls) >= 10
    lacking = [
        (page, call)
        for page, call in calls
        if not all(f"{one}=" in call for one in ("round", "positions", "weighted"))
    ]
    assert not lacking
