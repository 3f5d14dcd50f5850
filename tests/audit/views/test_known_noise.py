"""What a view says of the noise on an update's values, beside the noise that is there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shieldfl.audit.views.trial import Trial
from shieldfl.audit.views.view import KnownChange, party_named
from shieldfl.methods.settings import MethodSettings


def first(trial: Trial, party: str, source: str) -> KnownChange:
    return next(one for one in trial.changes(party_named(party), 0) if one.source == source)


def trained(trial: Trial, known: KnownChange) -> np.ndarray:
    own = [trial.record.own_updates[index, known.round].parameters - known.start for index in known.clients]
    return np.mean(own, axis=0)


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("dp-fedavg", {"noise_multiplier": 3.0, "clip_norm": 2.0}),
        ("selective-shield", {"noise_multiplier": 3.0, "clip_norm": 2.0, "threshold": 0.5}),
    ],
)
@pytest.mark.parametrize(("party", "source"), [("aggregator-and-client", "message"), ("client", "sum")])
def test_stated_noise_is_what_clients_add_where_they_add_it(digits, small, method, settings, party, source):
    trial = Trial(method, MethodSettings().changed(method, settings), small, digits, 0)
    known = first(trial, party, source)
    added = known.change - trained(trial, known)
    noised = trial.record.disclosures[0, 1].noised.to_bool()
    stated = known.deviation
    assert np.std(added[noised] / stated[noised]) == pytest.approx(1.0, abs=0.12)
    if source == "message":
        times = 2.0 if method == "selective-shield" else 1.0  # the root of K
        np.testing.assert_allclose(stated[noised], 6.0 * times)
        assert not stated[~noised].any()
    elif method == "selective-shield":
        encrypted = trial.record.disclosures[0, 1].encrypted.to_bool()
        assert encrypted.any()
        assert (stated[encrypted] < 1e-5).all()


@pytest.mark.parametrize("method", ["dp-sgd", "alt-fl-mp", "alt-fl-pi"])
def test_the_noise_of_private_training_is_stated_for_messages_and_encrypted_sums(digits, small, method):
    strong = {"noise_multiplier": 10.0, "max_grad_norm": 4.0}
    trial = Trial(method, MethodSettings().changed(method, strong), small, digits, 0)
    alone = 0.1 * 10.0 * 4.0 / small.samples  # the noise of one step on the mean gradient
    for party, clients in (("client", 3), ("other-clients", 1)):
        known = first(trial, party, "sum")
        np.testing.assert_allclose(known.deviation, alone / np.sqrt(clients), rtol=1e-4)
        assert np.std(known.change / known.deviation) == pytest.approx(1.0, abs=0.12)


def test_values_without_noise_are_exact_in_messages_and_rounded_in_encrypted_sums(trial_of):
    assert not first(trial_of("mask-crypt"), "aggregator", "message").deviation.any()
    rounded = first(trial_of("full-he"), "client", "sum").deviation
    np.testing.assert_allclose(rounded, 2**-20 / np.sqrt(12) * 2 / 3, rtol=1e-5)


@pytest.mark.parametrize("mechanism", ["skellam", "discrete-gaussian"])
def test_the_shares_of_a_sum_s_noise_are_stated_for_the_sum(digits, small, mechanism):
    settings = {"noise_multiplier": 3.0, "clip_norm": 2.0, "mechanism": mechanism}
    trial = Trial("ddp-fedavg", MethodSettings().changed("ddp-fedavg", settings), small, digits, 0)
    charged = trial.method.noise.honest_clients
    known = first(trial, "client", "sum")
    stated = 3.0 * 2.0 / np.sqrt(charged * len(known.clients))
    np.testing.assert_allclose(known.deviation, stated, rtol=0.02)
    # What the client has drawn itself it has taken out.
    there = np.std((known.change - trained(trial, known)) / known.deviation)
    assert there == pytest.approx(1.0, abs=0.12)


def test_the_shares_of_a_round_s_noise_are_as_large_as_its_clipping_norm_is(digits, small):
    adaptive = {"noise_multiplier": 3.0, "clip_norm": 8.0, "clipping": "adaptive", "clip_learning_rate": 2.0}
    settings = MethodSettings().changed("ddp-fedavg", adaptive | {"clip_count_noise": 1e-3})
    trial = Trial("ddp-fedavg", settings, replace(small, rounds=2), digits, 0)
    sums = [one for one in trial.changes(party_named("client"), 0) if one.source == "sum"]
    # All of a first round whose norm is large are within it, and half are to be.
    before, after = (known.deviation.max() for known in sums)
    assert after / before == pytest.approx(np.exp(-1.0), rel=0.01)
    there = np.std((sums[1].change - trained(trial, sums[1])) / after)
    assert there == pytest.approx(1.0, abs=0.12)


@pytest.mark.parametrize("method", ["full-he", "dict-pfl", "alt-fl-pi"])
def test_shares_are_stated_where_settings_ask_for_them_and_in_rounds_that_encrypt(digits, small, method):
    strong = {"noise_multiplier": 10.0} if method == "alt-fl-pi" else {}
    asked = {"sum_noise_multiplier": 3.0, "sum_clip_norm": 2.0}
    trial = Trial(
        method, MethodSettings().changed(method, asked | strong), replace(small, rounds=2), digits, 0
    )
    sums = [one for one in trial.changes(party_named("client"), 0) if one.source == "sum"]
    # Every second round of PI encrypts, the others have the noise of training.
    shared = [one for one in sums if method != "alt-fl-pi" or one.round == 2]
    assert len(shared) == (1 if method == "alt-fl-pi" else 2)
    for known in shared:
        stated = 3.0 * 2.0 / np.sqrt(trial.method.noise.honest_clients * len(known.clients))
        sent = known.deviation > 0.0
        np.testing.assert_allclose(known.deviation[sent], stated, rtol=0.02)
        assert sent.all() or method == "dict-pfl"
        there = np.std((known.change - trained(trial, known))[sent] / stated)
        assert there == pytest.approx(1.0, abs=0.12)
    if method == "alt-fl-pi":
        alone = 0.1 * 10.0 * 4.7 / small.samples
        np.testing.assert_allclose(sums[0].deviation, alone / np.sqrt(len(sums[0].clients)), rtol=1e-4)


@pytest.mark.parametrize("method", ["dp-sgd", "alt-fl-pi", "dp-fedavg", "ddp-fedavg"])
def test_noise_by_default_is_alike_on_all_positions_and_nearly_all_of_an_update(trial_of, method):
    """So that searches for images have nothing to weigh, nor a distance to stop at."""
    known = first(trial_of(method), "other-clients", "sum")
    assert known.deviation.min() == known.deviation.max() > 0
    share = (
        np.square(known.deviation, dtype=np.float64).sum() / np.square(known.change, dtype=np.float64).sum()
    )
    assert 0.8 < share < 1.2
