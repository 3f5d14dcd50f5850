"""PrME: the rule of a slow readable twin, the same for all who know the history, and nothing is ever lost."""

from __future__ import annotations

import hashlib
import hmac
import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shieldfl.authority.message import Message
from shieldfl.errors import ParameterError, RangeError, WireFormatError
from shieldfl.masks import Mask
from shieldfl.methods.dict_pfl.method import DictPflSettings, PruningHistory

SECRET = bytes(range(32))


class Twin:
    """The same rule in plain Python, one position after the other."""

    def __init__(self, size: int, secret: bytes, rule: DictPflSettings) -> None:
        self.secret, self.rule = secret, rule
        self.small_rounds = [0] * size
        self.is_pruned = [False] * size
        self.probability = [rule.first_probability] * size

    def active(self, round_number: int) -> list[int]:
        label = f"shieldfl reactivation {round_number}".encode()
        key = hmac.new(self.secret, label, hashlib.sha256).digest()
        stream = hashlib.shake_256(key).digest(4 * len(self.is_pruned))
        chosen = []
        for position, pruned in enumerate(self.is_pruned):
            draw = int.from_bytes(stream[4 * position : 4 * position + 4], "little") / 2**32
            if not pruned or draw < self.probability[position]:
                chosen.append(position)
        return chosen

    def observe(self, round_number: int, values: list[float]) -> None:
        sent = dict(zip(self.active(round_number), values, strict=True))
        if self.rule.ranked == "all":
            updates = {position: sent.get(position, 0.0) for position in range(len(self.is_pruned))}
        else:
            updates = sent
        # What was not sent comes before all that was, whatever its value.
        order = sorted(updates, key=lambda position: (position in sent, abs(updates[position]), position))
        small = set(order[: math.floor(self.rule.small_percent * len(order) / 100)])
        for position in sent:
            if self.is_pruned[position] and position in small:
                self.probability[position] *= self.rule.decay
            elif self.is_pruned[position]:
                self.probability[position] = min(1.0, self.probability[position] / self.rule.decay)
            self.small_rounds[position] = self.small_rounds[position] + 1 if position in small else 0
            self.is_pruned[position] = self.small_rounds[position] >= self.rule.patience_rounds


RULES = st.builds(
    DictPflSettings,
    small_percent=st.sampled_from([0.0, 12.5, 50.0, 70.0, 99.0]),
    patience_rounds=st.integers(1, 3),
    decay=st.sampled_from([0.2, 0.5, 1.0]),
    first_probability=st.sampled_from([0.0, 0.2, 0.7, 1.0]),
    ranked=st.sampled_from(["all", "sent"]),
)


def draw_update(data: st.DataObject, count: int) -> np.ndarray:
    """Few distinct magnitudes, so that there are ties, on both sides of 0."""
    values = st.sampled_from([-2.0, -1.0, -0.0, 0.0, 0.5, 1.0, 3.0])
    return np.array(data.draw(st.lists(values, min_size=count, max_size=count)), dtype=np.float32)


@given(RULES, st.integers(1, 12), st.data())
@settings(max_examples=120)
def test_the_rule_is_the_twins(rule: DictPflSettings, size: int, data: st.DataObject) -> None:
    history, twin = PruningHistory(size, SECRET, rule), Twin(size, SECRET, rule)
    for round_number in range(1, 9):
        active = history.active_mask(round_number)
        assert active.to_indices().tolist() == twin.active(round_number)
        assert active.count >= 1
        update = draw_update(data, active.count)
        history.observe(round_number, update)
        twin.observe(round_number, update.tolist())


@given(RULES, st.integers(1, 40), st.integers(0, 2**32 - 1), st.lists(st.booleans(), min_size=8, max_size=8))
@settings(max_examples=60)
def test_everyone_derives_the_same_from_the_same_history(
    rule: DictPflSettings, size: int, seed: int, comes_back: list[bool]
) -> None:
    """Also one who starts again from the state of another, and in rounds after some that gave no update."""
    random = np.random.default_rng(seed)
    steady = PruningHistory(size, SECRET, rule)
    restarting = PruningHistory(size, SECRET, rule)
    round_number = 0
    for restarts in comes_back:
        round_number += int(random.integers(1, 4))
        if restarts:
            restarting = PruningHistory.from_bytes(steady.to_bytes(), size, SECRET, rule)
        active = steady.active_mask(round_number)
        assert restarting.active_mask(round_number) == active
        update = random.standard_normal(active.count)
        steady.observe(round_number, update)
        restarting.observe(round_number, update)
        assert restarting.last_round == steady.last_round == round_number
        assert restarting.to_bytes() == steady.to_bytes()


def pruned_but_one(size: int, secret: bytes = SECRET, **rule: float) -> PruningHistory:
    """All positions but the last are pruned, after one round."""
    settings = DictPflSettings(small_percent=100 * (1 - 0.5 / size), patience_rounds=1, **rule)
    history = PruningHistory(size, secret, settings)
    update = np.zeros(size, dtype=np.float32)
    update[-1] = 1.0
    history.observe(1, update)
    return history


