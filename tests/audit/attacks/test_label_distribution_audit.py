"""What is clear beside updates: masks tell of labels where they are readable, and nothing differs where nothing is."""

from __future__ import annotations

import pytest

from shieldfl.audit.attacks.label_distribution_audit import LabelDistributionAudit, clear_facts
from shieldfl.audit.audit_config import AuditConfig
from shieldfl.audit.views.parties import party_named
from shieldfl.audit.views.trial import Trial
from shieldfl.audit.views.view import View
from shieldfl.methods.settings import MethodSettings
from shieldfl.simulation.data import Dataset


@pytest.fixture(scope="module")
def audit(digits: Dataset) -> LabelDistributionAudit:
    parties = [party_named(name) for name in ("aggregator", "client", "network")]
    found = LabelDistributionAudit(AuditConfig(model="linear", threads=1), MethodSettings(), digits, parties)
    found.played, found.attacked = 6, 4
    return found


def test_masks_in_the_clear_tell_of_labels_to_who_reads_them(audit):
    told: list[int] = []
    cells = {
        one.party: one for one in audit.cells("selective-shield", lambda name, number: told.append(number))
    }
    assert told == list(range(10))
    found = cells["aggregator"]
    assert (found.status, found.measured_by, found.chance) == ("attacked", "correlation", 0.0)
    assert found.tries == 16
    assert found.low > 0.2
    assert found.others["error of a share"] < found.others["error without a view"]
    assert cells["network"].figure == pytest.approx(found.figure)
    assert cells["client"].status == "does not apply"
    assert "this party gets none" in cells["client"].reason


def test_messages_of_one_size_tell_nothing(audit):
    cells = {one.party: one for one in audit.cells("full-he", lambda name, number: None)}
    for party in ("aggregator", "network"):
        assert cells[party].status == "nothing received"
        assert "nothing that this party gets of clients differs" in cells[party].reason


@pytest.mark.parametrize(
    ("method", "settings", "part"),
    [
        ("mask-crypt", {}, "ranking"),
        ("sense-crypt", {"encryption": "kahe"}, "sensitivity"),
    ],
)
def test_positions_and_sizes_in_the_clear_are_looked_at_too(digits, small, method, settings, part):
    trial = Trial(method, MethodSettings().changed(method, settings), small, digits, 0)
    told = []
    for victim in (0, 1):
        view = View(trial.record, trial.method, party_named("aggregator"), victim)
        facts = clear_facts(view, trial.layout, 10)
        told.append([value for name, value in facts.items() if name.split()[1] == part])
    assert len(told[0]) % (1 + 2 + 10) == 0
    assert told[0] != told[1]


def test_facts_are_of_the_victims_messages_and_not_of_values(trial_of):
    trial = trial_of("selective-shield")
    view = View(trial.record, trial.method, party_named("aggregator"), 1)
    facts = clear_facts(view, trial.layout, 10)
    assert {name.split()[1] for name in facts} == {"round", "mask", "ciphertexts"}
    assert sum("mask" in name for name in facts) == 2 * (
        1 + 2 + 10
    )  # two rounds: bytes, two tensors, ten classes
    assert not clear_facts(View(trial.record, trial.method, party_named("outsider"), 1), trial.layout, 10)
