"""Messages that are lost, late, repeated, altered or of another round: no wrong model, no second frame."""

from __future__ import annotations

import random

import numpy as np
import pytest
from flwr.app import Message
from flwr.serverapp.strategy import FedAvg

from encryption.wire_twin import reseal
from flower.digits_app import VARIANTS, DigitsRun
from flower.loopback_grid import FIRST_NODE, LoopbackGrid
from flower.vector_app import ALL, VectorRun, loses, number_of
from privacy.seeded_draws import noise_from_seeds
from shieldfl.authority.message import Message as RoleMessage
from shieldfl.authority.total_opener import GrantedKeys
from shieldfl.flower.mod import ClientSession
from shieldfl.flower.records import ASK, MESSAGE, message_in, packed
from shieldfl.flower.strategy import ShieldStrategy


@pytest.mark.every_run("settings0-train-after", "settings1-train-before", "settings0-model")
@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize(("kind", "number"), [("train", 2), ("model", 1)], ids=["train", "model"])
@pytest.mark.parametrize("settings", [{}, {"opener": "aggregator"}, {"opener": "authority"}])
def test_a_client_whose_message_or_reply_is_lost_comes_back_with_the_same_model(
    where, kind, number, settings
):
    run = VectorRun(**settings)
    setattr(run.grid, where, loses(2, kind, number))
    run.start()
    run.check({1: ALL, 2: [0, 1, 3] if kind == "train" else ALL, 3: ALL})


def test_a_message_that_comes_twice_is_answered_twice_alike_and_trained_once():
    run = VectorRun()
    begun, replies = [], []

    def twice(node, message):
        if message.content[ASK]["kind"] == "train" and not begun:
            begun.append(node)
            run.grid._delivered(_copy(message, node))

    def keep(node, reply):
        if number_of(node) == 0 and reply.content[ASK]["kind"] == "train":
            replies.append(message_in(reply.content).to_bytes())

    run.grid.before, run.grid.after = twice, keep
    run.start()
    assert len(replies) == 4  # of three rounds, of the first one twice
    assert replies[0] == replies[1]
    assert run.trained.count((0, 1)) == 1
    run.check({1: ALL, 2: ALL, 3: ALL})


def _copy(message, node):
    copied = Message(
        message.content.copy(), node, message.metadata.message_type, group_id=message.metadata.group_id
    )
    copied.metadata.__dict__["_message_id"] = "again"
    return copied


@pytest.mark.every_run("before-10]", "after--1")
@pytest.mark.parametrize("position", [10, 1_000, -1])
@pytest.mark.parametrize("where", ["before", "after"])
def test_an_altered_message_costs_a_client_the_round_and_nothing_else(where, position):
    run, altered = VectorRun(), []

    def alter(message):
        array = message.content[MESSAGE]["message"]
        data = bytearray(array.data)
        data[min(position, len(data) - 1)] ^= 1
        array.data = bytes(data)
        altered.append(position)

    run.altered(alter, "train", "round 2", replies=where == "after")
    assert altered == [position]
    run.check({1: ALL, 2: [0, 2, 3], 3: ALL})


def test_a_round_with_too_few_is_given_up_with_reasons_and_the_next_one_trains_anew(caplog):
    run = VectorRun(min_clients=3)

    def hook(node, message):
        return message.metadata.group_id != "round 2" or number_of(node) < 2

    run.grid.before = hook
    run.start()
    run.check({1: ALL, 3: ALL})
    reasons = [one.getMessage() for one in caplog.records if "was given up" in one.getMessage()]
    assert reasons == [
        "shieldfl: round 2 was given up: client 2: it has not answered in time; client 3: it has not answered in time"
    ]


def test_an_update_that_was_sent_in_a_round_that_was_given_up_is_not_sent_again():
    run = VectorRun(min_clients=3, rounds=3)
    run.train = lambda client, number, shape: np.full(
        shape, 0.01 * (client + 1) * (number != 3) + 0.01, np.float32
    )
    run.grid.after = lambda node, reply: reply.metadata.group_id != "round 1" or number_of(node) < 2
    run.start()
    # In round 2 all train what they have trained in round 1, which came to nothing: they leave it. Round 3 is new.
    assert len(run.trained) == 12
    assert set(run.strategy.session.clients.failures) == set()
    run.check({3: ALL})


