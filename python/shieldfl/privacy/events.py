"""What has left the clients of a run, and what was opened, as data.

:class:`shieldfl.privacy.book.PrivacyBook` computes what it costs.
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

    Raises ParameterError for values that no mechanism has.
    """

    multiplier: float
    """sigma: the noise's standard deviation over one client's or sample's clipping norm; above 0, finite."""
    unit: Unit
    sample_rate: float = 1.0
    """Probability that a sample is in a step, independently of the others, in (0, 1].

    It is 1 if others can know which samples are in it, as they always can of clients.
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
        """Return the noise of so many clients together, if each adds its own."""
        return replace(self, multiplier=self.multiplier * math.sqrt(clients))


@dataclass(frozen=True)
class NoiseOfSum:
    """The mechanism of one opened sum: discrete noise on integers, with a share of every client.

    It is charged with the shares of the fewest honest clients that a sum has: more clients only add to it.

    Raises ParameterError for values that no mechanism has.
    """

    distribution: Distribution
    honest_clients: int
    """Smallest number of clients in every sum whose shares nobody else knows; at least 1."""
    share_variance: int
    """Variance of one share on each value, in squared steps; at least 1."""
    norm_bound_squared: int
    """Largest squared L2 norm of one client's contribution, in squared steps; at least 1."""
    dimension: int
    log2_distance: float
    """log2 of the total variation between the honest clients' draws of a sum and the true distribution.

    It is below 0 and finite.
    """
    unit: Unit = "client"
    """Data whose difference is charged: all of a client's, or one of its samples."""
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
        """The number of contributions of the largest norm by which the sums of two neighbouring runs differ.

        A client's contribution is there, or zeros replace it. Without one sample a client contributes
        something else, which is only known to be as short. Whatever both are rounded to, each independently,
        their difference has at most twice the norm, and a divergence of mixtures is at most the largest of
        their parts' divergences.
        """
        return 2 if self.unit == "sample" else 1


@dataclass(frozen=True)
class NoiseOfDrawnSum:
    """The mechanism of one opened sum against those who know how many clients are in it, but not which.

    Raises ParameterError for values that no draw has.
    """

    noise: NoiseOfSum
    drawn: int
    clients: int
    """Number of clients from which ``drawn`` are drawn, all sets alike; at least ``drawn``."""
    steps: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if self.noise.unit != "client":
            raise ParameterError("what hides who takes part is proved of whole clients alone")
        if as_count(self.drawn, "drawn") > as_count(self.clients, "clients"):
            raise ParameterError("a sum's clients are drawn from at least that many")

    @property
    def log2_distance(self) -> float:
        """``log2_distance`` of the noise: it does not depend on who is in the sum."""
        return self.noise.log2_distance


@dataclass(frozen=True)
class EncryptedUpload:
    """Values of an update left a client that the key authority alone can open, in a sum."""

    round: int
    client: int
    noise: Noise | None = None
    """Noise that was added to all values before; None if some have none."""
    synthetic: bool = False
    """Whether the values come from training on synthetic data alone."""


@dataclass(frozen=True)
class NoiseShareUpload:
    """Values of an update left a client, encrypted, with the client's share of the noise that their sum has.

    The opened sum is charged here already, so that none is missed. The event supposes that all clients of its
    round encrypt the same positions, or none. If all that is known of a round is readable, with noise or
    synthetic, its sum then holds nothing else.
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
    """Name of it for readers: ``"values"`` of the update, or a mask, a ranking, a range."""
    synthetic: bool = False
    """Whether it comes from training on synthetic data alone, and so depends only on the model before it."""


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
    """Noised uploads of so many clients were averaged: those who see only models see their noise together."""

    round: int
    clients: int


@dataclass(frozen=True)
class ClientsDrawn:
    """Clients were drawn for a round, or were too few and are drawn again."""

    participants: int
    """Number K of participants, as stated to all."""
    noise: Noise | None = None
    """Noise that every client is charged for a draw, drawn or not; None if only uploads are charged."""
    drawn_from: int | None = None
    """Number of clients that were drawn from; None if the following is not known to hold.

    Every set of so many participants was equally likely, and no client keeps anything of its own from a round
    that it was in.
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
"""Any event that a book of privacy loss takes."""


@dataclass(frozen=True)
class PrivacyReading:
    """What one method's figures say.

    Raises ParameterError unless unit, adversary and neighbours are all given, or none is.
    """

    unit: str | None
    """What is protected: ``"client"``, with all it sends, or ``"sample"``, of one client; None without
    noise."""
    adversary: str | None
    """Against whom a finite epsilon holds; None for a method without noise."""
    neighbours: str | None
    """Which two runs cannot be told apart, the relation that is proved; None for a method without noise."""
    meaning: str
    if_participation_hidden: str | None = None
    """How to read the figure that holds if nobody sees who takes part; None for a method without one."""

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
"""Reading for methods that encrypt, or protect nothing."""
