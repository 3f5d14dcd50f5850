"""How long the documentation is: its words and its sentences, page by page.

    python bench/documentation_size.py            # README.md and docs
    python bench/documentation_size.py docs/*.md  # some pages

Prose is what stands outside of code, tables and headings; the last line leaves out pages of proofs and generated pages.
A sentence ends with a full stop, a question mark or a colon, with a list's item, or with its paragraph.
"""

import argparse
import re
import statistics
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LONG_SENTENCE_WORDS = 30
LONG_PAGE_WORDS = 2_500
PROOFS_AND_GENERATED = ("kahe-proofs.md", "kahe-margins.md", "packings-reference.md", "papers")
CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def words(text: str) -> int:
    return len(text.split())


def prose(text: str) -> list[str]:
    """The paragraphs and list items of a page, each in one line, links by their words alone."""
    found: list[str] = []
    continues = False
    for line in CODE.sub("\n", text).splitlines():
        if not line.strip() or line.startswith(("|", "#", "<", "![")):
            continues = False
            continue
        if not continues or re.match(r"\s*([-*]|\d+\.) ", line):
            found.append("")
        found[-1] += " " + re.sub(r"^\s*([-*]|\d+\.) ", "", line).strip()
        continues = True
    return [re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", one).strip() for one in found]


def sentences(paragraphs: Sequence[str]) -> list[str]:
    return [
        one
        for text in paragraphs
        for one in re.split(r"(?<=[.?!:])[)*\"]*\s+(?=[A-Z`*\[(\d])", text)
        if words(one) > 1
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pages", nargs="*", type=Path)
    pages = parser.parse_args(arguments).pages or [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    print(f"{'all words':>9} {'prose':>7} {'a sentence':>10} {'above 30':>8}  page")
    totals, every, apart = [0, 0], [], 0
    for page in pages:
        text = page.read_text(encoding="utf-8")
        paragraphs = prose(text)
        lengths = [words(one) for one in sentences(paragraphs)] or [0]
        counted = words(text), sum(map(words, paragraphs))
        totals = [total + count for total, count in zip(totals, counted, strict=True)]
        every += lengths
        apart += counted[1] * (not {page.name, page.parent.name}.isdisjoint(PROOFS_AND_GENERATED))
        long = sum(length > LONG_SENTENCE_WORDS for length in lengths)
        mark = "  long page" * (counted[0] > LONG_PAGE_WORDS)
        print(f"{counted[0]:>9,} {counted[1]:>7,} {statistics.mean(lengths):>10.1f} {long:>8}  {page}{mark}")
    share = sum(length > LONG_SENTENCE_WORDS for length in every) / len(every)
    print(f"{totals[0]:>9,} {totals[1]:>7,} {statistics.mean(every):>10.1f} {share:>8.1%}  in all")
    print(f"{totals[1] - apart:>17,}  prose but for proofs and generated pages")


if __name__ == "__main__":
    main()
