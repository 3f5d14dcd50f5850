"""What events mean for epsilon, in whatever order they are told of."""

from __future__ import annotations

import itertools
import math

import pytest

from shieldfl.errors import ParameterError
from shieldfl.privacy.events import (
    ClearUpload,
    DataRelease,
    EncryptedUpload,
    Noise,
    NoisedUpload,
    OpenedSum,
    PrivacyEvents,
)
from shieldfl.privacy.reading import PrivacyReading

NOISE = Noise(1.0, "sample")
NOISED = NoisedUpload(3, 0, NOISE)
HIDDEN = EncryptedUpload(1, 0)
OPENED = OpenedSum(1)


def _is_late(first: object, second: object) -> bool:
    """Whether an upload that depends on its model is told of after the sum of its round, which had no noise."""
    uploads = isinstance(second, (NoisedUpload, ClearUpload))
    return isinstance(first, OpenedSum) and uploads and second.round == first.round


def test_what_is_told_of_after_its_own_rounds_sum_may_have_started_from_the_moved_model():
    own = NoisedUpload(1, 3, NOISE)
    assert epsilon_of(own, HIDDEN, OPENED) == 2.5
    assert math.isinf(epsilon_of(HIDDEN, OPENED, own))
    # A sum of noised values moves the model by nothing that noise does not cover.
    assert epsilon_of(EncryptedUpload(1, 0, NOISE), OPENED, own) == 2.5


def epsilon_of(*events: object) -> float:
    return PrivacyEvents(events).spent(2.5, 2.0, 1e-5, 3).epsilon


@pytest.mark.parametrize(
    "events",
    [
        (NOISED,),
        (DataRelease(NOISE), ClearUpload(1, 0, synthetic=True)),
        # What was encrypted with noise is opened with it.
        (EncryptedUpload(1, 0, NOISE), OPENED),
        (EncryptedUpload(1, 0, NOISE), EncryptedUpload(1, 1, NOISE), OPENED, NOISED),
        # Synthetic data tell nothing of their own.
        (DataRelease(NOISE), EncryptedUpload(1, 0, synthetic=True), OPENED, NOISED),
        # Opened after all that is readable, or never.
        (NOISED, EncryptedUpload(4, 0), OpenedSum(4)),
        (HIDDEN, NOISED),
        # Independent of any model.
        (HIDDEN, OPENED, DataRelease(NOISE)),
    ],
)
def test_what_noise_covers_costs_what_it_was_charged(events):
    assert epsilon_of(*events) == 2.5
    assert PrivacyEvents(events).reason is None
    assert PrivacyEvents(events).all == events
    for order in itertools.permutations(events):
        # Infinite at most where a sum comes before uploads of its own round.
        late = any(
            order.index(one) < order.index(two) for one in events for two in events if _is_late(one, two)
        )
        assert epsilon_of(*order) == (math.inf if late else 2.5)


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ((ClearUpload(1, 0),), "depends on the data (values) is readable"),
        ((NOISED, ClearUpload(3, 0, "mask")), "data (mask) is readable"),
        ((HIDDEN, OPENED, NOISED), "updates with noise of round 3 depend on the sum of round 1"),
        ((HIDDEN, OPENED, ClearUpload(2, 1, synthetic=True)), "synthetic data of round 2 depend"),
        # One upload without noise is enough, whoever's.
        ((EncryptedUpload(1, 0, NOISE), EncryptedUpload(1, 1), OPENED, NOISED), "sum of round 1"),
        # A sum of which nothing is known.
        ((OPENED, NOISED), "sum of round 1"),
        ((EncryptedUpload(2, 0, NOISE), OPENED, NOISED), "sum of round 1"),
    ],
)
def test_what_no_noise_covers_has_no_bound_and_a_reason(events, words):
    spent = PrivacyEvents(events).spent(2.5, 2.0, 1e-5, 3)
    assert math.isinf(spent.epsilon)
    assert spent.of_noise == 2.5
    assert words in spent.reason
    # For ever, and whoever reports first.
    more = PrivacyEvents((*events, NOISED))
    assert more.reason == spent.reason
    for order in itertools.permutations(events):
        assert PrivacyEvents(order).reason == spent.reason


@pytest.mark.parametrize("events", [(), (HIDDEN,), (HIDDEN, OPENED), (ClearUpload(1, 0, synthetic=True),)])
def test_where_no_noise_was_needed_there_is_no_figure(events):
    assert math.isnan(epsilon_of(*events))


def test_parts_that_are_readable_are_named_once():
    events = PrivacyEvents([ClearUpload(1, 0, "mask"), ClearUpload(1, 1, "mask"), ClearUpload(1, 0), HIDDEN])
    assert events.readable_parts == ("mask",)


@pytest.mark.parametrize(
    "event",
    ["upload", None, NOISE, object(), NoisedUpload(1, 0, Noise(0.0, "client")), DataRelease(Noise(1.0, "x"))],
)
def test_an_unknown_event_is_refused(event):
    events = PrivacyEvents([NOISED])
    with pytest.raises(ParameterError):
        events.add(event)
    assert events.all == (NOISED,)


@pytest.mark.parametrize(
    "stated",
    [
        ("client", None, None, "x"),
        (None, "everybody", None, "x"),
        ("client", "everybody", None, "x"),
        ("record", "everybody", "one added", "x"),
        (None, None, None, ""),
    ],
)
def test_half_a_reading_is_refused(stated):
    with pytest.raises(ParameterError):
        PrivacyReading(*stated)
