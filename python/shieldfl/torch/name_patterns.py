"""Arrays that are chosen by their names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from shieldfl.errors import ParameterError

__all__ = ["Pattern", "matching"]

Pattern = str | re.Pattern[str]
"""A name, a glob, or a regular expression that has to match a whole name."""


def matching(names: Iterable[str], patterns: Pattern | Sequence[Pattern]) -> set[str]:
    """Return the names that one of the patterns matches.

    Raises ParameterError for a pattern that matches none, and where there is no pattern.
    """
    given = [patterns] if isinstance(patterns, str | re.Pattern) else patterns
    texts = isinstance(given, Iterable) and all(
        isinstance(getattr(one, "pattern", one), str) for one in given
    )
    if not texts:
        raise ParameterError("names, globs and regular expressions are texts, or a list of such")
    if not given:
        raise ParameterError("give at least one name, glob or regular expression")
    listed, found = list(names), set()
    for pattern in given:
        if isinstance(pattern, re.Pattern):
            matched = {name for name in listed if pattern.fullmatch(name)}
        else:
            matched = {name for name in listed if name == pattern or fnmatchcase(name, pattern)}
        if not matched:
            shown = pattern.pattern if isinstance(pattern, re.Pattern) else pattern
            some = ", ".join(listed[:3])
            raise ParameterError(f"no array of the model matches {shown!r}: its names are like {some}")
        found |= matched
    return found
