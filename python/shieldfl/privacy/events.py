"""What has left the clients of a run, and what was opened, as data.

What it comes to is for :class:`shieldfl.privacy.book.PrivacyBook`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from shieldfl.array_view import as_count, as_real
from shieldfl.errors import ParameterError

__all__ = [
    "NO_NOISE",
    "ClearUpload",
    "ClientsDrawn",
    "DataRelease",
    "EncryptedUpload",
    "Noise",
    "NoiseOfDrawnSum",
    "NoiseOfSum",
    "NoiseShareUpload",
    "NoisedUpload",
    "OpenedSum",
    "PrivacyEvent",
    "PrivacyReading",
    "ReadSum",
    "SummedUploads",
]


Distribution = Literal["skellam", "discrete-gaussian"]
Unit = Literal["client", "sample"]


@dataclass(frozen=True)
class Noise:
    """The mechanism of one release: Gaussian noise, in so many steps, each on a sample of the data.

    Raises ParameterError for what no mechanism is.
    """

    multiplier: float
    """sigma: its standard deviation over the norm that one of the unit is clipped to; above 0, finite."""
    unit: Unit
    sample_rate: float = 1.0
    """Probability of each sample to be in a step, independently, in (0, 1].

    It is 1 if others can know which are in it, as they always can of clients.
    """
    steps: int = 1

    def __post_init__(self) -> None:
        if not 0.0 < as_real(self.multiplier, "the noise multiplier") < math.inf or self.unit not in (
            "client",
            "sample",
        ):
            raise ParameterError("noise has a finite multiplier above 0, of a client or a sample")
        if not 0.0 < as_real(self.sample_rate, "the sample rate") <= 1.0:
            raise ParameterError("the sample rate must lie in (0, 1]")
        if self.unit == "client" and self.sample_rate < 1.0:
            raise ParameterError("who takes part can be seen: sampling of clients counts for nothing")
        object.__setattr__(self, "steps", as_count(self.steps, "the number of steps"))

    def added_by(self, clients: int) -> Noise:
        """Return what so many clients' noise comes to where each has added its own."""
        return replace(self, multiplier=self.multiplier * math.sqrt(clients))


@dataclass(frozen=True)
class NoiseOfSum:
    """The mechanism of one opened sum: discrete noise on integers, of which every client has added a share.

    It is charged with the shares of the fewest honest clients that a sum has, whoever took part: more only
    add to it.

    Raises ParameterError for what no mechanism is.
    """

    distribution: Distribution
    honest_clients: int
    """Whose shares are unknown to everybody else, in every sum; at least 1."""
    share_variance: int
    """Of one share on each value, in squared steps; at least 1."""
    norm_bound_squared: int
    """The largest squared L2 norm of what one client contributes, in squared steps; at least 1."""
    dimension: int
    log2_distance: float
    """Of the honest clients' draws of one sum, together, from the true distribution.

    It is log2 of the total variation; below 0, finite.
    """
    unit: Unit = "client"
    """Which of the client's data make the difference that is charged: all, or one sample of them."""
    steps: ClassVar[int] = 1

    def __post_init__(self) -> None:
        numbers = (self.honest_clients, self.share_variance, self.norm_bound_squared, self.dimension)
        for one in numbers:
            as_count(one, "a number of a sum's noise")
        if self.distribution not in ("skellam", "discrete-gaussian"):
            raise ParameterError("noise of a sum is skellam or discrete-gaussian")
        if self.unit not in ("client", "sample"):
            raise ParameterError("noise of a sum is charged for a client or a sample")
        if not -math.inf < as_real(self.log2_distance, "the distance") < 0.0:
            raise ParameterError(
                "the draws' distance from the true distribution must be below 1, and above 0"
            )

    @property
    def contributions_apart(self) -> int:
        """By how many contributions of the largest norm the sums of two neighbouring runs differ.

        A client's is there, or zeros are in its place. Without one sample a client contributes something
        else, of which nothing is known but that it is as short: whatever both are rounded to, each
        independently, what they differ by has at most twice the norm, and a divergence of mixtures is at most
        the largest of what they are mixed of.
        """
        return 2 if self.unit == "sample" else 1


