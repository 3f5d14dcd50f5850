"""Canaries for single mechanisms: contributions as easy to see as the clipping allows, each in or out by a coin.

Source: Steinke, Nasr and Jagielski 2023, "Privacy auditing with one (1) training run", algorithm 1, with the Dirac
gradients of Nasr et al. 2023, "Tight auditing of differentially private machine learning", section 4.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from shieldfl.errors import ParameterError
from shieldfl.lab.audit.epsilon import SHARES, EpsilonBound, bound_from_one_run, count_guesses

__all__ = ["DiracCanaries", "SumMechanism", "UploadMechanism", "audit_sum", "audit_uploads"]

FloatVector = NDArray[np.float32]

SumMechanism = Callable[[Iterator[FloatVector]], FloatVector]
"""Takes contributions (P,) one by one, of samples or clients, and returns what others see of their sum (P,).

It is in the unit of a sum: what is released as a mean is multiplied by what it was divided by."""

UploadMechanism = Callable[[FloatVector], FloatVector]
"""Takes one client's update (P,) and returns what the aggregator receives in its place (P,)."""


@dataclass(frozen=True)
class DiracCanaries:
    """Contributions that are zero but at one position each, of which nobody else's has a value."""

    positions: NDArray[np.int64]
    """Where each is not zero, (m,), all different."""
    included: NDArray[np.bool_]
    """Which of them are in, (m,)."""
    norm: float
    """Their value there: what contributions are clipped to."""
    size: int
    """P, the values of a contribution."""

    @classmethod
    def drawn(cls, count: int, size: int, norm: float, seed: int) -> DiracCanaries:
        """Draw positions and coins.

        Raises ParameterError for no canary, more canaries than positions, or a norm that is not positive.
        """
        if not 1 <= count <= size or not norm > 0:
            raise ParameterError(
                f"draw 1 to {size} canaries, as many as a contribution has values, of a positive norm"
            )
        generator = np.random.default_rng(seed)
        positions = generator.choice(size, count, replace=False).astype(np.int64)
        return cls(positions, generator.random(count) < 0.5, norm, size)

    def contributions(self) -> Iterator[FloatVector]:
        """Yield those that are in, each a new vector (P,)."""
        for position in self.positions[self.included]:
            contribution = np.zeros(self.size, dtype=np.float32)
            contribution[position] = self.norm
            yield contribution

    def evidence(self, released: FloatVector) -> NDArray[np.float64]:
        """Return (m,) how far above half of a canary a release is at each one's position, in canaries.

        Raises ParameterError for a release of another size.
        """
        if released.shape != (self.size,):
            raise ParameterError(f"a release has {self.size:,} values, got {released.shape}")
        return released[self.positions].astype(np.float64) / self.norm - 0.5


def audit_sum(
    mechanism: SumMechanism,
    canaries: DiracCanaries,
    *,
    delta: float,
    unit: Literal["sample", "client"],
    claimed: float | None = None,
    shares: Sequence[float] = SHARES,
    confidence: float = 0.95,
) -> EpsilonBound:
    """Run a mechanism once on the canaries that are in, and bound its epsilon by guesses which these were.

    Parameters
    ----------
    mechanism : callable
        See :data:`SumMechanism`; many steps may be in its one run.
    canaries : DiracCanaries
        Of the norm that the mechanism clips to.
    delta, unit, claimed, confidence
        As for :func:`shieldfl.lab.audit.epsilon.bound_from_one_run`.
    shares : sequence of float
        Of the canaries to guess, each in (0, 1]: few where a mechanism shows little, all where it shows all. They are
        settled before the run.

    Raises ParameterError for shares, releases or probabilities out of range.
    """
    evidence = canaries.evidence(mechanism(canaries.contributions()))
    guesses = count_guesses(evidence, canaries.included, shares)
    return bound_from_one_run(
        len(evidence), guesses, delta=delta, unit=unit, confidence=confidence, claimed=claimed
    )


def audit_uploads(
    upload: UploadMechanism,
    *,
    count: int,
    size: int,
    norm: float,
    seed: int,
    delta: float,
    claimed: float | None = None,
    shares: Sequence[float] = SHARES,
    confidence: float = 0.95,
) -> EpsilonBound:
    """Have ``count`` clients upload a canary each or zeros, by a coin, and bound epsilon by guesses of who had one.

    It is for noise of each client's own, against the aggregator, with a client's update replaced by zeros as the
    neighbouring relation. Every upload is looked at alone, so that their size does not limit how many there are.

    Parameters
    ----------
    upload : callable
        See :data:`UploadMechanism`.
    size, norm : int, float
        Of an update, and what it is clipped to.
    seed : int
        Of positions and coins.
    count, delta, claimed, shares, confidence
        As for :func:`audit_sum`; the unit is a client.

    Raises ParameterError as :func:`audit_sum`.
    """
    generator = np.random.default_rng(seed)
    evidence, included = np.zeros(count), generator.random(count) < 0.5
    for client in range(count):
        own = DiracCanaries(generator.integers(size, size=1), included[client : client + 1], norm, size)
        update = next(own.contributions(), np.zeros(size, dtype=np.float32))
        evidence[client] = own.evidence(upload(update))[0]
    guesses = count_guesses(evidence, included, shares)
    return bound_from_one_run(
        count, guesses, delta=delta, unit="client", confidence=confidence, claimed=claimed
    )
