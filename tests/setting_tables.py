"""The documentation's tables of settings, made from the settings themselves: ``python tests/setting_tables.py``."""

from __future__ import annotations

import re
from typing import Any

from documentation_pages import ROOT, doc, table_rows
from shieldfl.methods.discovery import named_method
from shieldfl.settings import settings_of

HEADER = ("setting", "default", "allowed", "meaning")


def pages_of_methods() -> dict[str, str]:
    """The page of each method, by the table of all of them."""
    rows = table_rows(doc("docs/methods/README.md"), "method")
    return dict(re.fullmatch(r"`([\w-]+)` \(\[page\]\(([\w-]+\.md)\)\)", row[0]).groups() for row in rows)


def table_of(settings: Any) -> str:
    lines = [HEADER, ("---",) * len(HEADER)]
    for key, setting in settings_of(type(settings)).items():
        meaning = f"{setting.symbol}: {setting.meaning}" if setting.symbol else setting.meaning
        lines.append((f"`{key}`", str(getattr(settings, setting.name)), setting.allowed, meaning))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def with_table(page: str, settings: Any) -> str:
    """Return a page with its table of settings as it should be."""
    return re.sub(
        r"^\| setting \|.*\n(\|.*\n)+", lambda _: table_of(settings), page, count=1, flags=re.MULTILINE
    )


def main() -> None:
    for name, page in pages_of_methods().items():
        path = ROOT / "docs" / "methods" / page
        if (settings := named_method(name).settings) is not None:
            path.write_text(with_table(path.read_text(encoding="utf-8"), settings), encoding="utf-8")


if __name__ == "__main__":
    main()
