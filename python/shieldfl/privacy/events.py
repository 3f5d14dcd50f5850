"""What has left the clients of a run, and what was opened, as data; and whether an epsilon can still hold.

Noise that a client adds itself hides what its own data did to what it sends, for a given model to start from. It does
not hide what that model tells. So no epsilon holds for what is sent after the model has moved by a sum that was opened
without noise: not for updates with noise, and not for updates from synthetic data alone, from which the model before
them can be computed. Encryption is no epsilon: what nobody but the key authority can read needs none and gets none.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from shieldfl.errors import ParameterError

__all__ = [
    "ClearUpload",
    "DataRelease",
    "EncryptedUpload",
    "Noise",
    "NoisedUpload",
    "OpenedSum",
    "PrivacyEvent",
    "PrivacyEvents",
    "PrivacySpent",
    "SampledSteps",
    "SummedUploads",
]


@dataclass(frozen=True)
class Noise:
    """Gaussian noise that a ledger charges for."""

    multiplier: float
    """sigma: its standard deviation over the norm that one of the unit is clipped to; above 0."""
    unit: Literal["client", "sample"]
    """Whose contribution is clipped to that norm."""


@dataclass(frozen=True)
class EncryptedUpload:
    """Values of an update left a client that the key authority alone can open, in a sum."""

    round: int
    client: int
    noise: Noise | None = None
    """What was added to all of them before; None where some have none."""
    synthetic: bool = False
    """Whether they come from training on synthetic data alone."""


@dataclass(frozen=True)
class NoisedUpload:
    """Something of a client's data became readable, with noise that is charged for."""

    round: int
    client: int
    noise: Noise
    what: str = "values"


@dataclass(frozen=True)
class ClearUpload:
    """Something of a client's data, or of the model that it was sent, became readable without noise that is charged."""

    round: int
    client: int
    what: str = "values"
    """A name for readers: ``"values"`` of the update, or a mask, a ranking, a range."""
    synthetic: bool = False
    """Whether it comes from training on synthetic data alone, so that it depends on the model before it alone."""


@dataclass(frozen=True)
class OpenedSum:
    """The sum of a round's encrypted uploads was opened: the model that goes to the clients has moved by it."""

    round: int


@dataclass(frozen=True)
class SampledSteps:
    """A client sent what DP-SGD trained: in so many steps, each on a sample of its data."""

    round: int
    client: int
    noise_multiplier: float
    """0 for none."""
    sample_rate: float
    steps: int


@dataclass(frozen=True)
class SummedUploads:
    """The mean of so many clients' readable uploads of a round was made."""

    round: int
    clients: int


@dataclass(frozen=True)
class DataRelease:
    """Something computed from the data alone, and from no model, was released with noise: synthetic data."""

    noise: Noise


PrivacyEvent = (
    EncryptedUpload | NoisedUpload | ClearUpload | OpenedSum | SampledSteps | SummedUploads | DataRelease
)


@dataclass(frozen=True)
class PrivacySpent:
    """What a run has spent. How to read it, for whom and against whom, a method declares on its class.

    Attributes
    ----------
    epsilon : float
        What holds. ``math.inf`` where nothing bounds what the run tells; NaN where nothing readable has left that noise
        would have to cover: encryption gets no figure.
    of_noise : float
        What the noise alone was charged: what ``epsilon`` would be if nothing else told of the data. NaN without noise.
    if_participants_true : float
        The same, with the noise that all participants of a round added together, sigma * sqrt(K): it holds only if
        the number of participants that the server stated was true. Equal to ``of_noise`` where a method has one figure.
    delta : float
        The delta that all of them belong to.
    rounds : int
        Rounds charged.
    reason : str or None
        Why ``epsilon`` is infinite, as a sentence.
    """

    epsilon: float
    of_noise: float
    if_participants_true: float
    delta: float
    rounds: int
    reason: str | None = None


