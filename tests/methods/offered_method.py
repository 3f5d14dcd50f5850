"""Methods that other packages offer, as far as their entry points tell."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from shieldfl.methods import discovery


class Offer(EntryPoint):
    """An entry point that gives what a test has made."""

    def load(self) -> object:
        return _MADE[self.value]


_MADE: dict[str, object] = {}


def offer(patch: pytest.MonkeyPatch, name: str, made: object) -> None:
    """Offer a method until the test ends."""
    place = f"test:{name}"
    patch.setitem(_MADE, place, made)
    found = (*discovery.entry_points(group=discovery.GROUP), Offer(name, place, discovery.GROUP))
    patch.setattr(discovery, "entry_points", lambda group: found)
    patch.setattr(discovery, "_offers", discovery._offers.__wrapped__)
