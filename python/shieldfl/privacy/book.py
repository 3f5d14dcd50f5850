"""The book of a run: what its events have cost, and whether an epsilon can still hold.

Noise that a client adds itself hides what its own data did to what it sends, for a given model to start from. It does
not hide what that model tells. So no epsilon holds for what is sent after the model has moved by a sum that was opened
without noise: not for updates with noise, and not for updates from synthetic data alone, from which the model before
them can be computed. Encryption is no epsilon: what nobody but the key authority can read needs none and gets none.

Where all clients' noise comes together in a sum, the opened sum is what is charged for, and the model that has moved by
it tells no more than it does. Then an epsilon is against those who see opened sums, and none may be without noise.

Neighbours are two runs with the same participants, in which all that one of the unit, a client or a sample,
contributes is there, or zeros in its place. A run without the client at all is no neighbour: it would have one
participant less, which shows in messages, in the noise that SelectiveShield adds (its text under eq. 21:
N(0, (C sigma)^2 K) with K participants) and in the divisor of a mean.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

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

_Charges = defaultdict[Noise | NoiseOfSum, list[int]]
"""What one client is charged: by mechanism, of each release how many clients took part, whose noise is as large."""


def _note_first(found: dict[int, str], round_number: int, what: str) -> None:
    """Keep one thing a round, the same in whatever order they come: what leads to values before values."""
    known = found.get(round_number, what)
    found[round_number] = min(known, what, key=lambda one: (one == "values", one))


@dataclass(frozen=True)
class PrivacySpent:
    """What a run has spent; a method's ``privacy_reading`` says for whom and against whom."""

    epsilon: float
    """What holds. ``math.inf`` where nothing bounds what the run tells; NaN where nothing readable has left that
    noise would have to cover: encryption gets no figure."""
    of_noise: float
    """What the noise alone was charged: ``epsilon`` if nothing else told of the data. NaN without noise."""
    if_participants_true: float
    """The same, with the noise that all participants of a round added together, sigma * sqrt(K): it holds only if
    the number of participants that the server stated was true. ``of_noise`` where a method has one figure."""
    delta: float
    rounds: int
    """Draws of clients, or where one that sent noised values more often was not told of them all, its uploads."""
    steps: int
    """How often noise was drawn that the client with most of it was charged for."""
    reason: str | None = None
    """Why ``epsilon`` is infinite, as a sentence."""
    if_participation_hidden: float = math.nan
    """What holds against those alone who see opened sums, and how many clients took part, and not which: of every
    client, in the sums or not. NaN where it is not known that clients were drawn so that this is less, or where
    noise is of another kind than that of sums."""


