"""What a client holds back: every update counts once, whatever gets lost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shieldfl.errors import ArrayTypeError, ParameterError, RangeError
from shieldfl.masks import Mask
from shieldfl.methods.dict_pfl.client import HeldBack
from shieldfl.methods.dict_pfl.consistent_pruning import PruningHistory
from shieldfl.methods.dict_pfl.settings import PruningSettings

SECRET = bytes(range(32))
RULE = PruningSettings(small_percent=50.0, patience_rounds=1, first_probability=0.5)
CLIENTS = 3


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
        (np.ones(2, dtype=np.float32), ParameterError),
        (np.ones(3), ArrayTypeError),
        (np.array([0.0, np.nan, 0.0], dtype=np.float32), RangeError),
        (np.array([1.0, 1.0, 3e38], dtype=np.float32), RangeError),
    ):
        with pytest.raises(error):
            held.train(update)
    np.testing.assert_array_equal(held.values_at(Mask.full(3)), np.array([1.0, 2.0, 3e38], dtype=np.float32))
    with pytest.raises(ParameterError):
        held.values_at(Mask.full(4))


def test_all_that_was_held_can_be_forgotten() -> None:
    held, everything = HeldBack(2), Mask.full(2)
    for round_number in (1, 2):
        held.begin_round(round_number, PruningHistory(2, SECRET))
        held.train(np.ones(2, dtype=np.float32))
        held.mark_uploaded(Mask.from_indices([0], 2))
    held.begin_round(3, PruningHistory(2, SECRET))
    held.train(np.ones(2, dtype=np.float32))
    assert held.values_at(everything).tolist() == [3.0, 3.0]
    held.forget()
    assert not held.values_at(everything).any()
