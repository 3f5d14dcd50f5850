"""Which of the optional packages are installed, by what is known of them without importing any."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from shieldfl.installing import EXTRAS, how_to_install

__all__ = ["Part", "parts"]


@dataclass(frozen=True)
class Part:
    """A part of the library that needs packages of its own."""

    name: str
    installed: dict[str, str]
    """Versions, by package; those that are too old are among them."""
    missing: tuple[str, ...]
    """Packages that are not there, or too old."""
    install: str
    """What to type for these; empty where nothing is missing."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "part": self.name,
            "installed": self.installed,
            "missing": list(self.missing),
            "install": self.install or None,
        }


def parts() -> list[Part]:
    """Return all parts, with what is installed for each."""
    return [_part(name) for name in EXTRAS]


def _part(name: str) -> Part:
    # Of the command that installs all of the part, what is there already is left out.
    words = shlex.split(how_to_install(name))
    installed: dict[str, str] = {}
    wanted: list[str] = []
    missing: list[str] = []
    for requirement in words[2:]:
        package, _, least = requirement.partition(">=")
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            fits = False
        else:
            fits = _numbers(installed[package]) >= _numbers(least)
        if not fits:
            missing.append(package)
            wanted.append(requirement)
    install = shlex.join([*words[:2], *wanted]) if wanted else ""
    return Part(name, installed, tuple(missing), install)


def _numbers(text: str) -> tuple[int, ...]:
    """Return the numbers that a version begins with."""
    return tuple(int(number) for number in re.match(r"[\d.]*", text)[0].split(".") if number)  # type: ignore[index]
