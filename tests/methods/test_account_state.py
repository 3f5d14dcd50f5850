"""An account as bytes: another one goes on with it."""

from __future__ import annotations

import math
from typing import get_args

import msgspec
import pytest

from shieldfl.errors import WireFormatError
from shieldfl.privacy.events import (
    ClearUpload,
    ClientsDrawn,
    DataRelease,
    EncryptedUpload,
    Noise,
    NoisedUpload,
    NoiseOfSum,
    NoiseShareUpload,
    OpenedSum,
    PrivacyEvent,
    ReadSum,
    SummedUploads,
)
from shieldfl.rounds.account import Account
from shieldfl.rounds.reports import Note, Report

NOISE = Noise(1.5, "sample", 0.1, 7)
EVENTS = (
    DataRelease(NOISE),
    ClientsDrawn(3, NOISE),
    ClientsDrawn(2),
    EncryptedUpload(1, 0, NOISE, synthetic=True),
    EncryptedUpload(1, 2),
    NoisedUpload(1, 1, NOISE, "a range"),
    SummedUploads(1, 3),
    ClearUpload(2, 1, "mask", synthetic=True),
    OpenedSum(2),
    ReadSum(2),
)
OF_CLIENTS = (NoiseShareUpload(1, 2, NoiseOfSum("skellam", 3, 400, 1200, 5, -100.0)),)
"""Of another unit, and so of another account."""


def account() -> Account:
    one = Account(["what is known before"], 1e-5)
    notes = (
        Note("a first remark", "subject", 3),
        Note("no subject"),
        Note("values were clipped", counts=(1, 9)),
    )
    one.take(Report(EVENTS, notes, {"encrypt": 0.5}))
    return one


def test_every_kind_of_event_is_among_those_tried():
    assert {type(event) for event in (*EVENTS, *OF_CLIENTS)} == set(get_args(PrivacyEvent))
    one, other = Account((), 1e-5), Account((), 1e-5)
    one.take(Report(OF_CLIENTS, (), {}))
    other.restore(one.state())
    assert other.book.all == OF_CLIENTS


def test_an_account_goes_on_where_another_stood():
    whole, other = account(), Account(["what is forgotten"], 1e-5)
    other.restore(whole.state())
    assert other.book.all == EVENTS
    assert other.clock.seconds() == {"encrypt": 0.5}
    for one in (whole, other):
        # Of an earlier round, of the same subject later, and of tallies that add up.
        late = (
            Note("too late", "subject", 2),
            Note("in time", "subject", 4),
            Note("values were clipped", counts=(2, 9)),
        )
        one.take(Report((OpenedSum(3),), late, {"encrypt": 0.25}))
        one.charge_draw(3)
    assert other.notes == whole.notes
    assert "in time" in other.notes
    assert "3 of 18 values were clipped" in other.notes
    assert other.spent() == whole.spent()
    assert math.isinf(other.spent().epsilon)
    assert other.clock.take() == whole.clock.take()


def test_what_is_no_account_is_refused_and_changes_nothing():
    one = account()
    state = msgspec.msgpack.decode(one.state())
    for told in (
        [("SomethingElse", {})],
        [("OpenedSum", {"round": "first"})],
        [("Noise", {"multiplier": 1.0})],
    ):
        with pytest.raises(WireFormatError, match="an event that is of no kind"):
            one.restore(msgspec.msgpack.encode(state | {"told": told}))
    with pytest.raises(WireFormatError, match="no account that this version can read"):
        one.restore(b"\x00")
    assert one.book.all == EVENTS
