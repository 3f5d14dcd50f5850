"""FedML-HE's mask: agreed on once, kept by who has read it, and not agreed on where there is nothing to choose."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from methods.method_conformance import SteppedRun, contraction, resigned, signed_answer
from methods.variants import BUFFERS, CLIENTS, PARAMETERS, Variant, labelled
from shieldfl.authority.message import Message
from shieldfl.errors import ParameterError, PolicyError, RangeError
from shieldfl.masks import Mask
from shieldfl.methods.masked_average.method import UPDATE
from shieldfl.methods.selective_shield.method import SelectiveShieldSettings
from shieldfl.rounds.reports import Disclosure


def run_of(method: str, *, opener: str = "authority", **changes: object) -> SteppedRun:
    plain = Variant(method, SelectiveShieldSettings(), method, opener=opener)
    return SteppedRun(plain.with_others(key_bits=2048, delta=1e-5, interleaving_ratio="0", **changes))


@pytest.mark.parametrize("opener", ["authority", "clients"])
@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("fedml-he", {"ratio": 1.0}),
        ("fedml-he", {"ratio": 1e-9}),
        ("alt-fl-pi", {"encrypted_share": 1.0}),
        ("alt-fl-mp", {"encrypted_share": 0.0}),
    ],
)
def test_without_a_choice_no_scores_are_sent_and_no_keys_made_for_them(method, changes, opener):
    run = run_of(method, opener=opener, **changes)
    assert set(run.method.purposes) == {"update"}
    starts = [client.begin_round(1, CLIENTS, run.begin_round(1)) for client in run.clients]
    assert {start.scores for start in starts} == {None}
    run.run_round()
    assert list(run.sent) == ["update"]
    assert run.method.phases_of(run.model, 2) == (UPDATE,)
    everything = max(changes.values()) == 1.0
    assert run.clients[0].disclosure.encrypted.count == (PARAMETERS if everything else 0)
    with pytest.raises(ParameterError, match=r"no phase|no scores"):
        run.clients[0].step("scores", None)
    with pytest.raises(ParameterError, match=r"no phase|no scores"):
        run.authority.answer("scores", Message({"round": Message.from_number(2), "total": b""}))


def test_a_mask_is_read_once_and_no_other_is_taken_after_it():
    run = run_of("fedml-he", ratio=0.2)
    run.run_round()
    run.run_round()
    client = run.clients[0]
    zone = client.zone
    client.begin_round(3, CLIENTS, run.begin_round(3))
    assert client.zone is zone
    inside = zone.to_bool()
    inside[:PARAMETERS] = np.roll(inside[:PARAMETERS], 1)
    other = Mask.from_bool(inside)
    assert other.count == zone.count
    lie = resigned(run, {**run.begin_round(3), "zone": other.to_bytes()})
    with pytest.raises(PolicyError, match="whole run"):
        client.begin_round(3, CLIENTS, lie)
    newcomer = run.new_client(0)
    newcomer.begin_round(3, CLIENTS, lie)
    assert newcomer.zone == other


def zones(count: int) -> list[bytes]:
    """Two of so many parameters, and all buffers."""
    buffers = np.arange(PARAMETERS, PARAMETERS + BUFFERS)
    return [
        Mask.from_indices(np.r_[first : first + count, buffers], PARAMETERS + BUFFERS).to_bytes()
        for first in (0, 100)
    ]


def test_a_mask_by_which_nothing_was_sent_is_not_held_on_to():
    """Else a wrong mask, taken with an update that cannot be encrypted, would shut the client out of the run."""
    run = SteppedRun(Variant("fedml-he", SelectiveShieldSettings(), "fedml-he"))
    client = run.clients[0]
    update = contraction(1, 0, client.begin_round(1, CLIENTS, run.begin_round(1)))
    client.finish_training(replace(update, parameters=np.full_like(update.parameters, 1e6)))
    client.step("scores", None)
    wrong, right = zones(PARAMETERS // 10)
    with pytest.raises(RangeError):
        client.step("update", signed_answer(run, "scores", {"zone": wrong}))
    model = resigned(run, {**run.begin_round(2), "zone": right})
    client.finish_training(contraction(2, 0, client.begin_round(2, CLIENTS, model)))
    client.step("update", None)
    assert client.disclosure.encrypted == Mask.from_bytes(right).resized(PARAMETERS)
    with pytest.raises(PolicyError, match="another mask was agreed on"):
        client.begin_round(3, CLIENTS, resigned(run, {**run.begin_round(3), "zone": wrong}))


def test_a_mask_that_came_with_a_round_that_encrypts_by_none_is_not_held_on_to():
    run = SteppedRun(labelled("alt-fl-pi"))
    client = run.clients[0]
    # The third round is noised, the fourth encrypted.
    for number, zone in zip((3, 4), zones(PARAMETERS // 2), strict=True):
        first = resigned(run, {**run.begin_round(number), "zone": zone})
        client.finish_training(contraction(number, 0, client.begin_round(number, CLIENTS, first)))
        client.step("update", None)
        assert client.disclosure.encrypted.count == (0 if number == 3 else PARAMETERS // 2)


def test_only_buffers_that_are_all_encrypted_count_as_such():
    for chosen, buffers in (([0, 6, 7], "encrypted"), ([0, 6], "clear"), ([0], "clear")):
        stated = Disclosure.of_zone(Mask.from_indices(chosen, 8), 6)
        assert stated.buffers == buffers
        assert stated.encrypted == Mask.from_indices([0], 6)
        assert stated.clear == ~stated.encrypted
