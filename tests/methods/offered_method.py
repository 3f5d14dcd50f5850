"""Methods that other packages offer, as far as their entry points tell."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from shieldfl.methods import registry
from shieldfl.methods.fedavg import FedAvg
from shieldfl.rounds.method import NamedMethod


class Offer(EntryPoint):
    """An entry point that gives what a test has made."""

    def load(self) -> object:
        return _MADE[self.value]


_MADE: dict[str, object] = {}


def class_of(one: NamedMethod) -> type[FedAvg]:
    """Return a class of another package, which averages and says all that a class has to of its one name."""
    said = {"privacy_reading": FedAvg.privacy_reading, "aggregator_sees": "every client's update"}
    return type("Offered", (FedAvg,), {"names": (one,), **said})


def offer(patch: pytest.MonkeyPatch, name: str, made: object) -> None:
    """Offer a method until the test ends."""
    place = f"test:{name}"
    patch.setitem(_MADE, place, made)
    found = (*registry.entry_points(group=registry.GROUP), Offer(name, place, registry.GROUP))
    patch.setattr(registry, "entry_points", lambda group: found)
    patch.setattr(registry, "_offers", registry._offers.__wrapped__)
