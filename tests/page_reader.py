"""Reads HTML pages in tests."""

from __future__ import annotations

from html.parser import HTMLParser

VOID_TAGS = {"meta", "img", "source", "br", "link", "input", "hr"}


class PageReader(HTMLParser):
    """Collects the text, the tags and whatever could point to another place."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.words: list[str] = []
        self.open_tags: list[str] = []
        self.feed(page)
        assert not self.open_tags, f"not closed: {self.open_tags}"
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID_TAGS:
            self.open_tags.append(tag)
        self.links += [
            value or "" for name, value in attrs if name in ("src", "srcset", "href", "action", "data")
        ]

    def handle_endtag(self, tag: str) -> None:
        assert self.open_tags.pop() == tag, f"</{tag}> closes another one"

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def assert_needs_nothing_from_elsewhere(page: str) -> None:
    reader = PageReader(page)
    assert reader.links
    assert all(link.startswith(("data:image/png;base64,", "#")) for link in reader.links)
    assert not {"script", "link", "iframe", "object"} & set(reader.tags)
    for word in ("http", "url(", "@import"):
        assert word not in page.replace("url(#", "")
