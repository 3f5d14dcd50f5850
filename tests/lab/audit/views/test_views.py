"""A party's view has every byte that the party got, and none that it did not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lab.audit.updates import trained
from shieldfl.authority.message import Message
from shieldfl.authority.round_keys import RoundKeys
from shieldfl.encryption import ckks, paillier
from shieldfl.errors import ParameterError
from shieldfl.lab.audit.audit_config import AuditConfig
from shieldfl.lab.audit.views import view as module
from shieldfl.lab.audit.views.view import (
    PARTIES,
    KnownChange,
    Party,
    RecordedFederation,
    Trial,
    View,
    kept_pair,
    party_named,
    why_sums_are_unread,
)
from shieldfl.lab.simulation.data import Dataset
from shieldfl.masks import Mask
from shieldfl.methods.registry import MethodSettings
from shieldfl.rounds.reports import Disclosure

UP, DOWN = "canary up {}", "canary down {}"


class Unmarked:
    """A role that is handed messages without their canaries: roles refuse parts that they do not know."""

    def __init__(self, role: Any) -> None:
        self._role = role

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._role, name)
        if not callable(found):
            return found
        return lambda *arguments: found(*(_without_canary(one) for one in arguments))


def _without_canary(argument: Any) -> Any:
    if not isinstance(argument, Message):
        return argument
    return Message({name: part for name, part in argument.items() if name != "canary"})


class Planted(RecordedFederation):
    """Every client adds a canary of its own to what it sends, and is sent one with what a round begins with."""

    def _recorded(self, role: Any, name: str, client: int | None = None) -> Any:
        recorded = super()._recorded(Unmarked(role), name, client)
        if client is None:
            return recorded
        make, begin = recorded.step, recorded.begin_round

        def step(phase: str, answer: Message | None) -> Message:
            return Message({**make(phase, answer), "canary": UP.format(client).encode()})

        def begin_round(round_number: int, participants: int, model: Message) -> Any:
            return begin(
                round_number, participants, Message({**model, "canary": DOWN.format(client).encode()})
            )

        recorded.step, recorded.begin_round = step, begin_round
        return recorded


@pytest.fixture(scope="module")
def planted(digits: Dataset, small: AuditConfig) -> Callable[[str], Trial]:
    made: dict[str, Trial] = {}

    def trial(name: str) -> Trial:
        if name not in made:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(module, "RecordedFederation", Planted)
                made[name] = Trial(name, MethodSettings(), small, digits, 0)
        return made[name]

    return trial


def canaries(trial: Trial, party: Party, victim: int) -> set[str]:
    view = View(trial.record, trial.method, party, victim)
    found = b"".join(one.data for one in view.deliveries)
    known = [text.format(index) for text in (UP, DOWN) for index in range(trial.config.clients)]
    return {text for text in known if text.encode() in found}


@pytest.mark.parametrize("method", ["fedavg", "full-he", "selective-shield", "mask-crypt", "dict-pfl"])
def test_a_view_has_the_canaries_of_its_party_and_no_others(planted, method):
    trial = planted(method)
    every = range(trial.config.clients)
    up, down = {UP.format(index) for index in every}, {DOWN.format(index) for index in every}
    seen = {party.name: canaries(trial, party, victim=0) for party in PARTIES}
    assert seen == {
        "aggregator": up,
        "client": {DOWN.format(1)},
        "other-clients": down - {DOWN.format(0)},
        "authority": set(),
        "aggregator-and-client": up | {DOWN.format(1)},
        "network": up | down,
        "outsider": set(),
    }
    assert canaries(trial, party_named("client"), victim=1) == {DOWN.format(0)}


def test_everything_that_a_role_takes_is_delivered_to_it_from_enrolment_on(trial_of):
    record = trial_of("full-he").record
    taken = {(one.receiver, one.step) for one in record.deliveries}
    assert {("key authority", "enrol"), ("client 3", "enrolled"), ("aggregator", "receive")} <= taken
    assert {one.round for one in record.deliveries if one.step == "enrol"} == {0}
    received = [one for one in record.deliveries if one.step == "receive"]
    assert [one.details for one in received if one.round == 2] == [("update", index) for index in range(4)]


def changes(trial: Trial, party: str, victim: int = 0):
    return list(View(trial.record, trial.method, party_named(party), victim).changes())


def test_plain_averaging_shows_the_aggregator_each_update_as_it_is(trial_of):
    trial = trial_of("fedavg")
    messages = [one for one in changes(trial, "aggregator", victim=2) if one.source == "message"]
    assert [one.round for one in messages] == [1, 2]
    for one in messages:
        assert one.clients == (2,)
        assert one.known.all()
        own = trial.record.own_updates[2, one.round].parameters
        assert np.array_equal(one.change, own - one.start)


def test_full_encryption_shows_the_aggregator_and_the_authority_nothing(trial_of):
    for party in ("aggregator", "authority", "network"):
        assert changes(trial_of("full-he"), party) == []


def test_all_but_one_client_know_that_ones_update_from_the_sum(trial_of):
    trial = trial_of("full-he")
    first, second = changes(trial, "other-clients", victim=3)
    assert (first.round, first.clients, first.source) == (1, (3,), "sum")
    own = trial.record.own_updates[3, 1].parameters - first.start
    # Four sums of values that are rounded to steps of 2^-20, and models in float32.
    assert np.abs(first.change - own).max() < 4 * 2**-20 + 1e-6
    assert np.abs(own).max() > 1e-3
    assert second.round == 2
    several = changes(trial, "client")[0]
    assert several.clients == (0, 2, 3)
    assert np.abs(several.change - mean_change(trial, several)).max() < 4 * 2**-20 + 1e-6


def test_encrypted_positions_are_not_known(trial_of):
    trial = trial_of("mask-crypt")
    (one, *_) = changes(trial, "aggregator")
    encrypted = trial.record.disclosures[0, 1].encrypted
    assert np.array_equal(one.known, ~encrypted.to_bool())
    assert 0 < encrypted.count < encrypted.size
    assert not one.change[~one.known].any()


def test_messages_with_numbers_whose_places_are_not_stated_have_no_view(trial_of):
    trial = trial_of("fedavg")
    size = trial.method.plan.parameters
    few = Mask.from_indices(np.arange(5), size)
    nothing = Mask.empty(size)
    record = SimpleNamespace(
        deliveries=trial.record.deliveries,
        disclosures={key: Disclosure(~few, nothing, few) for key in trial.record.disclosures},
        models=trial.record.models,
        participants=trial.record.participants,
    )
    with pytest.raises(ParameterError, match="650 numbers, and it states the places of 5"):
        list(View(record, trial.method, party_named("aggregator"), 0).changes())


def test_batches_from_outside_are_what_clients_train_on(digits, small):
    batches = [np.arange(4 * index, 4 * index + 4) for index in range(small.clients)]
    trial = Trial("fedavg", MethodSettings(), small, digits, 0, batches=batches)
    assert trial.truth((1, 2))[0].equal(digits.train_features[4:12])
    known = next(trial.changes(party_named("aggregator"), 1))
    observed = trial.as_update(known)
    again = trained(observed.model, digits.train_features[4:8], digits.train_labels[4:8], observed.training)
    np.testing.assert_allclose(known.change, again.change, atol=1e-6)


def test_synthetic_data_are_made_once_for_all_federations_on_the_same_samples(digits, small, monkeypatch):
    made: list[int] = []

    def counted(features, labels, classes, *, samples, **options):
        made.append(samples)
        return SimpleNamespace(features=features[:samples], labels=labels[:samples])

    monkeypatch.setattr(module, "fit_synthetic_data", counted)
    module._made_synthetic.cache_clear()
    for method in ("alt-fl-si-dp", "alt-fl-si-he"):
        for number in range(2):
            assert Trial(method, MethodSettings(), small, digits, number).record.disclosures[0, 1].synthetic
    assert made == [16]  # as many as the clients have samples
    module._made_synthetic.cache_clear()


ROUNDING = 4 * 2**-20 + 1e-6


def sums(trial: Trial, party: str, victim: int = 0) -> list[KnownChange]:
    changes = View(trial.record, trial.method, party_named(party), victim).changes()
    return [one for one in changes if one.source == "sum"]


def mean_change(trial: Trial, one: KnownChange) -> np.ndarray:
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
    assert np.abs(one.change - mean_change(trial, one))[one.known].max() < ROUNDING


def test_a_client_takes_its_own_noise_out_of_a_sum(trial_of):
    trial = trial_of("dp-fedavg")
    aggregator = View(trial.record, trial.method, party_named("aggregator"), 0)
    message = next(aggregator.changes())
    assert message.source == "message"
    (one, *_) = sums(trial, "other-clients")
    assert np.abs(one.change - message.change).max() < 1e-5
    assert np.abs(one.change - mean_change(trial, one)).max() > 0.1


def test_clients_take_their_own_shares_of_the_noise_out_of_a_sum(trial_of):
    """What is left is one client's clipped update with its own share: others' shares and clipping are gone from it."""
    trial = trial_of("ddp-fedavg")
    (one, *_) = sums(trial, "other-clients")
    share = trial.record.own_shares[0, one.round]
    assert np.abs(one.change - share).max() < ROUNDING * 4
    assert np.abs(share - mean_change(trial, one)).max() > 0.1
    deviation = float(one.deviation[0])
    assert 0.9 * deviation < (share - mean_change(trial, one)).std() < 1.1 * deviation
    (several, *_) = sums(trial, "client")
    theirs = np.mean([trial.record.own_shares[index, 1] for index in several.clients], axis=0)
    assert np.abs(several.change - theirs).max() < ROUNDING * 4


@pytest.mark.filterwarnings("ignore:an update is more than twice")
@pytest.mark.parametrize("one_in", [1, 2])
@pytest.mark.parametrize("bits", [8, 2, 1])
def test_clients_take_their_own_parts_out_of_a_compressed_sum(digits, bits, one_in):
    """All but one know exactly what was summed of that one, and how far rounding took it from the update."""
    changes = {"compressed_bits": bits, "compressed_one_in": one_in, "compressed_norm": 0.3}
    settings = MethodSettings().changed("full-he", changes)
    config = AuditConfig(model="linear", samples=4, rounds=4, threads=1, trials=1, workers=1)
    trial = Trial("full-he", settings, config, digits, 0)
    one = sums(trial, "other-clients")[-1]
    assert one.round == 4
    assert one.known.all()
    assert np.abs(one.change - trial.record.own_shares[0, one.round]).max() < 1e-5
    off = one.change - mean_change(trial, one)
    assert one_in > 1 or 0.5 < np.sqrt(np.mean(off**2)) / one.deviation[0] < 2.0
    assert bool(why_sums_are_unread(trial.method)) == (one_in > 1)


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
    assert np.abs(one.change - mean_change(clustered, one)).max() < ROUNDING


def test_the_update_that_is_worked_out_of_a_sum_is_one_step_from_all_samples(trial_of):
    trial = trial_of("full-he")
    known = next(trial.changes(party_named("client"), 0))
    observed = trial.as_update(known)
    assert known.clients == (0, 2, 3)
    assert (observed.samples, observed.steps) == (12, 1)
    assert np.allclose(observed.gradient, -known.change / 0.1)


def first(trial: Trial, party: str, source: str) -> KnownChange:
    return next(one for one in trial.changes(party_named(party), 0) if one.source == source)


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
    added = known.change - mean_change(trial, known)
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


def test_the_shares_of_a_round_s_noise_are_as_large_as_its_clipping_norm_is(digits, small):
    adaptive = {"noise_multiplier": 3.0, "clip_norm": 8.0, "clipping": "adaptive", "clip_learning_rate": 2.0}
    settings = MethodSettings().changed("ddp-fedavg", adaptive | {"clip_count_noise": 1e-3})
    trial = Trial("ddp-fedavg", settings, replace(small, rounds=2), digits, 0)
    sums = [one for one in trial.changes(party_named("client"), 0) if one.source == "sum"]
    # All of a first round whose norm is large are within it, and half are to be.
    before, after = (known.deviation.max() for known in sums)
    assert after / before == pytest.approx(np.exp(-1.0), rel=0.01)
    there = np.std((sums[1].change - mean_change(trial, sums[1])) / after)
    assert there == pytest.approx(1.0, abs=0.12)


ASKED = {"sum_noise_multiplier": 3.0, "sum_clip_norm": 2.0}
OWN = {"noise_multiplier": 3.0, "clip_norm": 2.0}


@pytest.mark.parametrize(
    ("method", "asked"),
    [
        ("ddp-fedavg", OWN | {"mechanism": "skellam"}),
        ("ddp-fedavg", OWN | {"mechanism": "discrete-gaussian"}),
        ("full-he", ASKED),
        ("dict-pfl", ASKED),
        ("alt-fl-pi", ASKED | {"noise_multiplier": 10.0}),
    ],
)
def test_shares_are_stated_where_settings_ask_for_them_and_in_rounds_that_encrypt(
    digits, small, method, asked
):
    """What the client has drawn itself it has taken out."""
    trial = Trial(method, MethodSettings().changed(method, asked), replace(small, rounds=2), digits, 0)
    sums = [one for one in trial.changes(party_named("client"), 0) if one.source == "sum"]
    # Every second round of PI encrypts, the others have the noise of training.
    shared = [one for one in sums if method != "alt-fl-pi" or one.round == 2]
    assert len(shared) == (1 if method == "alt-fl-pi" else 2)
    for known in shared:
        stated = 3.0 * 2.0 / np.sqrt(trial.method.noise.honest_clients * len(known.clients))
        sent = known.deviation > 0.0
        np.testing.assert_allclose(known.deviation[sent], stated, rtol=0.02)
        assert sent.all() or method == "dict-pfl"
        there = np.std((known.change - mean_change(trial, known))[sent] / stated)
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


BOUNDS = {"threads": 1, "weight_bounds": (1.0, 1.0)}


def test_a_pair_that_takes_seconds_is_made_once(digits: Dataset, small: AuditConfig, monkeypatch):
    made: list[str] = []

    class Counted(module.KeyPairAuthority):
        def __init__(self, parameters, *others, **options):
            made.append(type(parameters).__module__)
            super().__init__(parameters, *others, **options)

    monkeypatch.setattr(module, "KeyPairAuthority", Counted)
    settings = MethodSettings().changed("batch-crypt", {"key_bits": 2048})
    config = replace(small, rounds=1)
    trials = [Trial("batch-crypt", settings, config, digits, number) for number in (0, 1)]
    assert len(made) <= 1  # none, where another test has made it
    # Both sums are opened, though of one round of one key: each is of a federation of its own.
    assert all(("client 0", 2) in one.record.models for one in trials)


def test_pairs_that_last_are_one_by_parameters_and_policy_and_others_are_new():
    lasting, passing = paillier.Parameters(key_bits=2048, max_clients=4), ckks.Parameters(max_clients=4)
    keys = [
        kept_pair(parameters, clients, **BOUNDS).public_key.to_bytes()
        for parameters, clients in ((lasting, 2), (lasting, 2), (lasting, 3), (passing, 2), (passing, 2))
    ]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 4


def test_nobody_else_has_a_pair_twice():
    parameters = paillier.Parameters(key_bits=2048, max_clients=4)
    first, second = (
        RoundKeys({"update": parameters}, 2).begin_round(1)["round key update"] for _ in range(2)
    )
    assert first != second
