"""DictPFL's rounds: who sends what, what is held back, and what nobody learns."""

from __future__ import annotations

import math
import zlib

import numpy as np
import pytest

from methods.method_conformance import (
    BUFFERS,
    CLIENTS,
    PARAMETERS,
    SteppedRun,
    Variant,
    contraction,
    initial_model,
)
from shieldfl.errors import ParameterError, PolicyError, RangeError, WireFormatError
from shieldfl.masks import Mask
from shieldfl.methods.consistent_pruning import PruningHistory
from shieldfl.methods.dict_pfl_settings import DictPflSettings
from shieldfl.methods.pruning_message import HISTORY, history_part, read_history
from shieldfl.methods.registry import Federation, make_method
from shieldfl.methods.selective_shield_settings import SelectiveShieldSettings
from shieldfl.methods.settings import MethodSettings
from shieldfl.roles.message import Message

SECRET = bytes(range(32))
EVERYTHING = Mask.full(PARAMETERS)


def run_of(train=contraction, **changes) -> SteppedRun:
    settings = DictPflSettings(**{"patience_rounds": 1, **changes})
    return SteppedRun(
        Variant("dict-pfl", SelectiveShieldSettings(), "dict-pfl", MethodSettings(dict_pfl=settings)),
        train=train,
    )


def held_by(client) -> np.ndarray:
    return client._held.values_at(EVERYTHING).astype(np.float64)


def active_of(run: SteppedRun, client: int = 0) -> np.ndarray:
    return run.clients[client].disclosure.encrypted.to_bool()


def test_what_was_sent_and_what_is_held_back_is_all_that_was_trained():
    trained = np.zeros((CLIENTS, PARAMETERS))

    def train(round_number, client, start):
        update = contraction(round_number, client, start)
        trained[client] += (update.parameters - start.parameters).astype(np.float64)
        return update

    run = run_of(train, first_probability=0.3)
    sent = np.zeros(PARAMETERS)
    plan = [([0, 1, 2, 3], []), ([0, 1, 2], []), ([0, 1, 2, 3], [1]), ([1, 3], []), ([0, 1, 2, 3], [0, 2])]
    for participants, dropping in plan:
        before = run.parameters.astype(np.float64)
        run.run_round(participants, dropping)
        moved = run.parameters - before
        assert not moved[~active_of(run, participants[-1])].any()
        sent += moved * (len(participants) - len(dropping))
    held = sum(held_by(client) for client in run.clients)
    # In each of five rounds: a quantisation for each client, and a rounding of a float32 below 4, counted K times.
    tolerance = 5 * CLIENTS * (2.0**-21 + float(np.spacing(np.float32(2.0))))
    np.testing.assert_allclose(sent + held, trained.sum(axis=0), rtol=0.0, atol=tolerance)
    assert np.abs(held).max() > 100 * tolerance


def test_all_roles_find_the_same_positions_after_dropouts_and_absences():
    run = run_of(first_probability=0.3)
    counts = []
    for participants, dropping in (([0, 1, 2, 3], [3]), ([0, 1], []), ([0, 1, 3], [0]), ([1, 2, 3], [])):
        run.run_round(participants, dropping)
        senders = sorted(set(participants) - set(dropping))
        for client in senders:
            np.testing.assert_array_equal(active_of(run, client), active_of(run, senders[0]))
        counts.append(active_of(run, senders[0]).sum())
        assert run.answers["count"].number("count") == counts[-1] + BUFFERS
    assert counts[0] == PARAMETERS > max(counts[1:])
    assert min(counts) > 0


def test_a_round_that_is_given_up_prunes_nothing_and_loses_nothing():
    run = run_of()
    run.run_round()
    history = run.model[HISTORY]
    with pytest.raises(PolicyError, match="min_clients"):
        run.run_round(dropping=[1, 2, 3])
    assert run.model[HISTORY] == history
    kept = [held_by(client) for client in run.clients]
    run.run_round()
    active = active_of(run)
    for before, client in zip(kept, run.clients, strict=True):
        assert before[active].any()
        assert not held_by(client)[active].any()


