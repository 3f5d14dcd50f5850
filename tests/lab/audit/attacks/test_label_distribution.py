"""What is clear beside updates: masks tell of labels where they are readable, and nothing differs where nothing is."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from shieldfl.lab.audit.attacks import membership
from shieldfl.lab.audit.attacks.membership import LabelDistributionAudit, clear_facts, mask_view
from shieldfl.lab.audit.audit_config import AuditConfig
from shieldfl.lab.audit.views.view import Trial, View, party_named
from shieldfl.lab.simulation.data import Dataset
from shieldfl.methods.registry import MethodSettings


@pytest.fixture(scope="module")
def audit(digits: Dataset) -> LabelDistributionAudit:
    parties = [party_named(name) for name in ("aggregator", "client", "network", "outsider")]
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
    assert found.tries == 4  # federations: their clients share what they are sent
    assert found.low > 0.2
    assert found.others["error of a share"] < found.others["error without a view"]
    assert cells["network"].low > 0.2
    assert cells["client"].status == "attacked"
    assert cells["outsider"].status == "does not apply"
    assert "this party sees none of that" in cells["outsider"].reason


def test_messages_of_one_size_tell_nothing(audit):
    cells = {one.party: one for one in audit.cells("full-he", lambda name, number: None)}
    for party in ("aggregator", "network"):
        assert cells[party].status == "nothing received"
        assert "nothing that this party gets of clients differs" in cells[party].reason


@pytest.mark.parametrize(
    ("method", "settings", "part"),
    [("mask-crypt", {}, "ranking"), ("sense-crypt", {"encryption": "kahe"}, "sensitivity")],
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


def test_what_clients_are_sent_tells_all_but_one_which_positions_that_one_chose(trial_of):
    """The contributors of each position, less the masks of those who look, are the victim's."""
    trial = trial_of("selective-shield")
    for victim in (0, 2):
        view = View(trial.record, trial.method, party_named("other-clients"), victim)
        facts = clear_facts(view, trial.layout, 10)
        assert {"contributors", "zone"} <= {part for name in facts for part in name.split()}
        last = max(int(name.split()[1]) for name in facts if "contributors" in name)
        counted = np.array([facts[f"sent {last} contributors {1 + place}"] for place in range(2 + 10)])
        disclosed = [trial.record.disclosures[client, 2].clear.to_bool() for client in range(4)]
        expected = mask_view(np.sum(disclosed, axis=0).astype(float), trial.layout, 10)
        np.testing.assert_allclose(counted, expected)
        assert not any(name[0].isdigit() for name in facts)  # nothing that the victim has sent itself
        assert any(name.startswith("own") and "mask" in name for name in facts)


def test_a_last_layer_of_factors_has_no_rows_and_is_looked_at_all_the_same(trial_of):
    trial = trial_of("dict-pfl")
    view = View(trial.record, trial.method, party_named("client"), 0)
    facts = clear_facts(view, trial.layout, 10)
    (first, *_) = [name.split()[1] for name in facts if "union" in name]
    # Bytes, and the share of each tensor: a table and a bias.
    assert sum(name.startswith(f"sent {first} union") for name in facts) == 1 + len(trial.layout.names)


def test_models_and_sums_that_clients_are_sent_are_no_facts_but_for_their_sizes(digits, small):
    settings = MethodSettings().changed("sense-crypt", {"encryption": "kahe"})
    trial = Trial("sense-crypt", settings, small, digits, 0)
    view = View(trial.record, trial.method, party_named("client"), 0)
    facts = clear_facts(view, trial.layout, 10)
    of_models = [name for name in facts if name.startswith("sent") and "parameters" in name]
    assert of_models
    assert all(facts[name] == 4 * trial.layout.size for name in of_models)


def test_federations_that_are_attacked_end_early_as_the_attackers_own_do(digits, monkeypatch):
    """Here the attacker's own clients differ in size, and those that are attacked do not."""
    told: list[int] = []
    monkeypatch.setattr(
        membership,
        "Trial",
        lambda name, settings, config, dataset, number, batches: SimpleNamespace(
            record=number, method=None, layout=None
        ),
    )
    monkeypatch.setattr(membership, "View", lambda *facts: facts)
    monkeypatch.setattr(
        membership,
        "clear_facts",
        lambda view, layout, classes: {"size": float(view[3]) if view[0] < 7 else 1.0},
    )
    config = AuditConfig(model="linear", threads=1)
    found = LabelDistributionAudit(config, MethodSettings(), digits, [party_named("aggregator")])
    found.played, found.attacked = 7, 20
    (cell,) = found.cells("any", lambda name, number: told.append(number))
    assert told == list(range(7 + 5))
    assert (cell.status, cell.tries) == ("attacked", 5)
