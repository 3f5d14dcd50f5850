"""Attacks that other packages offer: on updates, and with federations of their own."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from shieldfl.audit.attacks import offered
from shieldfl.audit.attacks.ilrg import Ilrg
from shieldfl.audit.attacks.offered import GROUP, attacks_named, sorted_attacks
from shieldfl.audit.protocol.small_totals import LoneTotal
from shieldfl.errors import ParameterError


class NoAttack:
    """Something else."""


class OwnLie(LoneTotal):
    """A lie of another package's."""

    name = "own-lie"


class OwnCount(Ilrg):
    """An attack on updates of another package's."""

    name = "own-count"


@pytest.fixture(autouse=True)
def _offers(monkeypatch):
    own = [
        EntryPoint(name, f"{__name__}:{kind}", GROUP)
        for name, kind in (("own-lie", "OwnLie"), ("own-count", "OwnCount"), ("no-attack", "NoAttack"))
    ]
    monkeypatch.setattr(offered, "entry_points", lambda group: own if group == GROUP else [])


def test_attacks_are_sorted_by_what_they_are_on():
    (on_updates, *others), on_methods = sorted_attacks(["own-lie", "ilrg", "lone-total", "own-count"])
    assert (on_updates.name, [one.name for one in others]) == ("ilrg", ["own-count"])
    assert on_methods == (OwnLie, LoneTotal)


def test_what_is_no_attack_is_refused():
    with pytest.raises(ParameterError, match="neither an UpdateAttack nor a FederationAttack"):
        sorted_attacks(["no-attack"])
    with pytest.raises(ParameterError, match="own-lie has federations of its own"):
        attacks_named(["ilrg", "own-lie"])
    with pytest.raises(ParameterError, match=r"unknown attack 'guessing': choose from .*own-lie"):
        sorted_attacks(["guessing"])
