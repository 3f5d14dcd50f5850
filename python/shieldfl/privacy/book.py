"""The book of a run: what its events have cost, and whether an epsilon can still hold.

Noise that a client adds itself hides what its own data did to what it sends, for a given model to start from.
It does not hide what that model tells. So no epsilon holds for what is sent after the model has moved by a
sum that was opened without noise: not for updates with noise, and not for updates from synthetic data alone,
from which the model before them can be computed. Encryption is no epsilon: what nobody but the key authority
can read needs none and gets none.

Where all clients' noise comes together in a sum, the opened sum is what is charged for, and the model that
has moved by it tells no more than it does. Then an epsilon is against those who see opened sums, and none may
be without noise.

Neighbours are two runs with the same participants. In one, all that a client or a sample (the unit)
contributes is there; in the other, zeros replace it. A run without the client at all is no neighbour: it has
one participant less, which shows in messages, in the noise that SelectiveShield adds (its text under eq. 21:
N(0, (C sigma)^2 K) with K participants) and in the divisor of a mean.
"""

from __future__ import annotations

import math
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from operator import gt
from typing import Any

from shieldfl.errors import ParameterError
from shieldfl.privacy.accountant import Charge, epsilon_of
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
    PrivacyEvent,
    ReadSum,
    SummedUploads,
)

_Charges = Counter[tuple[Noise | NoiseOfSum, int]]
"""Charges of one client: how often each mechanism is charged, by number of clients that added such noise."""

_NEVER = sys.maxsize
"""Round number after every round."""


def _note_first(found: dict[int, str], round_number: int, what: str) -> None:
    """Keep one text a round, the same for any order of events: ``"values"`` only if there is no other."""
    known = found.get(round_number, what)
    found[round_number] = min(known, what, key=lambda one: (one == "values", one))


@dataclass(frozen=True)
class PrivacySpent:
    """What a run has spent; a method's ``privacy_reading`` says for whom and against whom."""

    epsilon: float
    """The epsilon that holds; ``math.inf`` if nothing bounds what the run tells.

    NaN if nothing readable has left that noise would have to cover: encryption gets no figure.
    """
    of_noise: float
    """The epsilon that the noise alone was charged: ``epsilon`` if nothing else told of the data. NaN without
    noise."""
    if_participants_true: float
    """``of_noise`` with the noise that all participants of a round added together, sigma * sqrt(K).

    It holds only if the server stated the true number of participants. It is ``of_noise`` if a method has one
    figure.
    """
    delta: float
    rounds: int
    """Number of draws of clients or, if more, of noised uploads of the client that sent most."""
    steps: int
    """Number of noised steps that the client with most of them was charged."""
    reason: str | None = None
    """Sentence that says why ``epsilon`` is infinite; None if it is not."""
    if_participation_hidden: float = math.nan
    """The epsilon against those who see only opened sums and how many clients took part, but not which.

    It holds for every client, in the sums or not. NaN if clients are not known to be drawn so that this is
    less, or if noise is of another kind than that of sums.
    """


