"""A party's view has every byte that the party got, and none that it did not."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from audit.small_updates import trained
from shieldfl.audit.audit_config import AuditConfig
from shieldfl.audit.views import trial as trial_module
from shieldfl.audit.views.recorded_federation import RecordedFederation
from shieldfl.audit.views.trial import Trial
from shieldfl.audit.views.view import PARTIES, Party, View, party_named
from shieldfl.errors import ParameterError
from shieldfl.masks import Mask
from shieldfl.methods.protocol.disclosure import Disclosure
from shieldfl.methods.settings import MethodSettings
from shieldfl.roles.message import Message
from shieldfl.simulation.data import Dataset

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
                patch.setattr(trial_module, "RecordedFederation", Planted)
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


def test_the_first_clients_that_are_not_the_victim_are_of_the_party(planted):
    assert canaries(planted("fedavg"), party_named("client"), victim=1) == {DOWN.format(0)}


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


def test_one_client_knows_the_sum_of_the_others(trial_of):
    trial = trial_of("full-he")
    one = changes(trial, "client", victim=0)[0]
    assert one.clients == (0, 2, 3)
    own = [trial.record.own_updates[index, 1].parameters - one.start for index in one.clients]
    assert np.abs(one.change - np.mean(own, axis=0)).max() < 4 * 2**-20 + 1e-6


def test_a_threshold_that_nothing_passes_shows_the_aggregator_what_plain_averaging_does(digits, small):
    settings = MethodSettings().changed("selective-shield", {"threshold": 1.0, "noise_multiplier": 0.0})
    trial = Trial("selective-shield", settings, small, digits, 0)
    (one, *_) = changes(trial, "aggregator-and-client")
    own = trial.record.own_updates[0, 1].parameters
    assert one.known.all()
    assert np.array_equal(one.change, own - one.start)


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


def test_unknown_parties_and_clients_that_there_are_not(trial_of):
    with pytest.raises(ParameterError, match="no party 'nobody'"):
        party_named("nobody")
    trial = trial_of("fedavg")
    with pytest.raises(ParameterError, match="there are no 9 clients beside"):
        View(trial.record, trial.method, Party("many", "too many", colluding_clients=9), 0)


def test_batches_from_outside_are_what_clients_train_on(digits, small):
    batches = [np.arange(4 * index, 4 * index + 4) for index in range(small.clients)]
    trial = Trial("fedavg", MethodSettings(), small, digits, 0, batches=batches)
    assert trial.truth((1, 2)).features.equal(digits.train_features[4:12])
    known, observed = next(trial.observed(party_named("aggregator"), 1))
    again = trained(observed.model, digits.train_features[4:8], digits.train_labels[4:8], observed.training)
    np.testing.assert_allclose(known.change, again.change, atol=1e-6)


def test_synthetic_data_are_made_once_for_all_federations_on_the_same_samples(digits, small, monkeypatch):
    made: list[int] = []

    def counted(features, labels, classes, *, samples, **options):
        made.append(samples)
        return SimpleNamespace(features=features[:samples], labels=labels[:samples])

    monkeypatch.setattr(trial_module, "fit_synthetic_data", counted)
    trial_module._made_synthetic.cache_clear()
    for method in ("alt-fl-si-dp", "alt-fl-si-he"):
        for number in range(2):
            assert Trial(method, MethodSettings(), small, digits, number).record.disclosures[0, 1].synthetic
    assert made == [16]  # as many as the clients have samples
    trial_module._made_synthetic.cache_clear()
