"""What of DictPFL counts, and counts once: updates that are lost, held back, sent or trained again, or do not fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from methods.dict_pfl.dict_pfl_run import SECRET, ask_count, held_by, run_of
from methods.method_conformance import contraction
from methods.variants import CLIENTS
from shieldfl.errors import ParameterError, PolicyError, RangeError
from shieldfl.masks import Mask
from shieldfl.methods.dict_pfl.method import DictPflSettings, HeldBack, PruningHistory

RULE = DictPflSettings(small_percent=50.0, patience_rounds=1, first_probability=0.5)


def copy_of(history: PruningHistory, size: int) -> PruningHistory:
    return PruningHistory.from_bytes(history.to_bytes(), size, SECRET, RULE)


@given(st.integers(1, 6), st.integers(0, 2**32 - 1), st.data())
@settings(max_examples=120)
def test_whatever_gets_lost_every_update_counts_once(size: int, seed: int, data: st.DataObject) -> None:
    """Whole numbers, whose sums are exact: what arrived and what is held are all updates together."""
    random = np.random.default_rng(seed)
    history, older = PruningHistory(size, SECRET, RULE), PruningHistory(size, SECRET, RULE)
    held = [HeldBack(size) for _ in range(CLIENTS)]
    trained, arrived = np.zeros((2, CLIENTS, size), dtype=np.float32)
    for round_number in range(1, data.draw(st.integers(2, 8), label="rounds")):
        active = history.active_mask(round_number)
        uploads = {}
        for client, mine in enumerate(held):
            if data.draw(st.booleans(), label="stays away"):
                continue
            if data.draw(st.booleans(), label="has an older model"):
                mine.begin_round(round_number, older)
                update = random.integers(-99, 100, size).astype(np.float32)
                mine.train(update)
                if data.draw(st.booleans(), label="and leaves"):
                    trained[client] += update
                    continue
            mine.begin_round(round_number, history)
            for _ in range(data.draw(st.integers(1, 2), label="trainings")):
                update = random.integers(-99, 100, size).astype(np.float32)
                mine.train(update)
            trained[client] += update
            if data.draw(st.booleans(), label="begins again"):
                mine.begin_round(round_number, history)
            if data.draw(st.booleans(), label="uploads"):
                uploads[client] = mine.values_at(active)
                mine.mark_uploaded(active)
        if uploads and data.draw(st.booleans(), label="is opened"):
            older = copy_of(history, size)
            history.observe(round_number, np.sum(list(uploads.values()), axis=0))
            for client, values in uploads.items():
                active.scatter_add(values, arrived[client])
                if data.draw(st.booleans(), label="hears the answer"):
                    held[client].settle(history)
    for client, mine in enumerate(held):
        mine.begin_round(99, history)
        np.testing.assert_array_equal(arrived[client] + mine.values_at(Mask.full(size)), trained[client])


def test_held_values_refuse_bad_updates_and_stay_as_they_were() -> None:
    held = HeldBack(3)
    history = PruningHistory(3, SECRET)
    held.begin_round(1, history)
    held.train(np.array([1.0, 2.0, 3e38], dtype=np.float32))
    held.begin_round(2, history)
    for update, error in (
        (np.array([0.0, np.nan, 0.0], dtype=np.float32), RangeError),
        (np.array([1.0, 1.0, 3e38], dtype=np.float32), RangeError),
    ):
        with pytest.raises(error):
            held.train(update)
    np.testing.assert_array_equal(held.values_at(Mask.full(3)), np.array([1.0, 2.0, 3e38], dtype=np.float32))
    with pytest.raises(ParameterError):
        held.values_at(Mask.full(4))


def once(round_number, client, start):
    """Train in the first round alone, every position by 0.1."""
    moved = start.parameters + np.float32(0.1 if round_number == 1 else 0.0)
    return replace(contraction(round_number, client, start), parameters=moved)


def test_an_upload_of_a_round_that_was_given_up_is_sent_again_also_after_rounds_away():
    run = run_of(once, small_percent=0.0)
    with pytest.raises(PolicyError, match="min_clients"):
        run.run_round(dropping=[1, 2, 3])
    run.run_round([1, 2])
    np.testing.assert_allclose(run.parameters, run.initial.parameters + 0.1, rtol=0.0, atol=1e-5)
    run.run_round([0, 3])
    np.testing.assert_allclose(run.parameters, run.initial.parameters + 0.2, rtol=0.0, atol=1e-5)
    assert not any(held_by(client, run.model).any() for client in run.clients)


def test_a_total_that_comes_after_a_later_round_has_begun_is_not_opened(monkeypatch):
    run = run_of(once, small_percent=0.0)
    late = []

    def hold_up(phase, message):
        if phase == "update":
            late.append(message)
            raise PolicyError("held up")
        return type(run.authority).answer(run.authority, phase, message)

    with monkeypatch.context() as held_up:
        held_up.setattr(run.authority, "answer", hold_up)
        with pytest.raises(PolicyError, match="held up"):
            run.run_round()
    run.begin_round(2)
    with pytest.raises(PolicyError, match="round 1 does not run"):
        run.authority.answer("update", late[0])
    run.run_round()
    np.testing.assert_allclose(run.parameters, run.initial.parameters + 0.1, rtol=0.0, atol=1e-5)


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
    with pytest.raises(ParameterError, match="before training has finished"):
        run.clients[0].step("update", ask_count(run, 1))
    wild["on"] = False
    client = run.clients[0]
    start = client.begin_round(2, CLIENTS, run.begin_round(2))
    client.finish_training(train(2, 0, start))
    assert client.step("update", ask_count(run, 2))