@pytest.mark.parametrize(("probability", "returns"), [(0.0, False), (1.0, True)])
def test_pruned_positions_come_back_with_all_that_was_held_back(probability, returns):
    run = run_of(first_probability=probability, ranked="sent")
    run.run_round()
    first = active_of(run)
    run.run_round()
    assert first.all()
    assert active_of(run).all() == returns
    pruned = ~active_of(run)
    run.run_round()
    assert not (active_of(run) & pruned).any()
    held = np.abs(held_by(run.clients[0]))
    assert (held[~active_of(run)] > 0.0).all()
    assert not held[active_of(run)].any()


def test_a_position_that_others_overtook_is_reactivated_and_moves_again():
    def train(round_number, client, start):
        update = contraction(round_number, client, start)
        # Quiet at first, then by far the largest.
        update.parameters[7] = start.parameters[7] + np.float32(1e-6 if round_number == 1 else 0.5)
        return update

    run = run_of(train, first_probability=0.5)
    before = run.parameters[7]
    was_held = 0.0
    for _ in range(12):
        run.run_round()
        if active_of(run)[7]:
            if was_held:
                break
        else:
            was_held = held_by(run.clients[0])[7]
    moved = float(run.parameters[7] - before)
    assert was_held == pytest.approx(0.5 * round(was_held / 0.5), abs=1e-6)
    assert was_held > 0.4
    assert moved == pytest.approx(was_held + 0.5 + 1e-6, abs=1e-5)


def test_an_aggregator_sees_ciphertexts_and_their_number_alone():
    run = run_of()
    for _ in range(3):
        run.run_round()
        assert set(run.answers["count"]) == {"count"}
        assert {name for message in run.sent["count"].values() for name in message} == {"round"}
        for message in run.sent["update"].values():
            assert set(message) == {"round", "weight", "ciphertexts"}
            # A batch names its positions: all of so many, whichever of the model's they are.
            count = run.answers["count"].number("count")
            batch = run.batch(message["ciphertexts"])
            assert batch.is_of(Mask.full(count))
        for message in (*run.sent["update"].values(), *run.closed.values(), *run.answers.values()):
            assert SECRET not in message.to_bytes()
    assert 0 < active_of(run).sum() < PARAMETERS


def test_secrets_are_drawn_where_none_is_given_and_never_reported():
    federation = Federation(
        clients=3, rounds=1, min_clients=2, sample_rate=1.0, server_learning_rate=1.0, threads=1
    )
    methods = [make_method("dict-pfl", initial_model(), federation, MethodSettings()) for _ in range(2)]
    assert methods[0]._secret != methods[1]._secret
    assert "secret" not in repr(methods[0].settings())
    assert "shared_secret" not in repr(Federation(3, 1, 2, 1.0, 1.0, 1, shared_secret=SECRET))
    assert methods[0].settings()["rank"] == 4


def test_a_client_refuses_a_count_that_is_not_its_own():
    run = run_of()
    client = run.clients[0]
    start = client.begin_round(1, 2, run.model)
    client.finish_training(contraction(1, 0, start))
    for answer in (None, Message({"count": Message.from_number(PARAMETERS)})):
        with pytest.raises(PolicyError, match="newest model"):
            client.step("update", answer)
    right = Message({"count": Message.from_number(PARAMETERS + BUFFERS)})
    assert client.step("update", right) == client.step("update", right)


def test_an_authority_refuses_a_total_of_fewer_values():
    run = run_of()
    run.run_round()
    aggregator, count = run.method.aggregator(), 40
    aggregator.begin_phase("update", 2, Message({"count": Message.from_number(count)}))
    for client in (0, 1):
        batch = run.encryptor.encrypt(np.zeros(count, dtype=np.float32), Mask.full(count), round=2)
        parts = {"round": Message.from_number(2), "weight": Message.from_number(1)}
        aggregator.receive("update", client, Message({**parts, "ciphertexts": batch.to_bytes()}))
    with pytest.raises(WireFormatError):
        run.authority.answer("update", aggregator.close("update"))
    history = run.model[HISTORY]
    run.run_round()
    assert run.model[HISTORY] != history


