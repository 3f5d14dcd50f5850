"""An aggregator that lies about ciphertexts of clients that enrol: what it makes opens to noise, or is refused.

Each lie is told in full: the frame is altered, sealed again and summed, the authority answers where it has no reason
not to, and the answer is used. What stops each is that a frame's secret follows from all that its head says, under a
key that the aggregator does not have, and that an answer is the sum of just the secrets of its list.
"""

from __future__ import annotations

import struct

import numpy as np
import pytest

import shieldfl as sf
from authority.enrolled_session import OF_SCHEMES, SIZE, Session, updates
from encryption.wire_twin import reseal
from shieldfl.encryption.answers import open_total
from shieldfl.encryption.frame_inspection import inspect_frame
from shieldfl.encryption.opening import sum_key

ROUND = 54321  # Eight bytes that stand nowhere else in a frame.
NAMES = ("clinic-1", "clinic-2", "clinic-3", "clinic-4")


@pytest.fixture(scope="module", params=list(OF_SCHEMES))
def honest(request):
    session = Session(NAMES, OF_SCHEMES[request.param])
    return session, [session.frame(client, ROUND) for client in range(4)]


def swapped(frame: bytes, old: bytes, new: bytes) -> bytes:
    """The frame with one field changed, which stands in it once."""
    assert frame.count(old) == 1
    return reseal(frame.replace(old, new))


def number(session: Session, client: int) -> bytes:
    return struct.pack("<I", session.keys[client].client)


def frame_id(frame: bytes) -> bytes:
    core = sf._core.KaheCiphertext if inspect_frame(frame).kind == "kahe batch" else sf._core.PadsCiphertext
    ((_, found),) = core.batch(frame).participants
    return found


def opened(session: Session, frames: list[bytes], **options: object) -> np.ndarray:
    """What an aggregator that adds these gets, with a new authority's answer for its list."""
    total = session.total(frames=frames, **options)
    keys = [key for key in session.keys if key.client in dict(total.participants)]
    keys.sort(key=lambda key: key.client)
    live = [
        session.scheme.ClientKey(key.public_key, key.client, key.export_secret(), key.round) for key in keys
    ]
    for key in live:
        key.advance_to(total.round)
    public_key = session.authority.public_key
    return open_total(public_key, total, sum_key(public_key, total.request(), live))[0]


def assert_noise(session: Session, frames: list[bytes], **options: object) -> None:
    with pytest.raises(sf.WireFormatError, match="does not open to"):
        opened(session, frames, **options)


def test_what_honest_clients_sent_opens(honest):
    session, frames = honest
    np.testing.assert_array_equal(opened(session, frames), updates().astype(np.float64).sum(axis=0))


def test_invented_clients_around_a_real_one(honest):
    session, frames = honest
    invented = [
        session.scheme.Encryptor(
            session.scheme.ClientKey(session.authority.public_key, key.client, bytes(32))
        ).encrypt(np.zeros(SIZE, np.float32), round=ROUND)
        for key in session.keys[1:]
    ]
    assert_noise(session, [frames[0], *(one.to_bytes() for one in invented)])


def test_a_copy_under_another_name_or_id(honest):
    session, frames = honest
    renamed = swapped(frames[0], number(session, 0), number(session, 1))
    with pytest.raises(sf.DuplicateFrameError):
        session.total(frames=[frames[0], renamed])
    renamed = swapped(renamed, frame_id(renamed), bytes(range(1, 17)))
    assert_noise(session, [frames[0], renamed, frames[2], frames[3]])
    other_id = swapped(frames[1], frame_id(frames[1]), bytes(range(16)))
    assert_noise(session, [frames[0], other_id, frames[2], frames[3]])


def test_another_round_or_flag_or_mask(honest):
    session, frames = honest
    later = [swapped(frame, struct.pack("<Q", ROUND), struct.pack("<Q", ROUND + 1)) for frame in frames]
    assert_noise(session, later)
    positions = sf.Mask.from_indices(np.arange(SIZE), SIZE + 1)
    mask_ids = [sf._core.mask_id(mask.bits) for mask in (sf.Mask.full(SIZE), positions)]
    assert_noise(session, [swapped(frame, *mask_ids) for frame in frames], positions=positions)


def test_blocks_of_another_frame(honest):
    session, _ = honest
    size = 3 * 2048  # several blocks of the ring
    values = np.random.default_rng(1).integers(-2, 3, (4, size)).astype(np.float32)
    frames = [session.frame(client, ROUND, values[client]) for client in range(4)]
    np.testing.assert_array_equal(opened(session, frames), values.astype(np.float64).sum(axis=0))
    half = len(frames[0]) - len(frames[0]) // 3
    pasted = reseal(frames[0][:half] + frames[1][half:])
    assert_noise(session, [pasted, *frames[1:]])
    # A victim that is left out of some blocks alone: its last ones are as if it had encrypted nothing.
    left_out = reseal(frames[0][:half] + bytes(len(frames[0]) - half))
    assert_noise(session, [left_out, *frames[1:]])


def test_a_sum_multiplied_or_changed_after_the_answer(honest):
    session, frames = honest
    total = session.total(frames=frames)
    authority = Session(NAMES, session.authority.public_key.parameters).authority
    with pytest.raises(sf.KeyMismatchError):
        authority.sum_key(total.request())
    keys = sorted(session.keys, key=lambda key: key.client)
    answer = sum_key(session.authority.public_key, total.request(), keys)
    for changed in (
        session.total(frames=[*frames[:3], session.frame(3, ROUND)]),
        session.total(frames=frames[:3]),
    ):
        with pytest.raises(sf.KeyMismatchError):
            open_total(session.authority.public_key, changed, answer)


@pytest.mark.parametrize("seed", range(3))
def test_a_hundred_lies_about_the_list(honest, seed):
    """Every list but the true one opens to noise: others left out, put in, renamed, or with ids of other frames."""
    session, frames = honest
    more = [session.frame(client, ROUND) for client in range(4)]
    rng = np.random.default_rng(seed)
    total = session.total(frames=frames).to_bytes()
    for _ in range(33):
        lie = total
        for client in rng.choice(4, rng.integers(1, 5), replace=False):
            lie = swapped(lie, frame_id(frames[client]), frame_id(more[client]))
        read = session.scheme.Total.from_bytes(lie)
        keys = sorted(session.keys, key=lambda key: key.client)
        public_key = session.authority.public_key
        with pytest.raises(sf.WireFormatError, match="does not open to"):
            open_total(public_key, read, sum_key(public_key, read.request(), keys))


def test_a_stolen_key_opens_nothing_of_rounds_before(honest):
    session, _ = honest
    key = session.scheme.ClientKey(session.authority.public_key, session.keys[0].client, bytes(range(32)))
    recorded = {}
    for number_of_round in (1, 2, 3):
        recorded[number_of_round] = (
            session.scheme.Encryptor(key).encrypt(updates()[0], round=number_of_round).to_bytes()
        )
    stolen, client, public_key = key.export_secret(), key.client, session.authority.public_key
    for number_of_round, frame in recorded.items():
        total = session.total(frames=[frame])
        guess = session.scheme.ClientKey(public_key, client, stolen, number_of_round)
        answer = sum_key(public_key, total.request(), [guess])
        if number_of_round == 3:  # what whoever holds the key of a round gets: the frames of that round
            np.testing.assert_array_equal(open_total(public_key, total, answer)[0], updates()[0])
        else:
            with pytest.raises(sf.WireFormatError):
                open_total(public_key, total, answer)
    with pytest.raises(sf.PolicyError, match="is over"):
        key.advance_to(2)