def test_positions_are_drawn_once_a_round_and_anew_after_another_was_observed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    history, same = pruned_but_one(400, first_probability=0.5), pruned_but_one(400, first_probability=0.5)
    update, drawn = np.arange(same.active_mask(8).count, dtype=np.float32), []
    same.observe(8, update)
    expected = same.active_mask(9)
    monkeypatch.setattr(
        hashlib, "shake_256", lambda key, draw=hashlib.shake_256: drawn.append(key) or draw(key)
    )
    early = history.active_mask(9)
    assert history.active_mask(9) == early
    assert len(drawn) == 1
    history.observe(8, update)
    assert history.active_mask(9) == expected != early


def test_the_last_64_observed_rounds_are_told_from_those_given_up() -> None:
    history = PruningHistory(1, SECRET)
    opened = [number for number in range(1, 80) if number not in (5, 70)]
    for round_number in opened:
        history.observe(round_number, np.ones(1))
    for one in (history, PruningHistory.from_bytes(history.to_bytes(), 1, SECRET)):
        assert [number for number in range(opened[-64], 90) if one.has_observed(number)] == opened[-64:]
        assert one.has_observed(5), "too long ago to know"
    assert not PruningHistory(1, SECRET).has_observed(1)


def test_a_tag_is_of_positions_round_history_and_secret() -> None:
    history, same = pruned_but_one(40, first_probability=0.5), pruned_but_one(40, first_probability=0.5)
    active = history.active_mask(2)
    tag = history.tag(2, active)
    assert tag == same.tag(2, active)
    assert len(tag) == 32
    swapped = active.to_bool()[::-1].copy()
    others = [
        history.tag(3, active),
        history.tag(2, Mask.from_bool(swapped)),
        PruningHistory(40, SECRET).tag(2, active),
        pruned_but_one(40, secret=SECRET[::-1]).tag(2, active),
    ]
    assert len({tag, *others}) == 5
    assert Mask.from_bool(swapped).count == active.count


def test_a_refused_update_changes_nothing() -> None:
    history = PruningHistory(4, SECRET)
    history.observe(3, np.ones(4, dtype=np.float32))
    before = history.to_bytes()
    good = np.ones(4, dtype=np.float32)
    for round_number, update, error, message in (
        (3, good, ParameterError, "round 3 is over"),
        (0, good, ParameterError, "round 0 is over"),
        (4, np.array([1, np.nan, 1, 1]), RangeError, "NaN or infinity"),
        (4, np.array([1, np.inf, 1, 1]), RangeError, "NaN or infinity"),
    ):
        with pytest.raises(error, match=message):
            history.observe(round_number, update)
    with pytest.raises(ParameterError, match="round 3 is over"):
        history.active_mask(3)
    assert history.to_bytes() == before


def altered(**parts: bytes) -> bytes:
    written = dict(Message.from_bytes(PruningHistory(4, SECRET).to_bytes()))
    return Message(written | {name.replace("_", " "): part for name, part in parts.items()}).to_bytes()


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (b"", "truncated"),
        (PruningHistory(4, SECRET).to_bytes()[:-1], "truncated"),
        (PruningHistory(5, SECRET).to_bytes(), "expected"),
        (Message({}).to_bytes(), "no part"),
        (altered(probabilities=np.array([0.1, 0.1, 0.1, np.nan]).tobytes()), "no step"),
        (altered(probabilities=np.array([0.1, 0.1, 0.1, 1.5]).tobytes()), "no step"),
        (altered(streaks=np.array([0, 0, 0, 4], dtype=np.uint16).tobytes()), "no step"),
        (altered(streaks=np.full(4, 3, dtype=np.uint16).tobytes()), "no step"),
        (altered(rounds=b"\x01"), "expected"),
        (altered(rounds=np.arange(64, 0, -1, dtype=np.uint64).tobytes()), "no step"),
        (altered(rounds=np.array([0] * 61 + [1, 3, 3], dtype=np.uint64).tobytes()), "no step"),
        (altered(rounds=np.array([0] * 61 + [1, 3, 0], dtype=np.uint64).tobytes()), "no step"),
    ],
)
def test_damaged_states_are_refused(state: bytes, message: str) -> None:
    with pytest.raises(WireFormatError, match=message):
        PruningHistory.from_bytes(state, 4, SECRET)


def test_a_state_is_bound_to_what_prunes_alone() -> None:
    state = PruningHistory(4, SECRET, DictPflSettings(rank=2, value_bits=20)).to_bytes()
    assert PruningHistory.from_bytes(state, 4, SECRET, DictPflSettings()).to_bytes() == state
    stated = msgspec.json.decode(Message.from_bytes(state)["settings"])
    assert stated == {
        "decay": 0.2,
        "first_probability": 0.2,
        "patience_rounds": 3,
        "ranked": "all",
        "small_percent": 70.0,
    }
    assert SECRET not in state
