"""The site of the documentation: what is built, and that every link on it leads somewhere on it."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from documentation_pages import PAGES, ROOT, doc, text_of

SITE = ROOT / "build" / "site"
GLOSSARY = doc("docs/reference/glossary.md")
TERMS = re.findall(r"^### (.+?)\n\n(.+?)(?=\n\n|\n*\Z)", GLOSSARY, re.MULTILINE | re.DOTALL)


def loaded(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "site" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_is_in_the_navigation():
    named = re.findall(r"^ +- (?:.+: )?(\S+\.md)$", doc("mkdocs.yml"), re.MULTILINE)
    assemble = loaded("assemble")
    written = {str(place) for place in assemble.pages().values()}
    written |= {f"api/{page}.md" for page in (*assemble.REFERENCE, assemble.COMMANDS.stem)}
    assert sorted(named) == sorted(written)
    assert {page.relative_to(ROOT) for page in PAGES} <= assemble.pages().keys()


def test_the_entry_page_leads_to_every_page():
    linked = {ROOT / "docs" / page for page in re.findall(r"\]\(([\w/-]+\.md)", doc("docs/README.md"))}
    assert linked >= set((ROOT / "docs").glob("*/*.md"))


@pytest.mark.parametrize(("term", "text"), TERMS, ids=[term for term, _ in TERMS])
def test_a_term_of_the_glossary_is_one_sentence_and_a_link(term, text):
    sentence, links = " ".join(text.split()).split(" ([", maxsplit=1)
    assert not re.search(r"[.!?] [A-Z]", sentence)
    assert re.fullmatch(r"(?:[^\]]+\]\([\w/.#-]+\)(?:, \[)?)+\)\.", links)


@pytest.mark.slow
def test_docstrings_become_markdown():
    pytest.importorskip("griffe")
    markdown_of = loaded("api_docstrings").markdown_of
    docstring = (
        "Do it, see ``docs/explanation/kahe.md``.\n\nParameters\n----------\ncount, size : how many\n    there are.\n"
        "key : see :meth:`open`.\n\nRaises ParameterError."
    )
    assert markdown_of(docstring, "shieldfl.encryption.kahe") == (
        'Do it, see <a href="../explanation/kahe.html">kahe</a>.\n\n**Parameters**\n\n- `count, size`: how many\n'
        '    there are.\n- `key`: see <autoref identifier="shieldfl.encryption.kahe.open" optional>'
        "<code>open</code></autoref>."
        "\n\n<!-- -->\n\nRaises ParameterError."
    )


def test_pictures_are_those_of_the_tables_and_suit_dark_pages():
    for name, draw in loaded("pictures").PICTURES.items():
        assert doc(f"docs/images/{name}") == draw(), "draw it anew: python docs/site/pictures.py"
    for picture in (ROOT / "docs" / "images").glob("*.svg"):
        assert "@media (prefers-color-scheme: dark)" in doc(picture), picture


class Page(HTMLParser):
    """What a built page has: names to link to, links, and what a browser loads with it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = {""}
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.names |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and given.get("rel") not in ("prev", "next", "canonical"):
            self.loaded.append(given.get("href", ""))
        elif "src" in given:
            self.loaded.append(given["src"])


@cache
def page_at(path: Path) -> Page:
    return Page(text_of(path))


def dead_links(page: Path) -> Iterator[str]:
    for link in [*page_at(page).links, *page_at(page).loaded]:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        there = (page.parent / unquote(parts.path)).resolve() if parts.path else page
        there = there / "index.html" if there.is_dir() else there
        anchors = page_at(there).names if there.suffix == ".html" and there.is_file() else {""}
        if not there.is_file() or unquote(parts.fragment) not in anchors:
            yield f"{page.relative_to(SITE)}: {link}"


def build() -> list[Path]:
    for command in (["docs/site/assemble.py"], ["-m", "mkdocs", "build", "--strict"]):
        done = subprocess.run(
            [sys.executable, *command],
            cwd=ROOT,
            env=os.environ | {"NO_MKDOCS_2_WARNING": "1", "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "WARNING" not in done.stdout + done.stderr
    return sorted(page for page in SITE.rglob("*.html") if page.name != "404.html")


def loaded_from_elsewhere(page: Path) -> list[str]:
    places = [(what, urlsplit(what)) for what in page_at(page).loaded]
    return [what for what, parts in places if parts.netloc or parts.scheme not in ("", "data")]


def left_as_markdown(page: Path) -> list[str]:
    prose = re.sub(r"<(pre|code|script|style)\b.*?</\1>", "", text_of(page), flags=re.DOTALL)
    shown = re.sub(r"<[^>]+>", "", prose)
    unread = r"```|^\s*- [`*\[]|\]\([\w./#-]+\)|^\|.*\|$|:(?:class|meth|func):"
    return re.findall(unread, shown, re.MULTILINE)


@pytest.mark.slow
def test_the_site_is_whole():
    """One test, since there is one folder to build in."""
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings_handlers.python")
    built = build()
    assert len(built) > len(PAGES)
    assert [dead for page in built for dead in dead_links(page)] == []
    for page in built:
        assert not loaded_from_elsewhere(page), page
        assert not left_as_markdown(page), page
    for sheet in SITE.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import\s+)[\"']?(?:https?:)?//", text_of(sheet)), sheet

    assemble = loaded("assemble")
    for name, (_, modules) in assemble.REFERENCE.items():
        anchors = page_at(SITE / "api" / f"{name}.html").names
        for module, some in modules.items():
            assert {f"{module}.{one}" for one in some or assemble.exported(module)} <= anchors, module

    index = text_of(SITE / "search" / "search_index.js")  # for pages that no server serves
    assert index.startswith("var __index = ")
    assert "one-time pads" in index.lower()
    assert 'src="assets/iframe-worker.js"' in text_of(SITE / "index.html")
