"""SelectiveShield's rounds against its twin in NumPy, its zones, and what its key authority refuses."""

from __future__ import annotations

import numpy as np
import pytest

from methods.method_conformance import SteppedRun, contraction
from methods.selective_shield.selective_shield_twin import shield, twin_merge, twin_round, zeros
from shieldfl.authority.message import Message
from shieldfl.encryption import kahe
from shieldfl.errors import ParameterError, PolicyError, WireFormatError
from shieldfl.learning.local_update import LocalUpdate, StartingPoint
from shieldfl.masks import Mask
from shieldfl.rounds.plan import GlobalModel
from shieldfl.testing.conformance import float_spacing


class RecordedTraining:
    """Random updates and scores; remembers what each client started from and came to."""

    def __init__(self, seed: int, scale: float = 0.5) -> None:
        self._generator = np.random.default_rng(seed)
        self._scale = scale
        self.starts: dict[int, np.ndarray] = {}
        self.trained: dict[int, np.ndarray] = {}
        self.scores: dict[int, np.ndarray] = {}

    def __call__(self, round_number: int, client: int, start: StartingPoint) -> LocalUpdate:
        size = start.parameters.size
        self.starts[client] = start.parameters.copy()
        step = self._generator.normal(0.0, self._scale, size).astype(np.float32)
        self.trained[client] = start.parameters + step
        self.scores[client] = self._generator.random(size, dtype=np.float32) ** 2
        return start.trained(self.trained[client].copy(), start.buffers, self.scores[client])

    def updates(self, clients, model: np.ndarray) -> dict[int, np.ndarray]:
        """Differences to the global model (eq. 11), not to the merged one that training started from."""
        return {client: self.trained[client] - model for client in clients}

    def masks(self, clients, threshold: float) -> dict[int, np.ndarray]:
        return {client: self.scores[client] > np.float32(threshold) for client in clients}


def model_of(size: int, buffers: int = 0, seed: int = 9) -> GlobalModel:
    generator = np.random.default_rng(seed)
    return GlobalModel(
        generator.normal(0.0, 1.0, size).astype(np.float32), generator.random(buffers, dtype=np.float32)
    )


def zone_of(run: SteppedRun) -> np.ndarray:
    return Mask.from_bytes(run.answers["negotiate"]["encrypted zone"]).to_bool()


@pytest.mark.parametrize(("clients", "size"), [(2, 65), (7, 1000)])
@pytest.mark.parametrize("divisor", ["contributors", "participants"])
@pytest.mark.parametrize("negotiation", ["clear", "encrypted"])
def test_rounds_equal_the_twin(clients, size, divisor, negotiation):
    consensus, threshold = {2: (1.0, 0.3), 7: (0.3, 0.4)}[clients]
    training = RecordedTraining(clients * size)
    run = SteppedRun(
        shield(threshold=threshold, consensus=consensus, divisor=divisor, negotiation=negotiation),
        clients=clients,
        initial=model_of(size),
        train=training,
    )
    personalised = {client: np.zeros(size, dtype=bool) for client in range(clients)}
    everybody = list(range(clients))
    for participants in (everybody, everybody[: max(2, clients - 1)], everybody):
        model = run.parameters.copy()
        before = model.astype(np.float64)
        known = {client: run.clients[client].merged_model(run.model).parameters for client in participants}
        run.run_round(participants)
        twin = twin_round(
            before,
            training.updates(participants, model),
            training.masks(participants, threshold),
            uploaders=participants,
            consensus=consensus,
            divisor=divisor,
        )
        assert 0 < twin.encrypted.sum() < size
        np.testing.assert_array_equal(zone_of(run), twin.encrypted)
        spacing = float_spacing(run.parameters, twin.parameters)
        assert np.all(np.abs(run.parameters - twin.parameters) <= spacing)
        for client in participants:
            # What was said to be the client's own model is what it went on training from.
            np.testing.assert_array_equal(training.starts[client], known[client])
            personalised[client] = twin.personalised[client]
        for client in everybody:
            # Clients that stayed away keep the positions of the last round that they were in.
            merged = run.clients[client].merged_model(run.model).parameters
            own = training.trained[client]
            np.testing.assert_array_equal(merged, twin_merge(own, run.parameters, personalised[client]))


