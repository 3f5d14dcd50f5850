"""Clients that leave in the middle of a round, in every method: the round goes on, or the model stays."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from lab.simulation.small_runs import run_methods
from methods.method_conformance import initial_model
from methods.small_plan import small_plan
from methods.variants import every_variant, labelled
from shieldfl.errors import RangeError
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.lab.simulation.federation import EmbeddedFederation
from shieldfl.learning.local_update import LocalUpdate, PrivateSteps, StageClock, StartingPoint
from shieldfl.methods.registry import MethodSettings, make_method

CLIENTS = 4


class Trainer:
    """Takes a step of its own; in one round it may give what no role accepts."""

    def __init__(self, client: int, broken_in: int = 0) -> None:
        self._client = client
        self._broken_in = broken_in
        self._rounds = 0
        self.clock = StageClock()

    def train(self, start: StartingPoint, seed: int) -> tuple[LocalUpdate, float]:
        self._rounds += 1
        generator = np.random.default_rng([self._client, self._rounds])
        moved = [
            values + generator.normal(0.0, 0.01, values.size).astype(np.float32)
            for values in (start.parameters, start.buffers)
        ]
        if self._rounds == self._broken_in:
            moved[0][3] = np.nan
        scores = generator.random(start.parameters.size, dtype=np.float32)
        steps = None if start.noise is None else PrivateSteps(steps=2, sample_rate=0.5)
        return start.trained(moved[0], moved[1], scores, steps), float(self._client)


def federation_of(
    variant,
    broken: dict[int, int] | None = None,
    trainers: dict[int, Trainer] | None = None,
    clients: int = CLIENTS,
    seed: int = 0,
) -> EmbeddedFederation:
    plan = small_plan(clients=clients, parameters=variant.size, layer_offsets=variant.layer_offsets)
    method = make_method(variant.method, variant.all_settings(), plan)
    known = {client: Trainer(client, (broken or {}).get(client, 0)) for client in range(clients)}
    known |= trainers or {}
    return EmbeddedFederation(method, initial_model(variant.size), list(known.values()), seed=seed, threads=1)


def model_of(federation: EmbeddedFederation) -> bytes:
    return federation.method.message_for(0, federation.model)["parameters"]


@every_variant
def test_the_aggregator_is_told_no_model(variant):
    """Figures for ε hold against an aggregator that sees none, and DictPFL's history travels with it."""
    federation = federation_of(variant)
    aggregator, told = federation.aggregator, []
    begin_round, begin_phase = aggregator.begin_round, aggregator.begin_phase

    def begin_and_look(number, keys):
        told.append(keys)
        begin_round(number, keys)

    def collect_and_look(phase, number, answer):
        told.append(answer or {})
        begin_phase(phase, number, answer)

    aggregator.begin_round, aggregator.begin_phase = begin_and_look, collect_and_look
    for number in (1, 2):
        federation.run_round(number, range(CLIENTS), 2)
    # Clients that enrol have keys of their own: none comes along with a round.
    has_keys = federation.authority is not None and not federation.setup.enrolment_key
    assert any(name.startswith("round key ") for part in told for name in part) == has_keys
    assert not any(name.startswith(("parameters", "buffers", "history")) for part in told for name in part)


@every_variant
def test_clients_may_leave_before_any_phase_and_a_round_of_too_few_is_given_up(variant):
    federation = federation_of(variant)

    def phases(number):
        return [phase.name for phase in federation.method.phases_of(federation.model, number)]

    for number, phase in enumerate(phases(1), start=1):
        before = model_of(federation)
        traffic = federation.run_round(number, range(CLIENTS), 2, {1: phase})
        assert (traffic.participants, traffic.finished) == (CLIENTS, [0, 2, 3])
        assert len(traffic.losses) == CLIENTS
        assert model_of(federation) != before
    assert not any("given up" in note for note in federation.account.notes)
    for number, phase in enumerate(phases(5), start=5):
        before = federation.model
        traffic = federation.run_round(number, range(CLIENTS), 2, dict.fromkeys((0, 2, 3), phase))
        assert traffic.finished == []
        assert federation.model == before
        assert federation.account.notes[-1] == f"round {number} was given up: 1 of 4 clients were left"
    before = model_of(federation)
    assert federation.run_round(12, range(CLIENTS), 2).finished == list(range(CLIENTS))
    assert model_of(federation) != before


