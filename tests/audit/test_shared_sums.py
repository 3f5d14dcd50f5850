"""What parties work out of sums: what others sent, less their own, whatever a method leaves out of its means."""

from __future__ import annotations

import numpy as np
import pytest

from shieldfl.audit.audit_config import AuditConfig
from shieldfl.audit.views.trial import Trial
from shieldfl.audit.views.view import KnownChange, View, party_named
from shieldfl.methods.settings import MethodSettings
from shieldfl.simulation.data import Dataset

ROUNDING = 4 * 2**-20 + 1e-6


def sums(trial: Trial, party: str, victim: int = 0) -> list[KnownChange]:
    changes = View(trial.record, trial.method, party_named(party), victim).changes()
    return [one for one in changes if one.source == "sum"]


def trained(trial: Trial, one: KnownChange) -> np.ndarray:
    own = [trial.record.own_updates[index, one.round].parameters - one.start for index in one.clients]
    return np.mean(own, axis=0)


@pytest.mark.parametrize("divisor", ["contributors", "participants"])
def test_a_sum_over_those_who_sent_a_position_gives_others_the_last_one_s_value(digits, small, divisor):
    settings = MethodSettings().changed("selective-shield", {"divisor": divisor})
    trial = Trial("selective-shield", settings, small, digits, 0)
    one = sums(trial, "other-clients")[0]
    kept = trial.record.disclosures[0, 1].kept.to_bool()
    assert one.clients == (0,)
    assert 0 < kept.sum() < kept.size
    assert np.array_equal(one.known, ~kept)
    assert np.abs(one.change - trained(trial, one))[one.known].max() < ROUNDING


def test_a_client_takes_its_own_noise_out_of_a_sum(trial_of):
    trial = trial_of("dp-fedavg")
    aggregator = View(trial.record, trial.method, party_named("aggregator"), 0)
    message = next(aggregator.changes())
    assert message.source == "message"
    (one, *_) = sums(trial, "other-clients")
    assert np.abs(one.change - message.change).max() < 1e-5
    assert np.abs(one.change - trained(trial, one)).max() > 0.1


def test_clients_take_their_own_shares_of_the_noise_out_of_a_sum(trial_of):
    """What is left is one client's clipped update with its own share: others' shares and clipping are gone from it."""
    trial = trial_of("ddp-fedavg")
    (one, *_) = sums(trial, "other-clients")
    share = trial.record.own_shares[0, one.round]
    assert np.abs(one.change - share).max() < ROUNDING * 4
    assert np.abs(share - trained(trial, one)).max() > 0.1
    deviation = float(one.deviation[0])
    assert 0.9 * deviation < (share - trained(trial, one)).std() < 1.1 * deviation
    (several, *_) = sums(trial, "client")
    theirs = np.mean([trial.record.own_shares[index, 1] for index in several.clients], axis=0)
    assert np.abs(several.change - theirs).max() < ROUNDING * 4


@pytest.fixture(scope="module")
def clustered(digits: Dataset, small: AuditConfig) -> Trial:
    """Six clients of two kinds, whose updates are added up for each kind."""
    labels = digits.train_labels.numpy()
    kinds = [np.flatnonzero(np.isin(labels, kind)) for kind in ([0, 1], [6, 7])]
    batches = [kinds[client // 3][4 * client : 4 * client + 4] for client in range(6)]
    settings = MethodSettings().changed("sense-crypt", {"encryption": "kahe"})
    config = AuditConfig(model="linear", samples=4, rounds=1, clients=6, min_clients=2, threads=1)
    return Trial("sense-crypt", settings, config, digits, 0, batches=batches)


@pytest.mark.parametrize(
    ("party", "victim", "clients"),
    [
        ("authority", 0, (0, 1, 2)),
        ("authority", 5, (3, 4, 5)),
        ("network", 4, (3, 4, 5)),
        ("client", 1, (1, 2)),
        ("other-clients", 3, (3,)),
    ],
)
def test_sums_of_clusters_are_of_the_victim_s_alone(clustered, party, victim, clients):
    (one,) = sums(clustered, party, victim)
    assert one.clients == clients
    assert np.abs(one.change - trained(clustered, one)).max() < ROUNDING


def test_the_update_that_is_worked_out_of_a_sum_is_one_step_from_all_samples(trial_of):
    (known, observed), *_ = trial_of("full-he").observed(party_named("client"), 0)
    assert known.clients == (0, 2, 3)
    assert (observed.samples, observed.steps) == (12, 1)
    assert np.allclose(observed.gradient, -known.change / 0.1)
