"""A client's key that is used twice: by a second process, after a step back, or for an update that was summed."""

from __future__ import annotations

import os

import numpy as np
import pytest

import shieldfl as sf
from authority.enrolled_session import SIZE, Session, updates
from encryption.wire_twin import reseal
from shieldfl.encryption import kahe
from shieldfl.encryption.enrolment import open_total
from shieldfl.encryption.opening import sum_key

ROUND = 3
OTHER = np.random.default_rng(9).integers(-1000, 1000, SIZE).astype(np.float32) / 1024


def copy_of(key: kahe.ClientKey) -> kahe.ClientKey:
    """The same key in other hands, as whoever reads its file or its state gets it."""
    return kahe.ClientKey(key.public_key, key.client, key.export_secret(), key.round)


def sums_of(updates_of: np.ndarray) -> np.ndarray:
    return updates_of.astype(np.float64).sum(axis=0)


def asserted_once(session: Session, first: bytes, second: bytes) -> None:
    """Both frames are the first client's and good; one of them is in an answered sum, and no other list is."""
    others = [session.frame(client, ROUND) for client in (1, 2, 3)]
    with pytest.raises(sf.DuplicateFrameError):
        session.total(frames=[first, second, *others])
    total = session.total(frames=[first, *others])
    np.testing.assert_array_equal(session.authority.open(total), sums_of(updates()))
    for frames in ([second, *others], [second, *others[:2]]):
        with pytest.raises(sf.PolicyError, match="answered for in round 3 with another list"):
            session.authority.sum_key(session.total(frames=frames).request())
    # The answer that there is opens the second frame in no place of the first.
    public_key = session.authority.public_key
    live = sorted(map(copy_of, session.keys), key=lambda key: key.client)
    answer = sum_key(public_key, total.request(), live)
    np.testing.assert_array_equal(open_total(public_key, total, answer)[0], sums_of(updates()))
    ((_, first_id),), ((_, second_id),) = (
        kahe.CiphertextBatch.from_bytes(frame).parsed.participants for frame in (first, second)
    )
    assert first_id != second_id
    swapped = session.total(frames=[reseal(second.replace(second_id, first_id)), *others])
    assert swapped.participants == total.participants
    with pytest.raises(sf.WireFormatError, match="does not open to"):
        open_total(public_key, swapped, sum_key(public_key, swapped.request(), live))


def test_two_processes_with_one_key():
    """What is drawn for a frame is drawn anew in each: the same update is hidden by another secret."""
    session = Session()
    key = session.keys[0]
    key.advance_to(ROUND)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, kahe.Encryptor(key, 1).encrypt(OTHER, round=ROUND).to_bytes())
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writing)
    own = session.frame(0, ROUND)
    with os.fdopen(reading, "rb") as pipe:
        second = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    asserted_once(session, own, second)


def test_a_client_whose_clock_or_memory_went_back():
    """It was restored from before the round, and sends another update in it."""
    session = Session()
    before = copy_of(session.keys[0])
    own = session.frame(0, ROUND)
    with pytest.raises(sf.PolicyError, match="round 2 is over"):
        session.frame(0, ROUND - 1)
    second = kahe.Encryptor(before, 1).encrypt(OTHER, round=ROUND).to_bytes()
    asserted_once(session, own, second)


def test_the_same_update_in_two_answered_sets_is_told_by_their_difference():
    """Why no update may be sent again once it was in a sum that was opened, in a later round either.

    The building blocks leave this to their caller, as their page says. Methods keep to it: a client sends what it has
    trained from the model that the opened sum has moved (test_answers_of_others, methods/test_method_refusals).
    """
    session = Session()
    everybody = session.authority.open(session.total(round=1))
    without = session.authority.open(session.total((1, 2, 3), round=2))
    np.testing.assert_array_equal(everybody - without, updates()[0])
    # Under other updates in the later round the difference is none of theirs.
    frames = [session.frame(client, 3, updates()[client][::-1].copy()) for client in (1, 2, 3)]
    later = session.authority.open(session.total(frames=frames))
    assert np.abs(np.corrcoef(everybody - later, updates()[0])[0, 1]) < 0.9
    assert not np.array_equal(everybody - later, updates()[0])