class PrivacyBook:
    """The events of one run, in whatever order they are told of.

    What they mean follows from their rounds: all that leaves in a round starts from the model before it. Whoever drives
    the rounds is taken at their word for that. What is told of after the opened sum of its own round may have started
    from the model that this sum moved, and counts as if it had. So a key authority's report belongs behind the clients'
    of the same round: before them no figure is too low, but some are infinite.
    """

    def __init__(self, events: Iterable[PrivacyEvent] = ()) -> None:
        self._events: list[PrivacyEvent] = []
        self._unit: str | None = None
        for event in events:
            self.add(event)

    @property
    def all(self) -> tuple[PrivacyEvent, ...]:
        return tuple(self._events)

    @property
    def readable_parts(self) -> tuple[str, ...]:
        """Names of what became readable without noise beside values of updates, such as a mask."""
        clear = (event.what for event in self._events if isinstance(event, ClearUpload))
        return tuple(dict.fromkeys(what for what in clear if what != "values"))

    def add(self, event: PrivacyEvent) -> None:
        """Take one event.

        Raises ParameterError, and takes nothing, for one of an unknown kind, since nothing is taken for harmless; and
        for noise of another unit than before, since theirs do not add up to a figure of either.
        """
        if not isinstance(event, PrivacyEvent):
            raise ParameterError(f"{type(event).__name__} is no privacy event that can be interpreted")
        noise = self._checked_noise(event)
        self._unit = self._unit if noise is None else noise.unit
        self._events.append(event)

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
        """Why no epsilon holds any more, as a sentence: the first such event's; None as long as one may."""
        bare, opened, seen = self._bare, self._rounds(OpenedSum, ReadSum), self._rounds(ReadSum)
        # A sum of which no upload is known may hold anything.
        noised = self._rounds(EncryptedUpload, NoiseShareUpload) - bare
        clear, dependent, late, over = dict[int, str](), dict[int, str](), set[int](), set[int]()
        for event in self._events:
            if isinstance(event, OpenedSum | ReadSum):
                over.add(event.round)
            elif isinstance(event, ClearUpload) and not event.synthetic:
                _note_first(clear, event.round, event.what)
            elif isinstance(event, ClearUpload | NoisedUpload):
                # Its noise covers no sum that was opened before.
                with_noise = isinstance(event, NoisedUpload)
                what = "updates with noise" if with_noise else "updates from synthetic data"
                _note_first(dependent, event.round, what)
                late |= over & {event.round}
        if self._rounds(NoiseShareUpload):
            # There all clients of a round encrypt alike, so that a sum beside what is readable is of nothing; and what
            # is charged for is against those who see opened sums.
            noised, seen = noised | (dependent.keys() - bare), opened
        readable = dict.fromkeys(seen - noised, "an opened sum") | clear
        first_opened = min(opened - noised, default=None)
        first_clear = min(readable, default=None)
        first = None
        if first_opened is not None:
            after = [number for number in dependent if number > first_opened]
            first = min([*after, *late & {first_opened}], default=None)
        if first_clear is not None and (first is None or first_clear <= first):
            what = f"something that depends on the data ({readable[first_clear]})"
            return f"ε is ∞ because {what} is readable without noise that a proof covers"
        if first is not None:
            return (
                f"ε is ∞ because {dependent[first]} of round {first} depend on the sum of round "
                f"{first_opened}, which was opened without noise"
            )
        return None

    @property
    def _bare(self) -> set[int]:
        """Rounds in which something real was encrypted that had no noise."""
        encrypted = (event for event in self._events if isinstance(event, EncryptedUpload))
        return {event.round for event in encrypted if event.noise is None and not event.synthetic}

    def _rounds(self, *kinds: type) -> set[int]:
        return {event.round for event in self._events if isinstance(event, kinds)}  # type: ignore[union-attr]

    def spent(self, delta: float) -> PrivacySpent:
        """Return what holds, and what the noise was charged. Raises ParameterError for noise without a delta."""
        charged = self._charged()
        own, together = (self._largest(charged, delta, stated=stated) for stated in (False, True))
        # Encryption gets no figure, nor does noise on a part of what was encrypted.
        noised = {
            one.round
            for one in self._events
            if isinstance(one, EncryptedUpload | NoiseShareUpload) and one.noise is not None
        }
        has_figure = noised - self._bare or any(
            isinstance(one, NoisedUpload | DataRelease) for one in self._events
        )
        epsilon, reason = own if has_figure else math.nan, self.reason
        if reason is not None:
            epsilon = math.inf
        elif self._rounds(OpenedSum, ReadSum) - self._rounds(
            ClearUpload, EncryptedUpload, NoiseShareUpload, NoisedUpload
        ):
            epsilon = math.inf
            reason = "ε is ∞ because a sum was opened, and no client has told what it had put into it"
        elif math.isinf(epsilon):
            reason = "ε is ∞ because there is too little noise for any figure that delta leaves"
        uploads = Counter(event.client for event in self._events if isinstance(event, NoisedUpload))
        draws = sum(isinstance(event, ClientsDrawn) for event in self._events)
        steps = max(sum(noise.steps * len(stated) for noise, stated in one.items()) for one in charged)
        hidden = self._if_participation_hidden(delta)
        if reason is not None and not math.isnan(hidden):
            hidden = math.inf
        rounds = max(draws, *uploads.values(), 0)
        return PrivacySpent(epsilon, own, together, delta, rounds, steps, reason, hidden)

    def _if_participation_hidden(self, delta: float) -> float:
        """Return the figure for who does not see which clients take part; NaN for anything that it is not proved of."""
        draws = [event for event in self._events if isinstance(event, ClientsDrawn)]
        uploads = [event for event in self._events if isinstance(event, NoiseShareUpload)]
        sums = [event for event in self._events if isinstance(event, OpenedSum | ReadSum)]
        noises = {event.noise for event in uploads}
        populations = {draw.drawn_from for draw in draws}
        if (
            len(draws) + len(uploads) + len(sums) < len(self._events)
            or not len(noises) == len(populations) == 1
        ):
            return math.nan
        (noise,), (population,) = noises, populations
        sent = Counter(event.round for event in uploads)
        # Every round has a draw of its own, with as many at least as have sent, and nobody sends twice.
        largest = sorted((draw.participants for draw in draws), reverse=True)[: len(sent)]
        if (
            noise.unit != "client"
            or population is None
            or len({(event.round, event.client) for event in uploads}) < len(uploads)
            or len(largest) < len(sent)
            or any(count > most for (_, count), most in zip(sent.most_common(), largest, strict=True))
        ):
            return math.nan
        # The largest draws stand for all: a larger share of the clients costs more.
        charges: Counter[Charge] = Counter(NoiseOfDrawnSum(noise, most, population) for most in largest)
        return epsilon_of(charges, delta)

    @staticmethod
    def _largest(charged: list[_Charges], delta: float, *, stated: bool) -> float:
        """Return the largest epsilon of all clients; ``stated`` is with the noise of all participants; NaN for none."""
        found = {
            frozenset(
                Counter(
                    noise.added_by(count) if stated and isinstance(noise, Noise) else noise
                    for noise, counts in one.items()
                    for count in counts
                ).items()
            )
            for one in charged
            if one
        }
        return max((epsilon_of(dict(one), delta) for one in found), default=math.nan)

    def _charged(self) -> list[_Charges]:
        """Return what each client is charged that has sent noised values, and first, what all others are."""
        everybody: _Charges = defaultdict(list)
        covered: Counter[Noise | NoiseOfSum] = Counter()
        participants: dict[int, int] = {}
        sent: defaultdict[int, Counter[tuple[Noise | NoiseOfSum, int, str | None]]] = defaultdict(Counter)
        for event in self._events:
            match event:
                case ClientsDrawn(noise=Noise() as noise):
                    everybody[noise].append(max(event.participants, 1))
                    covered[noise] += 1
                case DataRelease():
                    everybody[event.noise].append(1)
                case SummedUploads():
                    # The difference of two means of a round may be one client's update, with its own noise alone.
                    participants[event.round] = 1 if event.round in participants else max(event.clients, 1)
                case NoisedUpload():
                    sent[event.client][event.noise, event.round, event.what] += 1
                case EncryptedUpload(noise=Noise() as noise) | NoiseShareUpload(noise=noise):
                    sent[event.client][noise, event.round, None] += 1
        charged = [everybody]
        for releases in sent.values():
            uploads: _Charges = defaultdict(list)
            for (noise, number, what), count in releases.items():
                # What is encrypted is of one release with the readable values of its round.
                others = releases[noise, number, "values"] if what is None else 0
                uploads[noise] += [participants.get(number, 1)] * max(count - others, 0)
            own = defaultdict(list, {noise: [*counts] for noise, counts in everybody.items()})
            for noise, counts in uploads.items():
                # A draw that is charged pays for an upload.
                own[noise] += sorted(counts)[: max(len(counts) - covered[noise], 0)]
            charged.append(own)
        return charged
