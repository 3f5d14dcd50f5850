"""Whom the authority takes for a client: invitations that are forged, and lies about those who enrolled."""

from __future__ import annotations

import struct

import numpy as np
import pytest

import shieldfl as sf
from authority.enrolled_session import OF_SCHEMES, SIZE, Session, updates
from encryption.wire_twin import reseal
from methods.method_conformance import SteppedRun, resigned, run_of
from methods.stored_run import asked_over
from methods.variants import CLIENTS, every_variant, labelled, variants
from shieldfl.authority.message import Message
from shieldfl.authority.round_key_check import INVITED
from shieldfl.encryption.enrolment import open_total
from shieldfl.encryption.frame_inspection import inspect_frame
from shieldfl.encryption.opening import sum_key
from shieldfl.errors import KeyMismatchError, ParameterError, PolicyError, WireFormatError
from shieldfl.masks import Mask
from shieldfl.stateful import encode_record

ONE_OF_EACH = [
    labelled("full-he"),
    labelled("full-he/ckks"),
    *(labelled("full-he", opener) for opener in ("clients", "aggregator")),
    labelled("plain-he"),
    labelled("sense-crypt/clusters"),
]
one_of_each = pytest.mark.parametrize("variant", ONE_OF_EACH, ids=lambda variant: variant.label)


@every_variant
def test_no_client_is_told_of_more_or_fewer_than_the_authority_signed(variant):
    """Noise follows from how many take part: told of two in place of four, clients of SelectiveShield add less."""
    run = SteppedRun(variant)
    client, first = run.clients[0], run.method.message_for(0, run.begin_round(1, [0, 1, 2]))
    if run.authority is None:
        # Nobody signs: the aggregator is believed, within the plan's bounds, and no noise follows from what it says.
        assert client.begin_round(1, 2, first).noise == run.new_client(0).begin_round(1, 4, first).noise
        return
    before = encode_record(client.changed(), {})
    for stated in (2, 4):
        with pytest.raises(PolicyError, match="signed that 3 are invited"):
            client.begin_round(1, stated, first)
    assert encode_record(client.changed(), {}) == before
    assert client.begin_round(1, 3, first).round == 1


@one_of_each
def test_who_is_not_invited_sends_nothing(variant):
    run = SteppedRun(variant)
    whole = run.begin_round(1, [0, 1, 2])
    client, first = run.clients[3], run.method.message_for(3, whole)
    before = encode_record(client.changed(), {})
    with pytest.raises(PolicyError, match="client 3 is not invited to round 1"):
        client.begin_round(1, 3, first)
    everybody = Mask.full(CLIENTS).to_bytes()
    # The list is signed with the model, for this round.
    for lie in (everybody, Mask.from_indices([0, 1, 3], CLIENTS).to_bytes(), b""):
        with pytest.raises(KeyMismatchError, match="list of invited clients"):
            client.begin_round(1, 3, Message({**first, INVITED: lie}))
    with pytest.raises(PolicyError, match="does not say who is invited"):
        client.begin_round(1, 3, Message({name: part for name, part in first.items() if name != INVITED}))
    # Signed by an authority that lies: a client looks for itself, and at other sizes too.
    for size in (CLIENTS - 1, CLIENTS + 1):
        with pytest.raises(WireFormatError):
            client.begin_round(1, 3, resigned(run, {**first, INVITED: Mask.full(size).to_bytes()}))
    assert encode_record(client.changed(), {}) == before
    assert client.begin_round(1, 4, resigned(run, {**first, INVITED: everybody})).round == 1


@pytest.mark.every_run("True-sense-crypt/clusters", "True-full-he/opened by the aggregator", "False-full-he")
@one_of_each
@pytest.mark.parametrize("restarts", [False, True])
def test_a_round_has_one_list_of_invited_clients(variant, restarts):
    """Of two lists with their signatures one could be shown to one client, and the other to the others."""
    run = SteppedRun(variant, restarts_roles=restarts, rounds=5)
    digest = run.aggregator.model_digest()
    first = run.authority.begin_round(1, [2, 0, 1], digest)
    assert run.authority.begin_round(1, (0, 1, 2), digest) == first
    for other in (None, [0, 1], [0, 1, 3]):
        with pytest.raises(PolicyError, match="begun with other clients"):
            run.authority.begin_round(1, other, digest)
    for few in ([], [1]):
        with pytest.raises(PolicyError, match="fewer than min_clients = 2"):
            run.authority.begin_round(2, few, digest)
    for wrong in ([0, 1, CLIENTS], [0, 1, -1], [0, 1, 1], [0, 1, 1.5], "012"):
        with pytest.raises(ParameterError):
            run.authority.begin_round(2, wrong, digest)
    assert run.authority.begin_round(1, [0, 1, 2], digest) == first
    run.run_round([0, 1, 2])
    run.run_round([1, 2, 3])


@pytest.mark.parametrize("opener", ["clients", "aggregator"])
def test_no_list_with_a_client_that_was_not_invited_is_answered(opener):
    run = run_of("full-he", opener)
    first = run.begin_round(1)
    stranger = run.new_authority()
    stranger.restore(run.authority.state(bytes(32)), bytes(32))
    request = asked_over(run, "update", 1, range(CLIENTS), first)
    assert run.authority.answer("update", request)
    stranger._invited = Mask.from_indices([0, 1, 2], CLIENTS)
    with pytest.raises(PolicyError, match="not invited to round 1"):
        stranger.answer("update", request)


def test_every_method_with_an_authority_says_whom_it_invites():
    for variant in variants():
        run = SteppedRun(variant)
        first = run.method.message_for(1, run.begin_round(1, [1, 2]))
        assert (INVITED in first) == (run.authority is not None)
        if run.authority is not None:
            assert Mask.from_bytes(first[INVITED], CLIENTS).to_indices().tolist() == [1, 2]


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
