"""The documentation's tables of settings, made from the settings themselves: ``python tests/setting_tables.py``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from documentation_pages import ROOT, doc, table_rows
from shieldfl.methods.registry import named_method
from shieldfl.settings import settings_of

HEADER = ("setting", "default", "allowed", "meaning")


def pages_of_methods() -> dict[str, str]:
    """The page of each method, by the table of all of them."""
    rows = table_rows(doc("docs/how-to/choosing-a-method.md"), "method")
    return dict(re.fullmatch(r"\[`([\w-]+)`\]\(.*/([\w-]+\.md)\)", row[0]).groups() for row in rows)


def of_flower() -> tuple[type, type]:
    """Return the settings of docs/how-to/flower.md: an app's, and a node's."""
    from shieldfl.flower.settings import FederationSettings, NodeSettings

    return FederationSettings, NodeSettings


def rows_of(settings: Any) -> Iterator[tuple[str, ...]]:
    """Return the rows of a method's entry, or of a class of settings; "–" where there is no default."""
    for key, setting in settings_of(settings if isinstance(settings, type) else type(settings)).items():
        meaning = f"{setting.symbol}: {setting.meaning}" if setting.symbol else setting.meaning
        default = str(getattr(settings, setting.name, "–"))
        yield f"`{key}`", default.replace("*", r"\*"), setting.allowed, meaning


def table_of(settings: Any) -> str:
    """Return the table of settings; two rows or more that stand on another page are one, which links to them."""
    rows = list(rows_of(settings))
    for name in ("full-he", "dp-sgd"):
        common = named_method(name).settings
        there = set(rows_of(common))
        same = [row for row in rows if row in there]
        if settings is not common and len(same) > 1:
            names, link = ", ".join(row[0] for row in same), f"[as in `{name}`]({name}.md#settings)"
            rows = [row for row in rows if row not in same] + [(names, link, "", "")]
    lines = [HEADER, ("---",) * len(HEADER), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def with_tables(page: str, *settings: Any) -> str:
    """Return a page with its tables of settings, in their order, as they should be."""
    tables = iter(settings)
    return re.sub(
        r"^\| setting \|.*\n(\|.*\n)+",
        lambda _: table_of(next(tables)),
        page,
        count=len(settings),
        flags=re.MULTILINE,
    )


def main() -> None:
    for name, page in pages_of_methods().items():
        path = ROOT / "docs" / "reference" / "methods" / page
        if (settings := named_method(name).settings) is not None:
            path.write_text(with_tables(path.read_text(encoding="utf-8"), settings), encoding="utf-8")
    path = ROOT / "docs" / "how-to" / "flower.md"
    path.write_text(with_tables(path.read_text(encoding="utf-8"), *of_flower()), encoding="utf-8")


if __name__ == "__main__":
    main()
