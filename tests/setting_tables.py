"""The documentation's tables of settings, made from the settings themselves: ``python tests/setting_tables.py``."""

from __future__ import annotations

import re
from typing import Any

from documentation_pages import ROOT, doc, table_rows
from shieldfl.methods.registry import named_method
from shieldfl.settings import settings_of

HEADER = ("setting", "default", "allowed", "meaning")


def pages_of_methods() -> dict[str, str]:
    """The page of each method, by the table of all of them."""
    rows = table_rows(doc("docs/how-to/choosing-a-method.md"), "method")
    return dict(re.fullmatch(r"`([\w-]+)` \(\[page\]\(.*/([\w-]+\.md)\)\)", row[0]).groups() for row in rows)


def of_flower() -> tuple[type, type]:
    """Return the settings of docs/how-to/flower.md: an app's, and a node's."""
    from shieldfl.flower.settings import FederationSettings, NodeSettings

    return FederationSettings, NodeSettings


def table_of(settings: Any) -> str:
    """Return the table of a method's entry, or of a class of settings; "–" where there is no default."""
    kind = settings if isinstance(settings, type) else type(settings)
    lines = [HEADER, ("---",) * len(HEADER)]
    for key, setting in settings_of(kind).items():
        meaning = f"{setting.symbol}: {setting.meaning}" if setting.symbol else setting.meaning
        default = str(getattr(settings, setting.name, "–"))
        lines.append((f"`{key}`", default.replace("*", r"\*"), setting.allowed, meaning))
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