@dataclass(frozen=True)
class NoiseOfDrawnSum:
    """The same sum, for whoever knows how many of the clients are in it, and not which.

    Raises ParameterError for what no draw is.
    """

    noise: NoiseOfSum
    drawn: int
    clients: int
    """Of whom they are drawn, all sets alike; at least ``drawn``."""
    steps: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if self.noise.unit != "client":
            raise ParameterError("what hides who takes part is proved of whole clients alone")
        if as_count(self.drawn, "drawn") > as_count(self.clients, "clients"):
            raise ParameterError("clients of a sum are drawn of as many at least")

    @property
    def log2_distance(self) -> float:
        """Of the draws of noise: who is in the sum is no matter."""
        return self.noise.log2_distance


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
class NoiseShareUpload:
    """Values of an update left a client, encrypted, with the client's share of the noise that their sum has.

    What the sum tells once it is opened is charged here already, so that no opened one is missed. Whoever
    states it of one client supposes that in its round all clients encrypt the same positions, or none: a sum
    of a round of which all that is known is readable, with noise or synthetic, then holds nothing else.
    """

    round: int
    client: int
    noise: NoiseOfSum


@dataclass(frozen=True)
class NoisedUpload:
    """Something of a client's data became readable, to the aggregator at least, with charged noise."""

    round: int
    client: int
    noise: Noise
    what: str = "values"


@dataclass(frozen=True)
class ClearUpload:
    """Something of a client's data or of the model that it was sent became readable without charged noise."""

    round: int
    client: int
    what: str = "values"
    """A name for readers: ``"values"`` of the update, or a mask, a ranking, a range."""
    synthetic: bool = False
    """Whether it comes from training on synthetic data alone, and depends on the model before it alone."""


@dataclass(frozen=True)
class OpenedSum:
    """The sum of a round's encrypted uploads was opened: the model that goes to the clients moved by it."""

    round: int


@dataclass(frozen=True)
class ReadSum:
    """The aggregator has opened a round's sum itself, and so reads it."""

    round: int


@dataclass(frozen=True)
class SummedUploads:
    """So many clients' noised uploads were averaged: who sees models alone sees their noise together."""

    round: int
    clients: int


@dataclass(frozen=True)
class ClientsDrawn:
    """Clients were drawn for a round, or were too few and are drawn again."""

    participants: int
    """K, as it is stated to all."""
    noise: Noise | None = None
    """What every client is charged for a draw, drawn or not; None where uploads are charged alone."""
    drawn_from: int | None = None
    """Of how many clients; None where what follows is not known.

    Of these every set of so many was as likely as any other, and no client keeps anything of its own from a
    round that it was in.
    """

    def __post_init__(self) -> None:
        if self.participants < 0 or (self.drawn_from is not None and self.participants > self.drawn_from):
            raise ParameterError(f"a round cannot have {self.participants} participants")


@dataclass(frozen=True)
class DataRelease:
    """Something computed from the data alone, and from no model, was released with noise: synthetic data."""

    noise: Noise


PrivacyEvent = (
    EncryptedUpload
    | NoiseShareUpload
    | NoisedUpload
    | ClearUpload
    | OpenedSum
    | ReadSum
    | SummedUploads
    | ClientsDrawn
    | DataRelease
)
"""What a ledger of privacy loss holds."""


@dataclass(frozen=True)
class PrivacyReading:
    """What one method's figures say.

    Raises ParameterError unless unit, adversary and neighbours are all given, or none is.
    """

    unit: str | None
    """``"client"``: with all that it sends; ``"sample"``: of one client; None for a method without noise."""
    adversary: str | None
    """Against whom a finite epsilon holds."""
    neighbours: str | None
    """Which two runs cannot be told apart: the relation that is proved."""
    meaning: str
    if_participation_hidden: str | None = None
    """How to read the figure that holds where nobody sees who takes part; None for a method without one."""

    def __post_init__(self) -> None:
        stated = (self.adversary, self.neighbours)
        if self.unit not in ("client", "sample", None) or any(
            (one is None) != (self.unit is None) for one in stated
        ):
            raise ParameterError(
                "a privacy reading states unit (client or sample), adversary and neighbours, or none of them"
            )
        if not self.meaning:
            raise ParameterError("a privacy reading says in a sentence what its figures mean")


NO_NOISE = PrivacyReading(
    None,
    None,
    None,
    "adds no noise, so there is no ε: ∞ where something that depends on the data is readable, – where "
    "nothing is; what opened sums, and with them the global model, tell is not bounded",
)
"""For methods that encrypt, or protect nothing."""
