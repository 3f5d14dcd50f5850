"""Attacks of other packages: what cannot be made is named, and stops nothing else."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import EntryPoint

import pytest

from shieldfl.audit.attacks import offered
from shieldfl.audit.attacks.ilrg import Ilrg
from shieldfl.audit.attacks.offered import GROUP, usable_attacks
from shieldfl.audit.session import run_audit
from shieldfl.errors import ParameterError

BROKEN, TWICE = "no_such_package.attacks:Attack", "tests_of_nothing:Ilrg"


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two packages beside this one: one that is half installed, and one that offers a name that is taken."""
    others = [
        EntryPoint("broken", BROKEN, GROUP),
        EntryPoint("no-attack", "builtins:dict", GROUP),
        EntryPoint("dlg", TWICE, GROUP),
    ]
    monkeypatch.setattr(offered, "entry_points", lambda group: [one for one in others if one.group == group])


def test_what_is_not_asked_for_is_not_looked_at(broken):
    (made,), left_out = usable_attacks(["ilrg"])
    assert isinstance(made, Ilrg)
    assert left_out == ()


def test_what_cannot_be_made_is_left_out_with_a_line_each(broken):
    (made,), left_out = usable_attacks(["broken", "ilrg", "no-attack", "dlg"])
    assert made.name == "ilrg"
    assert [line.count("\n") for line in left_out] == [0, 0, 0]
    assert f"the attack 'broken', {BROKEN}, cannot be made: ModuleNotFoundError" in left_out[0]
    assert "'no-attack', builtins:dict, is no UpdateAttack" in left_out[1]
    assert (
        f"more than one attack 'dlg', shieldfl.audit.attacks.gradient_matching:Dlg and {TWICE}" in left_out[2]
    )


def test_an_audit_runs_the_others_and_names_it(broken, small):
    result = run_audit(replace(small, trials=1, rounds=1), [], ["broken", "ilrg"], ["aggregator"])
    assert [(one.attack, one.status) for one in result.cells] == [("ilrg", "attacked")]
    assert any("'broken'" in note and "cannot be made" in note for note in result.notes)


def test_where_nothing_else_is_asked_for_the_audit_is_refused(broken, small):
    with pytest.raises(ParameterError, match="'broken'"):
        run_audit(small, [], ["broken"], ["aggregator"])