@every_variant
def test_a_client_whose_training_is_refused_leaves_and_says_why(variant):
    federation = federation_of(variant, {2: 1})
    traffic = federation.run_round(1, range(CLIENTS), 2)
    assert traffic.finished == [0, 1, 3]
    assert any("client 2 left round 1: training gave NaN" in note for note in federation.account.notes)
    assert np.isfinite(np.frombuffer(model_of(federation), dtype=np.float32)).all()
    assert len(federation.run_round(2, range(CLIENTS), 2).finished) == CLIENTS


@pytest.mark.parametrize("label", ["ddp-fedavg", "dp-fedavg", "dp-sgd"])
def test_that_an_update_was_refused_is_readable_without_noise(label):
    """A first model can be one under which a single sample makes training overflow: then a refusal tells of it."""
    variant = labelled(label).with_others(noise_multiplier=4.0)
    whole, refused = federation_of(variant), federation_of(variant, {2: 1})
    for federation in (whole, refused):
        federation.run_round(1, range(CLIENTS), 2)
    assert math.isfinite(whole.account.spent().epsilon)
    assert math.isinf(refused.account.spent().epsilon)
    assert "refusal" in refused.account.spent().reason


@every_variant
def test_too_many_refused_trainings_end_the_run(variant):
    federation = federation_of(variant, {0: 1, 1: 1, 3: 1})
    with pytest.raises(RangeError, match="learning rate"):
        federation.run_round(1, range(CLIENTS), 2)


@pytest.mark.parametrize("label", ["sense-crypt/ckks", "sense-crypt/dense", "selective-shield/clear"])
def test_a_client_whose_values_no_sum_has_room_for_leaves(label):
    """Encrypted by itself they are refused by the client, in the clear beside others' ciphertexts by the aggregator."""

    class Wild(Trainer):
        def train(self, start, seed):
            update, loss = super().train(start, seed)
            return replace(update, parameters=update.parameters + np.float32(9.0)), loss

    variant = labelled(label)
    federation = federation_of(variant, trainers={3: Wild(3)})
    traffic = federation.run_round(1, range(CLIENTS), 2)
    assert traffic.finished == [0, 1, 2]
    assert any("client 3 left round 1" in note for note in federation.account.notes)


def test_a_refusal_and_dropouts_give_a_round_up_where_either_alone_would_not():
    variant = labelled("sense-crypt/ckks")
    federation = federation_of(variant, {0: 1})
    assert federation.run_round(1, range(CLIENTS), 2, {1: "mask", 2: "mask"}).finished == []
    assert federation.run_round(2, range(CLIENTS), 2).finished == list(range(CLIENTS))


def test_in_every_method_the_same_clients_leave():
    drawn = []
    for label in ("fedavg", "sense-crypt/ckks", "selective-shield/clear"):
        variant = labelled(label)
        federation = federation_of(variant)
        drawn.append(
            [sorted(federation.draw_leavers(range(CLIENTS), 0.4, number)) for number in range(1, 21)]
        )
    assert drawn[0] == drawn[1] == drawn[2]
    leavers = [client for round_leavers in drawn[0] for client in round_leavers]
    assert 0 < len(leavers) < 20 * CLIENTS


@pytest.mark.parametrize("method", ["fedavg", "sense-crypt", "selective-shield"])
def test_dropouts_are_drawn_and_counted(method):
    config = RunConfig(
        clients=6, rounds=4, local_epochs=1, model="linear", threads=1, dropout=0.4, weighting="samples"
    )
    settings = MethodSettings().changed("sense-crypt", {"encryption": "ckks", "information_bits": 0.0})
    rounds = run_methods(config, [method], settings).methods[0].rounds
    dropped = [record.dropped for record in rounds]
    assert 0 < sum(dropped) < 24
    assert [record.participants for record in rounds] == [
        6 - count if 6 - count >= 2 else 0 for count in dropped
    ]
    for mine in rounds:
        assert sum(mine.zone_shares.values()) == pytest.approx(1.0)
        if method == "sense-crypt" and mine.participants:
            # Whoever left has sent nothing: what was sent was encrypted, all of it.
            assert mine.zone_shares["encrypted"] == 1.0
        if not mine.participants:
            assert mine.zone_shares["personalised"] == 1.0


def test_clients_in_no_cluster_do_not_count_in_the_accuracy():
    config = RunConfig(
        clients=4, rounds=2, local_epochs=1, model="linear", threads=1, sample_rate=0.6, seed=3
    )
    settings = MethodSettings().changed("sense-crypt", {"encryption": "ckks", "least_silhouette": 1.0})
    plain, clustered = run_methods(config, ["fedavg", "sense-crypt"], settings).methods
    assert plain.rounds[0].participants < 4
    assert clustered.rounds[0].accuracy == pytest.approx(plain.rounds[0].accuracy, abs=0.02)