class PrivacyBook:
    """The events of one run, reported in any order.

    Their meaning follows from their rounds: all that leaves in a round starts from the model before it. The
    driver of the rounds is taken at its word for that. An event that is reported after the opened sum of its
    own round may have started from the model that this sum moved, and counts as if it had. So a key
    authority's report belongs after the clients' of the same round: before them no figure is too low, but
    some are infinite.
    """

    def __init__(self, events: Iterable[PrivacyEvent] = ()) -> None:
        self._events: list[PrivacyEvent] = []
        self._told: defaultdict[type, list[Any]] = defaultdict(list)
        """Events by their class."""
        self._rounds: defaultdict[type, set[int]] = defaultdict(set)
        """Rounds of the events, by class."""
        self._unit: str | None = None
        self._bare: set[int] = set()
        """Rounds in which values from real data were encrypted without noise."""
        self._hidden_releases: list[Any] = []
        """Uploads that are encrypted, and have noise."""
        self._clear: dict[int, str] = {}
        """What became readable without noise and tells of real data, by round."""
        self._dependent: dict[int, str] = {}
        """What was sent with noise that covers no sum opened before it, by round."""
        self._late: set[int] = set()
        """Rounds in which such an upload was reported after their own sum was opened."""
        for event in events:
            self.add(event)

    @property
    def all(self) -> tuple[PrivacyEvent, ...]:
        return tuple(self._events)

    @property
    def readable_parts(self) -> tuple[str, ...]:
        """Names of what became readable without noise beside values of updates, such as a mask."""
        return tuple(dict.fromkeys(one.what for one in self._told[ClearUpload] if one.what != "values"))

    def add(self, event: PrivacyEvent) -> None:
        """Take one event.

        Raises ParameterError, and takes nothing, for an event of an unknown kind, since none is assumed to be
        harmless; and for noise of another unit than before, since the two do not add up to a figure of
        either.
        """
        if not isinstance(event, PrivacyEvent):
            raise ParameterError(f"{type(event).__name__} is no privacy event that can be interpreted")
        noise = self._checked_noise(event)
        self._unit = self._unit if noise is None else noise.unit
        self._events.append(event)
        self._told[type(event)].append(event)
        if hasattr(event, "round"):
            self._rounds[type(event)].add(event.round)
        match event:
            case EncryptedUpload(noise=None, synthetic=False):
                self._bare.add(event.round)
            case EncryptedUpload(noise=Noise()) | NoiseShareUpload():
                self._hidden_releases.append(event)
            case ClearUpload(synthetic=False):
                _note_first(self._clear, event.round, event.what)
            case ClearUpload():
                self._add_dependent(event.round, "updates from synthetic data")
            case NoisedUpload():
                self._add_dependent(event.round, "updates with noise")

    def _add_dependent(self, round_number: int, what: str) -> None:
        _note_first(self._dependent, round_number, what)
        if round_number in self._rounds[OpenedSum] or round_number in self._rounds[ReadSum]:
            self._late.add(round_number)

    def _checked_noise(self, event: PrivacyEvent) -> Noise | NoiseOfSum | None:
        noise = getattr(event, "noise", None)
        is_of_sum = isinstance(event, NoiseShareUpload)
        if is_of_sum != isinstance(noise, NoiseOfSum) or (
            isinstance(event, NoisedUpload | DataRelease) and not isinstance(noise, Noise)
        ):
            raise ParameterError("a noised upload or release says what noise it had")
        if not isinstance(noise, Noise | NoiseOfSum):
            return None
        if self._unit not in (None, noise.unit):
            raise ParameterError("noise of clients and noise of samples do not add up: a method has one unit")
        return noise

    @property
    def reason(self) -> str | None:
        """Why no epsilon holds any more, in a sentence on the first such event; None as long as one may."""
        rounds, dependent = self._rounds, self._dependent
        opened, seen = rounds[OpenedSum] | rounds[ReadSum], rounds[ReadSum]
        # A sum of which no upload is known may hold anything.
        noised = rounds[EncryptedUpload] | rounds[NoiseShareUpload]
        if rounds[NoiseShareUpload]:
            # There all clients of a round encrypt alike, so that a sum beside what is readable is of nothing;
            # and what is charged for is against those who see opened sums.
            noised, seen = noised | dependent.keys(), opened
        noised = noised - self._bare
        readable = dict.fromkeys(seen - noised, "an opened sum") | self._clear
        first_opened, first_clear = min(opened - noised, default=_NEVER), min(readable, default=_NEVER)
        after = [number for number in dependent if number > first_opened]
        first = min([*after, *self._late & {first_opened}], default=_NEVER)
        if first_clear < _NEVER and first_clear <= first:
            what = f"something that depends on the data ({readable[first_clear]})"
            return f"ε is ∞ because {what} is readable without noise that a proof covers"
        if first < _NEVER:
            return (
                f"ε is ∞ because {dependent[first]} of round {first} depend on the sum of round "
                f"{first_opened}, which was opened without noise"
            )
        if opened - noised - rounds[ClearUpload] - rounds[NoisedUpload] - self._bare:
            return "ε is ∞ because a sum was opened and no client reported what it put in"
        return None

    def spent(self, delta: float) -> PrivacySpent:
        """Return the figures that hold, and those of the noise alone.

        Raises ParameterError for noise without a delta.
        """
        charged = self._charged()
        own, together = self._largest(charged, delta), self._largest(charged, delta, stated=True)
        # Encryption gets no figure, nor does noise on a part of what was encrypted.
        covered = {one.round for one in self._hidden_releases} - self._bare
        has_figure = any((covered, self._told[NoisedUpload], self._told[DataRelease]))
        epsilon, reason = own if has_figure else math.nan, self.reason
        hidden = self._if_participation_hidden(delta)
        if reason is None and math.isinf(epsilon):
            reason = "ε is ∞ because there is too little noise for any figure that delta leaves"
        if reason is not None:
            epsilon, hidden = math.inf, hidden if math.isnan(hidden) else math.inf
        uploads = Counter(event.client for event in self._told[NoisedUpload])
        rounds = max(len(self._told[ClientsDrawn]), *uploads.values(), 0)
        steps = max(sum(noise.steps * times for (noise, _), times in one.items()) for one in charged)
        return PrivacySpent(epsilon, own, together, delta, rounds, steps, reason, hidden)

    def _if_participation_hidden(self, delta: float) -> float:
        """Return the figure against those who do not see which clients take part; NaN if unproved."""
        told = self._told
        draws, uploads = told[ClientsDrawn], told[NoiseShareUpload]
        covered = len(draws) + len(uploads) + len(told[OpenedSum]) + len(told[ReadSum])
        noises = {event.noise for event in uploads}
        populations = {draw.drawn_from for draw in draws}
        if covered < len(self._events) or not len(noises) == len(populations) == 1:
            return math.nan
        (noise,), (population,) = noises, populations
        sent = Counter(event.round for event in uploads)
        # Every round has a draw of its own, with as many at least as have sent, and nobody sends twice.
        largest = sorted((draw.participants for draw in draws), reverse=True)[: len(sent)]
        if (
            noise.unit != "client"
            or population is None
            or len(set(uploads)) < len(uploads)
            or len(largest) < len(sent)
            or any(map(gt, sorted(sent.values(), reverse=True), largest))
        ):
            return math.nan
        # The largest draws stand for all: a larger share of the clients costs more.
        charges: Counter[Charge] = Counter(NoiseOfDrawnSum(noise, most, population) for most in largest)
        return epsilon_of(charges, delta)

    @staticmethod
    def _largest(charged: list[_Charges], delta: float, *, stated: bool = False) -> float:
        """Return the largest epsilon of all clients; NaN if there are no charges.

        ``stated`` is with the noise of all participants.
        """
        found = set()
        for one in filter(None, charged):
            charges: Counter[Charge] = Counter()
            for (noise, count), times in one.items():
                charges[noise.added_by(count) if stated and isinstance(noise, Noise) else noise] += times
            found.add(frozenset(charges.items()))
        return max((epsilon_of(dict(one), delta) for one in found), default=math.nan)

    def _charged(self) -> list[_Charges]:
        """Return the charges of each client that has sent noised values; first come those of all others."""
        everybody: _Charges = Counter()
        paid: Counter[Noise | NoiseOfSum] = Counter()
        for draw in self._told[ClientsDrawn]:
            if draw.noise is not None:
                everybody[draw.noise, max(draw.participants, 1)] += 1
                paid[draw.noise] += 1
        everybody.update((release.noise, 1) for release in self._told[DataRelease])
        participants: dict[int, int] = {}
        for summed in self._told[SummedUploads]:
            # The difference of two means of a round may be one client's update, with its own noise alone.
            participants[summed.round] = 1 if summed.round in participants else max(summed.clients, 1)
        sent: defaultdict[int, Counter[tuple[Noise | NoiseOfSum, int, str | None]]] = defaultdict(Counter)
        for event in self._told[NoisedUpload] + self._hidden_releases:
            sent[event.client][event.noise, event.round, getattr(event, "what", None)] += 1
        charged = [everybody]
        for releases in sent.values():
            uploads: defaultdict[Noise | NoiseOfSum, list[int]] = defaultdict(list)
            for (noise, number, what), count in releases.items():
                # What is encrypted is of one release with the readable values of its round.
                others = releases[noise, number, "values"] if what is None else 0
                uploads[noise] += [participants.get(number, 1)] * (count - others)
            own = everybody.copy()
            for noise, counts in uploads.items():
                # A draw that is charged pays for an upload.
                own.update((noise, count) for count in sorted(counts)[: max(len(counts) - paid[noise], 0)])
            charged.append(own)
        return charged