def test_nodes_that_come_later_are_left_out_and_one_that_goes_is_missed(caplog):
    run = VectorRun(nodes=5)
    run.grid.hidden = {FIRST_NODE + 4}

    def hook(node, message):
        if message.metadata.group_id == "evaluation 1":
            run.grid.hidden = {FIRST_NODE}

    run.grid.before = hook
    run.start()
    assert any("no clients of this run" in one.getMessage() for one in caplog.records)
    del run.evaluated[0]  # it was there in the first round alone
    run.check({1: ALL, 2: [1, 2, 3], 3: [1, 2, 3]})
    assert sorted(run.trained) == [(0, 1)] + [
        (client, number) for client in (1, 2, 3) for number in (1, 2, 3)
    ]


METHODS = {
    "mask-crypt": {"settings.encryption": "kahe"},
    "dict-pfl": {},
    "selective-shield, clear": {"settings.noise_multiplier": 0.0},
    "selective-shield, encrypted": {"settings.noise_multiplier": 0.0, "settings.negotiation": "encrypted"},
}


def phases_of(run):
    """Return the phases that a round was seen to have."""
    found = []

    def hook(node, message):
        if message.metadata.group_id == "round 2":
            found.append(message.content[ASK]["phase"])

    run.grid.before = hook
    run.start()
    return list(dict.fromkeys(found))


def made(label):
    run = VectorRun(method=label.partition(",")[0])
    run.config |= {f"shieldfl.{name}": value for name, value in METHODS[label].items()}
    return run


IN_EVERY_RUN = {("mask-crypt", "after"), ("dict-pfl", "before")}


@pytest.mark.parametrize(
    ("label", "where"),
    [
        pytest.param(label, where, marks=() if (label, where) in IN_EVERY_RUN else pytest.mark.slow)
        for label in METHODS
        for where in ("before", "after")
    ],
)
def test_a_client_that_leaves_in_any_phase_comes_back(label, where):
    phases = phases_of(made(label))
    assert len(phases) > 1
    for lost in phases:
        run, hits = made(label), []

        def hook(node, message, lost=lost, hits=hits):
            asked = message.content.get(ASK, {}) if message.has_content() else {}
            if number_of(node) != 1 or message.metadata.group_id != "round 2":
                return None
            # A reply does not say of which phase it is: they come in order.
            hits.append(asked.get("phase", lost if len(hits) == phases.index(lost) else ""))
            return False if hits[-1] == lost else None

        setattr(run.grid, where, hook)
        run.start()
        assert lost in hits
        assert 1 in run.strategy.session.clients.trained
        assert run.strategy.session.clients.failures == {}
        whole = [
            np.concatenate([one.ravel() for one in arrays.values()]) for arrays in run.evaluated.values()
        ]
        assert len(whole) == len(ALL)
        assert all(np.isfinite(one).all() for one in whole)
        if not label.startswith("selective"):  # which has personalised positions
            assert all(np.array_equal(one, whole[0]) for one in whole)