class PrivacyEvents:
    """The events of one run, in whatever order they are told of.

    What they mean follows from their rounds: all that leaves in a round starts from the model before it. Whoever drives
    the rounds is taken at their word for that. What is told of after the opened sum of its own round may have started
    from the model that this sum moved, and counts as if it had. So a key authority's report belongs behind the clients'
    of the same round: before them no figure is too low, but some are infinite.
    """

    def __init__(self, events: Iterable[PrivacyEvent] = ()) -> None:
        self._events: list[PrivacyEvent] = []
        self._without_noise: set[int] = set()
        """Rounds in which something real was encrypted that had no noise."""
        self._with_noise: set[int] = set()
        """Rounds in which something was encrypted that had noise, or was synthetic."""
        self._opened: set[int] = set()
        """Rounds whose sum was opened."""
        self._dependent: dict[int, str] = {}
        """Rounds in which something was sent whose noise covers no sum opened before it, and what it is."""
        self._late: set[int] = set()
        """Rounds of which such a thing was told after their own sum was opened."""
        self._clear: dict[int, str] = {}
        """Rounds in which something real became readable without noise, and what it is."""
        self._readable: dict[str, None] = {}
        self._has_noise = False
        for event in events:
            self.add(event)

    @property
    def all(self) -> tuple[PrivacyEvent, ...]:
        """Every event so far."""
        return tuple(self._events)

    @property
    def readable_parts(self) -> tuple[str, ...]:
        """Names of what became readable without noise beside values of updates, such as a mask."""
        return tuple(self._readable)

    def noised_uploads(self, what: str = "values") -> int:
        """Return how often one client, the one that did most often, sent such a thing with noise."""
        uploads = Counter(
            event.client for event in self._events if isinstance(event, NoisedUpload) and event.what == what
        )
        return max(uploads.values(), default=0)

    def add(self, event: PrivacyEvent) -> None:
        """Take one event. Raises ParameterError for one of an unknown kind: nothing is taken for harmless."""
        match event:
            case EncryptedUpload():
                if event.noise is not None:
                    _check(event.noise)
                    self._has_noise = True
                covered = event.noise is not None or event.synthetic
                (self._with_noise if covered else self._without_noise).add(event.round)
            case OpenedSum():
                self._opened.add(event.round)
            case ClearUpload():
                if event.what != "values":
                    self._readable[event.what] = None
                if event.synthetic:
                    self._add_dependent(event.round, "updates from synthetic data")
                else:
                    self._note_first(self._clear, event.round, event.what)
            case NoisedUpload():
                _check(event.noise)
                self._has_noise = True
                self._add_dependent(event.round, "updates with noise")
            case SampledSteps() | SummedUploads():
                # What they cost, or show, is said by the upload that they belong to.
                pass
            case DataRelease():
                _check(event.noise)
                self._has_noise = True
            case _:
                raise ParameterError(f"{type(event).__name__} is no privacy event that can be interpreted")
        self._events.append(event)

    def _add_dependent(self, round_number: int, what: str) -> None:
        self._note_first(self._dependent, round_number, what)
        if round_number in self._opened:
            self._late.add(round_number)

    @staticmethod
    def _note_first(found: dict[int, str], round_number: int, what: str) -> None:
        """Keep one thing a round, the same in whatever order they come: what leads to values before values."""
        known = found.get(round_number, what)
        found[round_number] = min(known, what, key=lambda one: (one == "values", one))

    @property
    def reason(self) -> str | None:
        """Why no epsilon holds any more, as a sentence: the first such event's; None as long as one may."""
        clear = min(self._clear, default=None)
        # A sum of which no upload is known may hold anything.
        noised = self._with_noise - self._without_noise
        opened = min(self._opened - noised, default=None)
        dependent = None
        if opened is not None:
            after = [number for number in self._dependent if number > opened]
            dependent = min([*after, *self._late & {opened}], default=None)
        if clear is not None and (dependent is None or clear <= dependent):
            what = f"something that depends on the data ({self._clear[clear]})"
            return f"ε is ∞ because {what} is readable without noise that a proof covers"
        if dependent is not None:
            return (
                f"ε is ∞ because {self._dependent[dependent]} of round {dependent} depend on the sum of round "
                f"{opened}, which was opened without noise"
            )
        return None

    def spent(self, of_noise: float, if_participants_true: float, delta: float, rounds: int) -> PrivacySpent:
        """Return what holds, where ledgers charged so much for the noise alone."""
        epsilon, reason = of_noise if self._has_noise else math.nan, self.reason
        if reason is not None:
            epsilon = math.inf
        return PrivacySpent(epsilon, of_noise, if_participants_true, delta, rounds, reason)


def _check(noise: Noise) -> None:
    if not 0.0 < noise.multiplier < math.inf or noise.unit not in ("client", "sample"):
        raise ParameterError("noise has a finite multiplier above 0, of a client or a sample")
