"""What events mean for epsilon and what they cost, in whatever order they are told of."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import replace

import pytest

from shieldfl.errors import ParameterError
from shieldfl.privacy.accountant import epsilon_of
from shieldfl.privacy.book import PrivacyBook, PrivacySpent
from shieldfl.privacy.events import (
    ClearUpload,
    ClientsDrawn,
    DataRelease,
    EncryptedUpload,
    Noise,
    NoisedUpload,
    NoiseOfDrawnSum,
    NoiseOfSum,
    NoiseShareUpload,
    OpenedSum,
    PrivacyReading,
    ReadSum,
    SummedUploads,
)

DELTA = 1e-5
NOISE = Noise(1.0, "sample")
ONCE = epsilon_of({NOISE: 1}, DELTA)
NOISED = NoisedUpload(3, 0, NOISE)
HIDDEN = EncryptedUpload(1, 0)
OPENED = OpenedSum(1)


def _is_late(first: object, second: object) -> bool:
    """Whether an upload that depends on its model is told of after the sum of its round, which had no noise."""
    uploads = isinstance(second, (NoisedUpload, ClearUpload))
    return isinstance(first, OpenedSum) and uploads and second.round == first.round


def test_what_is_told_of_after_its_own_rounds_sum_may_have_started_from_the_moved_model():
    own = NoisedUpload(1, 3, NOISE)
    assert spent(own, HIDDEN, OPENED).epsilon == ONCE
    assert math.isinf(spent(HIDDEN, OPENED, own).epsilon)
    # A sum of noised values moves the model by nothing that noise does not cover.
    assert spent(EncryptedUpload(1, 0, NOISE), OPENED, own).epsilon == ONCE


def spent(*events: object) -> PrivacySpent:
    return PrivacyBook(events).spent(DELTA)


def cost(*noises: Noise) -> float:
    return epsilon_of(Counter(noises), DELTA)


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
    figures = spent(*events)
    assert figures.epsilon == figures.of_noise == figures.if_participants_true >= ONCE
    assert figures.reason is None
    assert PrivacyBook(events).all == events
    for order in itertools.permutations(events):
        # Infinite at most where a sum comes before uploads of its own round.
        late = any(
            order.index(one) < order.index(two) for one in events for two in events if _is_late(one, two)
        )
        again = spent(*order)
        assert again.epsilon == (math.inf if late else figures.epsilon)
        assert again.of_noise == figures.of_noise


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
    figures = spent(*events)
    assert math.isinf(figures.epsilon)
    assert math.isnan(figures.of_noise) or ONCE <= figures.of_noise < math.inf
    assert words in figures.reason
    # For ever, and whoever reports first.
    assert spent(*events, NOISED).reason == figures.reason
    for order in itertools.permutations(events):
        assert PrivacyBook(order).reason == figures.reason


@pytest.mark.parametrize("events", [(), (HIDDEN,), (HIDDEN, OPENED), (ClearUpload(1, 0, synthetic=True),)])
def test_where_no_noise_was_needed_there_is_no_figure(events):
    assert math.isnan(spent(*events).epsilon)
    assert math.isnan(spent(*events).of_noise)


def test_parts_that_are_readable_are_named_once():
    events = PrivacyBook([ClearUpload(1, 0, "mask"), ClearUpload(1, 1, "mask"), ClearUpload(1, 0), HIDDEN])
    assert events.readable_parts == ("mask",)


OF_SUM = NoiseOfSum("skellam", 3, 400, 1200, 5, -100.0)


CLIENT = Noise(2.0, "client")
NO_EVENTS = ("upload", None, NOISE, object(), NoisedUpload(1, 0, None), DataRelease("1.0"))
NOISE_OF_OTHERS = (NoiseShareUpload(1, 0, NOISE), NoisedUpload(1, 0, OF_SUM), EncryptedUpload(1, 0, OF_SUM))
OF_ANOTHER_UNIT = (NoisedUpload(1, 1, CLIENT), EncryptedUpload(1, 1, CLIENT), ClientsDrawn(4, CLIENT))


@pytest.mark.parametrize(
    ("event", "words"),
    [
        *((event, "no privacy event|what noise it had") for event in (*NO_EVENTS, *NOISE_OF_OTHERS)),
        *((event, "do not add up") for event in OF_ANOTHER_UNIT),
    ],
)
def test_an_event_that_is_none_or_of_another_unit_is_refused(event, words):
    book = PrivacyBook([NOISED])
    before = book.spent(DELTA)
    with pytest.raises(ParameterError, match=words):
        book.add(event)
    assert book.all == (NOISED,)
    assert book.spent(DELTA) == before


def test_noise_needs_a_delta():
    with pytest.raises(ParameterError, match="delta"):
        PrivacyBook([NOISED]).spent(math.nan)
    assert math.isnan(PrivacyBook([HIDDEN]).spent(math.nan).epsilon)


def test_the_client_that_spent_most_is_reported():
    steps = Noise(1.0, "sample", 0.1, 10)
    uploads = [
        NoisedUpload(1, 0, steps),
        NoisedUpload(1, 1, replace(steps, sample_rate=0.5)),
        NoisedUpload(1, 2, replace(steps, steps=5)),
        NoisedUpload(2, 2, replace(steps, steps=6)),
    ]
    figures = spent(*uploads)
    assert figures.epsilon == figures.of_noise == cost(replace(steps, sample_rate=0.5))
    assert (figures.rounds, figures.steps) == (2, 11)
    assert spent(*uploads[2:]).epsilon == cost(replace(steps, steps=5), replace(steps, steps=6))
    # What was made from the data of all is charged to all, who has sent something and who has not.
    release = DataRelease(NOISE)
    assert spent(release).epsilon == ONCE
    assert spent(*uploads[:1], release).epsilon == cost(steps, NOISE)
    assert spent(*uploads[:1], release, release).steps == 12


def test_what_is_encrypted_and_what_is_readable_of_one_release_is_charged_once():
    hidden, readable = EncryptedUpload(1, 0, NOISE), NoisedUpload(1, 0, NOISE)
    for events in ((hidden,), (readable,), (hidden, readable), (readable, hidden)):
        assert spent(*events).of_noise == ONCE
    # Fresh noise for the same round is a release more, and so is something else than values.
    twice = cost(NOISE, NOISE)
    assert spent(hidden, readable, hidden).of_noise == spent(readable, readable).of_noise == twice
    assert spent(readable, NoisedUpload(1, 0, NOISE, "sensitivity")).of_noise == twice
    assert spent(hidden, NoisedUpload(1, 0, NOISE, "sensitivity")).of_noise == twice
    assert spent(hidden, NoisedUpload(1, 0, replace(NOISE, multiplier=2.0))).of_noise > ONCE
    assert spent(hidden, NoisedUpload(2, 0, NOISE)).of_noise == twice
    assert spent(hidden, NoisedUpload(1, 1, NOISE)).of_noise == ONCE


together = CLIENT.added_by


def test_who_sees_means_alone_sees_the_noise_of_all_that_were_summed():
    uploads = [NoisedUpload(number, client, CLIENT) for number in (1, 2) for client in range(3)]
    figures = spent(*uploads, SummedUploads(1, 3))
    assert figures.of_noise == figures.epsilon == cost(CLIENT, CLIENT)
    # A round that was given up showed each update with its own noise alone.
    assert figures.if_participants_true == cost(together(3), CLIENT)
    finished = spent(*uploads, SummedUploads(1, 3), SummedUploads(2, 3))
    assert finished.if_participants_true == cost(together(3), together(3)) < figures.if_participants_true
    # The difference of two means of one round may be one client's update.
    twice = spent(*uploads, SummedUploads(1, 3), SummedUploads(1, 2), SummedUploads(2, 3))
    assert twice.if_participants_true == figures.if_participants_true


def test_draws_are_charged_to_all_and_pay_for_uploads():
    draws = [ClientsDrawn(count, CLIENT) for count in (4, 0, 9)]
    figures = spent(*draws)
    assert figures.of_noise == cost(CLIENT, CLIENT, CLIENT)
    # With nobody drawn, one: the least noise that a client could have added.
    assert figures.if_participants_true == cost(together(4), together(1), together(9))
    assert (figures.rounds, figures.steps) == (3, 3)
    assert math.isnan(figures.epsilon)
    uploads = [NoisedUpload(number, 7, CLIENT) for number in range(1, 6)]
    assert spent(*draws, *uploads[:3]).epsilon == figures.of_noise
    # Uploads of rounds that nobody told of are charged beside, as if alone.
    more = spent(*draws, *uploads)
    assert more.of_noise == more.epsilon == cost(*[CLIENT] * 5)
    assert more.if_participants_true == cost(together(4), together(1), together(9), CLIENT, CLIENT)
    assert (more.rounds, more.steps) == (5, 5)
    assert spent(*uploads, *draws) == more
    # A draw that says nothing of noise pays for none.
    free = spent(*(replace(draw, noise=None) for draw in draws), *uploads)
    assert free.of_noise == cost(*[CLIENT] * 5)
    assert spent(*(ClientsDrawn(4) for _ in range(3))).rounds == 3
    with pytest.raises(ParameterError, match="participants"):
        ClientsDrawn(-1, CLIENT)


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


@pytest.mark.parametrize("opened", [(), (OpenedSum(1),), (ReadSum(1),)], ids=["hidden", "opened", "read"])
def test_a_sum_with_noise_is_charged_once_for_each_upload_whoever_reads_it(opened):
    figures = spent(NoiseShareUpload(1, 0, OF_SUM), NoiseShareUpload(1, 1, OF_SUM), *opened)
    once = epsilon_of({OF_SUM: 1}, DELTA)
    assert figures == PrivacySpent(once, once, once, DELTA, 0, 1)
    # The largest of all clients: one that takes part in two rounds.
    again = spent(
        NoiseShareUpload(1, 0, OF_SUM),
        *opened,
        NoiseShareUpload(2, 0, OF_SUM),
        NoiseShareUpload(2, 1, OF_SUM),
    )
    assert again.epsilon == again.of_noise == epsilon_of({OF_SUM: 2}, DELTA)
    assert again.reason is None


@pytest.mark.parametrize(
    "other",
    [
        (EncryptedUpload(1, 2), OpenedSum(1)),  # of the same round: some of the sum has no noise
        (EncryptedUpload(2, 2), OpenedSum(2)),
        (OpenedSum(3),),
        (ClearUpload(1, 2),),
    ],
)
def test_a_sum_without_noise_ends_what_holds_against_those_who_see_opened_sums(other):
    for events in itertools.permutations((NoiseShareUpload(1, 0, OF_SUM), OpenedSum(1), *other)):
        figures = spent(*events)
        assert math.isinf(figures.epsilon)
        assert figures.of_noise == epsilon_of({OF_SUM: 1}, DELTA)
        assert "without noise" in figures.reason


def test_too_little_noise_on_a_sum_is_said_to_be():
    figures = spent(NoiseShareUpload(1, 0, replace(OF_SUM, share_variance=1)))
    assert math.isinf(figures.epsilon)
    assert "too little noise" in figures.reason


@pytest.mark.parametrize("opened", [OpenedSum(2), ReadSum(2)])
def test_a_sum_of_which_nobody_has_told_is_no_run_without_a_figure(opened):
    noised = EncryptedUpload(1, 0, Noise(3.0, "client"))
    for sent in ([EncryptedUpload(1, 0)], [noised], [NoisedUpload(1, 0, Noise(3.0, "client")), noised]):
        spent = PrivacyBook([*sent, OpenedSum(1), opened]).spent(1e-5)
        assert spent.epsilon == math.inf
        assert "opened" in spent.reason
    assert math.isnan(PrivacyBook([EncryptedUpload(1, 0), OpenedSum(1)]).spent(1e-5).epsilon)


def shared(round_number: int, unit: str = "sample") -> NoiseShareUpload:
    return NoiseShareUpload(round_number, 0, NoiseOfSum("skellam", 3, 400, 1200, 5, -100.0, unit))


def test_noise_of_sums_that_is_charged_for_samples_adds_up_with_that_of_private_training():
    uploads = shared(1), OpenedSum(1), NOISED, OpenedSum(3), shared(4), OpenedSum(4)
    expected = epsilon_of({NOISE: 1, shared(1).noise: 2}, DELTA)
    assert spent(*uploads).epsilon == expected > ONCE
    # Where clients open, all rounds' sums are said to be opened, also of rounds in which nothing is encrypted.
    public = ClearUpload(2, 0, synthetic=True)
    assert spent(*uploads, public, OpenedSum(2)).epsilon == expected
    assert math.isinf(spent(*uploads, OpenedSum(2)).epsilon)
    # Where sums have no noise, another client may have encrypted what it has not told of.
    assert math.isinf(spent(NOISED, OpenedSum(3), replace(NOISED, round=4)).epsilon)
    assert math.isinf(spent(*uploads, EncryptedUpload(3, 1)).epsilon)
    with pytest.raises(ParameterError, match="do not add up"):
        PrivacyBook([shared(1), shared(2, "client")])


@pytest.mark.parametrize("unit", ["client", "sample"])
def test_only_whole_clients_have_a_figure_for_who_sees_no_participation(unit):
    events = [ClientsDrawn(3, drawn_from=30), *(replace(shared(1, unit), client=one) for one in range(3))]
    hidden = PrivacyBook(events).spent(DELTA).if_participation_hidden
    assert math.isnan(hidden) == (unit == "sample")
    with pytest.raises(ParameterError, match="whole clients"):
        NoiseOfDrawnSum(shared(1).noise, 3, 30)
