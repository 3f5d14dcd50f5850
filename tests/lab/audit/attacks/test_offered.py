"""Attacks of other packages, on updates and with federations of their own: what cannot be made stops nothing else."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import EntryPoint

import pytest

from shieldfl.errors import ParameterError
from shieldfl.lab.audit import attack as offered
from shieldfl.lab.audit.attack import GROUP, usable_attacks
from shieldfl.lab.audit.attacks.labels import Ilrg
from shieldfl.lab.audit.protocol.lies import LoneTotal
from shieldfl.lab.audit.session import run_audit

BROKEN, TWICE = "no_such_package.attacks:Attack", "tests_of_nothing:Ilrg"


class OwnLie(LoneTotal):
    """A lie of another package's."""

    name = "own-lie"


class OwnCount(Ilrg):
    """An attack on updates of another package's."""

    name = "own-count"


@pytest.fixture(autouse=True)
def _others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages beside this one: one that is half installed, one that offers a name that is taken, and a good one."""
    places = {
        "own-lie": f"{__name__}:OwnLie",
        "own-count": f"{__name__}:OwnCount",
        "broken": BROKEN,
        "no-attack": "builtins:dict",
        "dlg": TWICE,
    }
    others = [EntryPoint(name, place, GROUP) for name, place in places.items()]
    monkeypatch.setattr(offered, "entry_points", lambda group: others if group == GROUP else [])


def test_attacks_are_sorted_by_what_they_are_on():
    (*on_updates, own, lone), left_out = usable_attacks(["own-lie", "ilrg", "lone-total", "own-count"])
    assert [one.name for one in on_updates] == ["ilrg", "own-count"]
    assert (own, lone) == (OwnLie, LoneTotal)
    assert left_out == []


def test_an_unknown_name_is_refused_with_those_that_there_are():
    with pytest.raises(ParameterError, match=r"unknown attack 'guessing': choose from .*own-lie"):
        usable_attacks(["guessing"])
    for names in ([], ["ilrg", "ilrg"]):
        with pytest.raises(ParameterError, match="each once"):
            usable_attacks(names)


def test_what_cannot_be_made_is_left_out_with_a_line_each():
    (made,), left_out = usable_attacks(["broken", "ilrg", "no-attack", "dlg"])
    assert isinstance(made, Ilrg)
    assert [line.count("\n") for line in left_out] == [0, 0, 0]
    assert f"the attack 'broken', {BROKEN}, cannot be made: ModuleNotFoundError" in left_out[0]
    assert "'no-attack', builtins:dict, is neither an UpdateAttack nor a FederationAttack" in left_out[1]
    assert f"more than one attack 'dlg', shieldfl.lab.audit.attacks.searches:Dlg and {TWICE}" in left_out[2]


def test_an_audit_runs_the_others_names_it_and_is_refused_where_there_are_none(small):
    result = run_audit(replace(small, trials=1, rounds=1), [], ["broken", "ilrg"], ["aggregator"])
    assert [(one.attack, one.status) for one in result.cells] == [("ilrg", "attacked")]
    assert any("'broken'" in note and "cannot be made" in note for note in result.notes)
    with pytest.raises(ParameterError, match="'broken'"):
        run_audit(small, [], ["broken"], ["aggregator"])
