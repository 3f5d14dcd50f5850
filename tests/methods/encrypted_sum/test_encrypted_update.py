"""What clients encrypt and what they send in the clear becomes one weighted mean, whatever their masks."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from functools import reduce
from operator import or_
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from encryption.paillier_keys import authority_for
from methods.method_conformance import SteppedRun, contraction
from methods.variants import PARAMETERS, labelled
from shieldfl.authority.key_authority import KeyAuthority, SumKeyAuthority
from shieldfl.authority.message import Message
from shieldfl.encryption.registry import encryptions, scheme_of, weighing_encryptions
from shieldfl.errors import PolicyError, RangeError, WireFormatError
from shieldfl.learning.local_update import StageClock
from shieldfl.masks import Mask
from shieldfl.methods.encrypted_update import (
    MixedSum,
    MixedTotal,
    MixedUpload,
    are_summable,
    clear_sums_part,
    opened_mean,
    read_clear_sums,
)
from shieldfl.methods.encryption_settings import FixedPoint, update_parameters

SIZE = 130  # no multiple of 64
WEIGHTS = (1, 3, 2)
ROUND = 5

every_encryption = pytest.mark.parametrize("encryption", encryptions())


def masks_of(kind: str) -> list[Mask]:
    positions = np.arange(SIZE)
    chosen = {
        "everything": [positions >= 0] * 3,
        "nothing": [positions < 0] * 3,
        "one for all": [positions % 3 == 0] * 3,
        "different": [positions % 5 == 0, positions % 3 == 0, (positions > 20) & (positions < 60)],
        "one is the union": [positions % 3 == 0, positions % 6 == 0, positions < 0],
    }[kind]
    return [Mask.from_bool(mask) for mask in chosen]


class Round:
    """Three clients, their updates and what they send."""

    def __init__(self, encryption: str, masks: list[Mask], *, sends_rest: bool = True) -> None:
        parameters = update_parameters(
            encryption, 3, FixedPoint(), most_weight=3, key_bits=2048, takes_clear_values=True
        )
        scheme = scheme_of(parameters)
        self.keys: Any
        if scheme.enrols:
            self.keys = SumKeyAuthority(parameters, min_clients=2)
        else:
            self.keys = (
                authority_for(parameters) if scheme.key_sizes else KeyAuthority(parameters, min_clients=1)
            )
        public_key = self.keys.public_key
        self.client_keys = [self.keys.enrol(client) if scheme.enrols else public_key for client in range(3)]
        self.masks = masks
        self.sends_rest = sends_rest
        generator = np.random.default_rng(1)
        self.updates = generator.normal(0.0, 0.1, (3, SIZE)).astype(np.float32)
        clock = StageClock()
        self.sum = MixedSum(public_key, masks, ROUND, WEIGHTS, clock, 1, weighted=True, has_rest=sends_rest)
        union = Message(self.sum.union_parts(""))
        self.messages = []
        clients = zip(self.client_keys, self.updates, masks, WEIGHTS, strict=True)
        for key, update, mask, weight in clients:
            upload = MixedUpload(key, weight, max(WEIGHTS), 1, sends_rest=sends_rest)
            frame, encrypted = upload.encrypt(update, mask, upload.read_union(union, SIZE), ROUND)
            self.messages.append(Message(upload.parts(update, frame, encrypted)))

    def add(self, *clients: int) -> None:
        for client in clients:
            self.sum.add(client, self.messages[client], self.masks[client])

    def mean(self) -> np.ndarray:
        message = Message(self.sum.parts(""))
        claim = MixedTotal.read(
            message, "", self.keys.public_key.parameters, SIZE, ROUND, has_rest=self.sends_rest
        )
        assert claim.positions == reduce(or_, self.masks)
        assert claim.sums.size == (SIZE - claim.positions.count if self.sends_rest else 0)
        context = SimpleNamespace(
            most_weight=max(WEIGHTS), buffer_factor=1.0, plan=SimpleNamespace(buffers=0)
        )
        return opened_mean(claim, context, SimpleNamespace(opening=lambda total: nullcontext(self.keys)))

    def assert_mean(self) -> None:
        """All three together give the mean of their updates."""
        expected = np.average(self.updates.astype(np.float64), axis=0, weights=WEIGHTS)
        encrypted = reduce(or_, self.masks).to_bool()
        mean = self.mean()
        np.testing.assert_allclose(mean[encrypted], expected[encrypted], rtol=0.0, atol=2.0**-20)
        # Of a sum in float32, which is as wide as the model.
        total = (expected * sum(WEIGHTS)).astype(np.float32).astype(np.float64)
        np.testing.assert_allclose(mean[~encrypted], total[~encrypted] / sum(WEIGHTS), rtol=1e-7)


@pytest.mark.parametrize("kind", ["everything", "nothing", "one for all", "different", "one is the union"])
@every_encryption
def test_the_mean_is_that_of_the_updates(encryption, kind):
    one = Round(encryption, masks_of(kind))
    one.add(2, 0, 1)
    one.assert_mean()


@every_encryption
def test_what_is_held_back_counts_as_zero(encryption):
    one = Round(encryption, masks_of("one for all"), sends_rest=False)
    one.add(0, 1)
    assert all(set(message) == {"weight", "ciphertexts"} for message in one.messages)
    assert not one.mean()[~one.masks[0].to_bool()].any()


BAD_PARTS = [
    ("weight", lambda part: np.uint64(0).tobytes(), RangeError),
    ("weight", lambda part: np.uint64(4).tobytes(), RangeError),
    ("values", lambda part: part[4:], WireFormatError),
    ("values", lambda part: part + part[:4], WireFormatError),
    ("values", lambda part: np.float32(np.nan).tobytes() + part[4:], WireFormatError),
    ("values", lambda part: part[:-4] + np.float32(np.inf).tobytes(), WireFormatError),
    ("ciphertexts", lambda part: part[:-1], WireFormatError),
]


@pytest.mark.parametrize("kind", ["one for all", "different"])
@every_encryption
def test_a_bad_upload_is_refused_and_changes_nothing(encryption, kind):
    one = Round(encryption, masks_of(kind))
    one.add(0, 1)
    before = one.sum.parts("")
    good = one.messages[2]
    for part, alter, error in BAD_PARTS:
        one.messages[2] = Message({**good, part: alter(good[part])})
        with pytest.raises(error):
            one.add(2)
        assert one.sum.parts("") == before
    # After all that, the good one is taken.
    one.messages[2] = good
    one.add(2)
    one.assert_mean()


def test_plain_numbers_that_no_field_holds_are_refused_where_others_encrypt():
    one = Round("paillier-dense", masks_of("different"))
    values = np.frombuffer(one.messages[0]["values"], dtype=np.float32) + np.float32(100.0)
    one.messages[0] = Message({**one.messages[0], "values": values.tobytes()})
    with pytest.raises(RangeError):
        one.add(0)
    assert one.sum.parts("") == {}


@every_encryption
def test_a_common_zone_is_its_own_union_until_it_changes(encryption):
    one = Round(encryption, masks_of("one for all"))
    upload = MixedUpload(one.client_keys[0], 1, 3, 1)
    zone, other = one.masks[0], Mask.full(SIZE)
    union = upload.union_of(zone)
    assert union.to_bytes() == one.sum.union_parts("").popitem()[1]
    assert upload.union_of(Mask.from_bytes(zone.to_bytes())) is union
    assert upload.union_of(other).count == SIZE
    assert upload.union_of(Mask.full(7)).size == 7


@pytest.mark.parametrize("encryption", weighing_encryptions())
def test_a_union_that_all_encrypt_holds_all_that_a_client_protects(encryption):
    one = Round(encryption, masks_of("different"))
    upload = MixedUpload(one.client_keys[0], 1, 3, 1)
    with pytest.raises(PolicyError, match="leaves out"):
        upload.encrypt(one.updates[0], Mask.full(SIZE), one.sum.positions, ROUND)


@pytest.mark.parametrize("sums", [[1e39, 0.0], [0.0, -1e300], [np.nan, 0.0], [np.inf, 0.0]])
def test_what_no_model_holds_is_refused_by_whoever_reads_it(sums):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        part = clear_sums_part(np.array(sums))
    with pytest.raises(WireFormatError, match="part 'sums 1' holds NaN or infinity"):
        read_clear_sums(Message({"sums 1": part}), "sums 1", 2)


def test_counts_of_contributors_are_as_wide_as_the_number_of_clients():
    """For up to 255 a byte each; and those of another width are refused."""
    run = SteppedRun(labelled("selective-shield/clear").with_settings(threshold=1.0), clients=256)
    answer = run.authority.answer

    def with_others_first(phase, message):
        if phase == "update":
            assert set(np.frombuffer(message["contributors"], np.uint16)) == {256}
            other = np.full(PARAMETERS, 256, np.uint32).tobytes()
            with pytest.raises(WireFormatError, match="'contributors' has"):
                answer(phase, Message({**message, "contributors": other}))
        return answer(phase, message)

    run.authority.answer = with_others_first
    run.run_round()
    moved = np.mean([contraction(1, one, run.starts[one]).parameters for one in range(256)], axis=0)
    np.testing.assert_allclose(run.parameters, moved, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("weights", [1, 3, 7, 1000, 2**31])
def test_values_that_sums_have_room_for_sum_to_a_float32(weights):
    most = np.nextafter(np.float32(np.finfo(np.float32).max / weights), np.float32(0.0))
    values = np.array([most, -most, 0.0], dtype=np.float32)
    assert are_summable(values, weights)
    assert np.isfinite(np.frombuffer(clear_sums_part(weights * values.astype(np.float64)), np.float32)).all()
    above = np.nextafter(most, np.float32(np.inf))
    for bad in (above, np.inf, -np.inf, np.nan):
        assert not are_summable(np.array([0.0, bad], dtype=np.float32), weights)
    assert are_summable(np.empty(0, np.float32), weights)


@pytest.mark.parametrize("label", ["selective-shield/clear", "mask-crypt", "fedml-he"])
def test_a_client_that_would_take_a_sum_out_of_range_is_refused_by_its_name(label):
    """And the round goes on without it."""
    run = SteppedRun(labelled(label))
    refused = []

    def grown(phase, aggregator, messages):
        if phase != "update":
            return
        values = np.frombuffer(messages[0]["values"], np.float32).copy()
        values[-1] = 2e38
        with pytest.raises(WireFormatError, match="no sum of all clients' has room"):
            aggregator.receive(phase, 0, Message({**messages[0], "values": values.tobytes()}))
        refused.append(phase)

    run.run_round(intrude=grown)
    assert refused == ["update"]
    assert np.isfinite(run.parameters).all()