def test_an_aggregator_must_know_the_count_first():
    run = run_of()
    with pytest.raises(ParameterError, match="phase before"):
        run.aggregator.begin_phase("update", 1, None)


def test_unknown_phases_are_refused():
    run = run_of()
    start = run.clients[0].begin_round(1, 1, run.model)
    run.clients[0].finish_training(contraction(1, 0, start))
    numbered = Message({"round": Message.from_number(1)})
    run.aggregator.begin_phase("vote", 1, None)
    for act in (
        lambda: run.clients[0].step("vote", None),
        lambda: run.aggregator.receive("vote", 0, numbered),
        lambda: run.authority.answer("vote", numbered),
    ):
        with pytest.raises(ParameterError, match="no phase 'vote'"):
            act()


def test_an_update_that_does_not_fit_is_forgotten_and_its_client_goes_on():
    wild = {"on": True}

    def train(round_number, client, start):
        update = contraction(round_number, client, start)
        if wild["on"]:
            update.parameters[:] += np.float32(9.0)
        return update

    run = run_of(train)
    with pytest.raises(RangeError):
        run.run_round()
    assert not held_by(run.clients[0]).any()
    wild["on"] = False
    client = run.clients[0]
    start = client.begin_round(2, 2, run.model)
    client.finish_training(train(2, 0, start))
    assert client.step("update", Message({"count": Message.from_number(PARAMETERS + BUFFERS)}))


def test_values_whose_answer_never_came_are_sent_again():
    run = run_of()
    for client in run.clients:
        client.end_round = lambda answer: None
    run.run_round()
    assert all(held_by(client).all() for client in run.clients)
    # An answer of another round than the upload's clears nothing.
    del run.clients[0].end_round
    run.clients[0].end_round(run.method.initial_model())
    assert held_by(run.clients[0]).all()
    run.clients[0].end_round(run.model)
    assert not held_by(run.clients[0]).any()


def test_a_history_is_read_back_and_damage_is_refused():
    settings = DictPflSettings()
    history = PruningHistory(PARAMETERS, SECRET, settings)
    part = history_part(history)
    assert len(part) < len(history.to_bytes()) / 10
    read = read_history(Message({HISTORY: part}), PARAMETERS, SECRET, settings)
    assert read.to_bytes() == history.to_bytes()
    bomb = zlib.compress(bytes(10_000_000))
    for damaged in (b"", part[:-1], part + b"\0", b"\0" + part, bomb):
        with pytest.raises(WireFormatError):
            read_history(Message({HISTORY: damaged}), PARAMETERS, SECRET, settings)
    with pytest.raises(ParameterError, match="other settings"):
        read_history(Message({HISTORY: part}), PARAMETERS, SECRET, DictPflSettings(decay=0.5))


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        ({"rank": 0}, "rank"),
        ({"rank": 2.5}, "rank"),
        ({"train_fully": (3.0,)}, "train_fully"),
        ({"small_percent": 100.0}, "small_percent"),
        ({"small_percent": -1.0}, "small_percent"),
        ({"small_percent": math.nan}, "small_percent"),
        ({"patience_rounds": 0}, "patience_rounds"),
        ({"decay": 0.0}, "decay"),
        ({"first_probability": 1.5}, "first_probability"),
        ({"ranked": "some"}, "ranked"),
        ({"value_bits": -1}, "value_bits"),
        ({"fraction_bits": 1.5}, "fraction_bits"),
    ],
    ids=str,
)
def test_bad_settings(bad, named):
    with pytest.raises((ParameterError, TypeError), match=named):
        DictPflSettings(**bad)
