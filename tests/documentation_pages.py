"""The pages of the documentation, as the tests read them."""

from __future__ import annotations

import itertools
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def doc(name: str) -> str:
    return text_of(ROOT / name)


def prose_of(name: str) -> str:
    """Return a page in one line, so that no phrase is cut by the end of a line."""
    return " ".join(doc(name).split())


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def table_rows(text: str, first_header: str) -> list[list[str]]:
    """Return the cells of the first table whose header row begins with ``first_header``."""
    lines = iter(text.splitlines())
    rows = itertools.dropwhile(lambda line: not line.startswith(f"| {first_header} |"), lines)
    table = list(itertools.takewhile(lambda line: line.startswith("|"), rows))
    assert len(table) > 2, f"no table with the header {first_header}"
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]
