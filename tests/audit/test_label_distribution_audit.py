"""What is clear beside updates: masks tell of labels where they are readable, and nothing differs where nothing is."""

from __future__ import annotations

import pytest

from shieldfl.audit.audit_config import AuditConfig
from shieldfl.audit.label_distribution_audit import LabelDistributionAudit, clear_facts
from shieldfl.audit.parties import party_named
from shieldfl.audit.views import View
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
    assert cells["client"].status == "nothing received"


def test_messages_of_one_size_tell_nothing(audit):
    for one in audit.cells("full-he", lambda name, number: None):
        assert one.status == "nothing received"
        assert "nothing that this party gets of clients differs" in one.reason


def test_facts_are_of_the_victims_messages_and_not_of_values(trial_of):
    trial = trial_of("selective-shield")
    view = View(trial.record, trial.method, party_named("aggregator"), 1)
    facts = clear_facts(view, trial.layout, 10)
    assert {name.split()[1] for name in facts} == {"round", "mask", "ciphertexts"}
    assert sum("mask" in name for name in facts) == 2 * (
        1 + 2 + 10
    )  # two rounds: bytes, two tensors, ten classes
    assert not clear_facts(View(trial.record, trial.method, party_named("outsider"), 1), trial.layout, 10)
