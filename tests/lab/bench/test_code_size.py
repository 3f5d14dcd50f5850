"""``bench/code_size.py`` counts a small made-up package right."""

from __future__ import annotations

import code_size

BASE = '''"""What others derive from."""

from typing import Protocol

from other import Foreign

__all__ = ["LIMIT", "Base", "Speaks", "plain"]

LIMIT = 3
"""The most of something."""


class Speaks(Protocol):
    """No link of a chain."""


class Base(Foreign, Speaks):
    def __getattr__(self, name):  # a comment
        return name


def plain():
    return [one for one in (1, 2) if one]
'''
DERIVED = '''import shieldfl.base as low
from shieldfl import base
from shieldfl.base import LIMIT as MOST

__all__ = ["MOST", "Last", "base", "branching"]


class Middle(low.Base):
    pass


class Last(Middle):
    """The end of a chain of three."""


def branching(value):
    for one in value:
        if one and value or MOST:
            try:
                value = 1 if one else 2
            except KeyError:
                value = [x for x in one if x if one]

    def within():
        return value or 1

    match value:
        case 1 | 2:
            return "pads"
        case _:
            return within
'''


def test_text_is_counted(tmp_path):
    files = {
        "python/shieldfl/base.py": BASE,
        "python/shieldfl/_core.pyi": "x: int\n",
        "python/shieldfl/lab/__init__.py": "",
        "python/shieldfl/lab/derived.py": DERIVED,
        "python/shieldfl/lab/page.html.j2": "<p>\n<p>\n",
        "python/shieldfl/pads/__init__.py": '"""pads"""\n',
        "tests/test_one.py": "\n\n",
        "tests/reference/one.py": "\n",
        "bench/one.py": "\n\n\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    base, derived = len(BASE.splitlines()), len(DERIVED.splitlines())
    assert code_size.figures_of_text(tmp_path) == {
        "lines": base + derived + 4,
        "lines outside of lab": base + 2,
        "code lines": 10 + 21,
        "tokens": sum(code_size.words_and_code_lines(text)[0] for text in (BASE, DERIVED, '"pads"')),
        "public names": 8,
        "public names with a docstring": 5,
        "functions of a complexity above 10": 1,
        "longest line": max(map(len, (BASE + DERIVED).splitlines())),
        "files": 6,
        "folders directly in the package": 2,
        ".py files directly in the package": 1,
        "classes": 4,
        "functions": 4,
        "lines of tests, without twins": 2,
        "lines of bench": 3,
        "most bases of a class, without protocols": 3,
        "__getattr__ in classes": 1,
        "files that name the scheme pads, without its own": 1,
    }
    assert code_size.words_and_code_lines('"""Doc."""\n\nx = 1  # so\n') == (4, 1)