def test_each_client_chooses_by_its_own_threshold_strictly_above_it():
    thresholds = (0.25, 0.5, -1.0, 1.0)
    scores = np.array([0.0, 0.25, 0.26, 0.5, 0.51, 1.0], dtype=np.float32)

    def train(round_number, client, start):
        return start.trained(start.parameters + np.float32(0.1), start.buffers, scores)

    run = SteppedRun(shield(threshold=thresholds, consensus=0.75), initial=model_of(6), train=train)
    run.run_round()
    sent = [
        Mask.from_bytes(run.sent["negotiate"][client]["mask"]).to_indices().tolist() for client in range(4)
    ]
    assert sent == [[2, 3, 4, 5], [4, 5], [0, 1, 2, 3, 4, 5], []]
    assert zone_of(run).nonzero()[0].tolist() == [4, 5]


def test_a_threshold_for_each_client_must_be_given():
    with pytest.raises(ParameterError, match="2 thresholds"):
        SteppedRun(shield(threshold=(0.1, 0.2)), clients=3)


def test_a_negative_threshold_needs_no_scores_but_any_other_does():
    def unscored(round_number, client, start):
        return start.trained(start.parameters, start.buffers, None)

    SteppedRun(shield(threshold=-1.0), train=unscored).run_round()
    with pytest.raises(ParameterError, match="sensitivity scores"):
        SteppedRun(shield(threshold=0.0), train=unscored).run_round()


def choosing(choices: dict[int, list[int]], size: int, step: float = 0.25):
    """Train by a constant step; client i chooses exactly ``choices[i]``."""

    def train(round_number, client, start):
        scores = np.zeros(size, dtype=np.float32)
        scores[choices[client]] = 1.0
        return start.trained(start.parameters + np.float32(step), start.buffers, scores)

    return train


@pytest.mark.parametrize("negotiation", ["clear", "encrypted"])
@pytest.mark.parametrize("divisor", ["contributors", "participants"])
def test_a_position_that_nobody_sends_keeps_its_value(divisor, negotiation):
    # Clients 0 and 1 keep position 3 for themselves; client 2, the only one to send it, drops out.
    choices = {0: [3, 5], 1: [3, 5], 2: [5]}
    run = SteppedRun(
        shield(threshold=0.5, consensus=1.0, divisor=divisor, negotiation=negotiation),
        clients=3,
        initial=zeros(8),
        train=choosing(choices, 8),
    )
    run.run_round(dropping=[2])
    assert run.parameters[3] == 0.0
    np.testing.assert_array_equal(np.delete(run.parameters, 3), np.float32(0.25))
    assert run.clients[0].merged_model(run.model).parameters[3] == np.float32(0.25)
    assert run.clients[2].merged_model(run.model).parameters[3] == 0.0


def test_an_update_of_a_round_without_negotiation_is_not_opened():
    run = SteppedRun(shield(threshold=0.5, negotiation="encrypted"))
    run.run_round()
    run.begin_round(2)
    key = run.aggregator._round_keys.key(2, "update")
    other = kahe.Aggregator(key)
    zone = Mask.from_bool(zone_of(run))
    for client in range(3):
        values = np.zeros(333, dtype=np.float32)
        other.add(run.encryptor("update", client).encrypt(values, zone, round=2))
    message = Message({**run.closed["update"], "total": other.total().to_bytes()})
    with pytest.raises(PolicyError, match="round 2 has not been negotiated"):
        run.authority.answer("update", message)


@pytest.mark.parametrize("negotiation", ["clear", "encrypted"])
def test_who_has_not_negotiated_cannot_upload(negotiation):
    run = SteppedRun(shield(threshold=0.5, negotiation=negotiation))
    refused = []

    def late(phase, aggregator, messages):
        if phase == "update":
            with pytest.raises(PolicyError, match="without having negotiated"):
                aggregator.receive(phase, 3, messages[0])
            refused.append(phase)

    run.run_round([0, 1, 2], intrude=late)
    assert refused == ["update"]


def test_values_for_encrypted_positions_are_refused():
    run = SteppedRun(shield(threshold=0.5, negotiation="encrypted"))

    def overlap(phase, aggregator, messages):
        if phase == "update":
            everywhere = {"positions": Mask.full(333).to_bytes(), "values": bytes(4 * 333)}
            with pytest.raises(WireFormatError, match="encrypted positions"):
                aggregator.receive(phase, 0, Message({**messages[0], **everywhere}))

    run.run_round(intrude=overlap)


def test_a_client_cannot_upload_before_it_knows_the_zone():
    run = SteppedRun(shield(threshold=0.5))
    client = run.clients[0]
    client.finish_training(contraction(1, 0, client.begin_round(1, 2, run.begin_round(1, [0, 1]))))
    with pytest.raises(ParameterError, match="answer to the negotiation"):
        client.step("update", None)
    with pytest.raises(ParameterError, match="answer to the negotiation"):
        run.aggregator.begin_phase("update", 1, None)