@pytest.mark.every_run("votes-selective-shield, encrypted", "ciphertexts-mask-crypt")
@pytest.mark.parametrize(
    ("part", "label"),
    [
        # One method alone sends votes as a frame: what is altered of the others is nothing.
        pytest.param(
            part, label, marks=pytest.mark.slow if part == "votes" and "encrypted" not in label else ()
        )
        for part in ("ciphertexts", "votes")
        for label in METHODS
    ],
)
def test_a_frame_that_is_altered_in_any_phase_leaves_all_clients_with_one_model(label, part):
    models, altered = {}, []

    def alter(reply):
        message = message_in(reply.content)
        if part in message:
            frame = bytearray(message[part])
            frame[len(frame) // 2] ^= 1
            reply.content[MESSAGE] = packed(RoleMessage({**message, part: reseal(bytes(frame))}))
            altered.append(part)

    for is_altered in (False, True):
        run = made(label)
        run.altered(alter, group="round 2", clients=[3] if is_altered else [], replies=True)
        assert run.strategy.session.clients.failures == {}
        models[is_altered] = [run.evaluated[client]["bias"] for client in (0, 1, 2)]
        if not label.startswith("selective"):  # which has personalised positions
            assert all(np.array_equal(one, models[is_altered][0]) for one in models[is_altered])
    assert np.array_equal(models[True], models[False]) == (not altered)


@pytest.mark.parametrize("opener", [None, "aggregator"])
def test_a_client_that_was_not_in_a_round_evaluates_its_model(opener, monkeypatch):
    run = DigitsRun("full-he", clients=5, rounds=4, opener=opener)
    evaluated, model_of = {}, ClientSession.model

    def kept(session):
        record = model_of(session)
        evaluated.setdefault(session.index, []).append(session.layout.model_of(record).parameters)
        return record

    monkeypatch.setattr(ClientSession, "model", kept)
    random.seed(1)
    strategy = ShieldStrategy(FedAvg(fraction_train=0.4, fraction_evaluate=1.0), run.run_config())
    strategy.start(LoopbackGrid(run.app, run.clients), run.arrays(), num_rounds=run.rounds, timeout=10)
    assert sorted(evaluated) == [0, 1, 2, 3, 4]
    for models in evaluated.values():
        for number, model in enumerate(models[: run.rounds]):
            np.testing.assert_array_equal(model, evaluated[0][number])
    rounds = [run.initial.parameters, *evaluated[0][: run.rounds]]
    assert all((one != other).any() for one, other in zip(rounds[1:], rounds, strict=False))


@pytest.mark.every_run("[2]")
@pytest.mark.parametrize("lost", [1, 2, 3])
def test_ends_of_rounds_that_come_twice_change_nothing(lost, caplog):
    """A client evaluates, its reply is lost, and it gets again all that it is not known to have, and more."""
    run = DigitsRun("full-he", clients=5, rounds=4)
    grid = LoopbackGrid(run.app, run.clients)
    grid.after = lambda node, reply: reply.metadata.group_id != f"evaluation {lost}"
    random.seed(1)
    strategy = ShieldStrategy(FedAvg(fraction_train=0.4, fraction_evaluate=1.0), run.run_config())
    result = strategy.start(grid, run.arrays(), num_rounds=run.rounds, timeout=0.3)
    assert set(result.evaluate_metrics_clientapp) == {1, 2, 3, 4} - {lost}
    left = [one.getMessage() for one in caplog.records if " left " in one.getMessage()]
    assert len(left) == 5
    assert all(f"left evaluation {lost}: it has not answered in time" in one for one in left)


def evaluated(run, monkeypatch):
    """Return a list that fills with the float vectors of all models that clients evaluate."""
    models = []
    model_of = ClientSession.model

    def kept(session):
        record = model_of(session)
        model = session.layout.model_of(record)
        models.append(np.concatenate((model.parameters, model.buffers)))
        return record

    monkeypatch.setattr(ClientSession, "model", kept)
    return models


SLOW = (
    "alt-fl-pi",
    "batch-crypt",
    "ddp-fedavg",
    "dict-pfl, noised sums",
    "fedml-he",
    "full-he, authority",
    "full-he, ckks",
    "full-he, noised sums, authority",
    "mask-crypt",
    "sense-crypt",
    "top-2, noised sums",
)


@pytest.mark.every_run(
    "batch norm",
    "selective-shield, encrypted votes",
    "dict-pfl",
    "full-he, aggregator",
    "ddp-fedavg, adaptive",
)
@pytest.mark.parametrize(
    "label", [pytest.param(label, marks=[pytest.mark.slow] if label in SLOW else []) for label in VARIANTS]
)
def test_a_run_is_the_one_without_flower(label, monkeypatch):
    method, settings, more = VARIANTS[label]
    run = DigitsRun(method, settings=settings, **more)
    grid = LoopbackGrid(run.app, run.clients)
    models = evaluated(run, monkeypatch)
    secrets = []
    derive = GrantedKeys.shared_secret
    monkeypatch.setattr(
        GrantedKeys, "shared_secret", lambda keys: secrets.append(derive(keys)) or secrets[-1]
    )
    strategy = ShieldStrategy(FedAvg(min_available_nodes=3), run.run_config())
    with noise_from_seeds():
        result = strategy.start(grid, run.arrays(), num_rounds=run.rounds, timeout=10)
        expected = run.embedded(secrets[0] if secrets else None)
    assert set(result.evaluate_metrics_clientapp) == {1, 2}
    for number, of_clients in enumerate(expected):
        got = models[number * run.clients : (number + 1) * run.clients]
        for one, own in zip(got, of_clients, strict=True):
            np.testing.assert_array_equal(one, own)
