"""The forms in which an attacker tries an update of which some positions are hidden."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from shieldfl.audit.attacker.fills import by_class_sums, with_last_exposed, with_own_expectation, with_zeros
from shieldfl.audit.views.observed_update import FloatVector, ObservedUpdate
from shieldfl.audit.views.view import KnownChange

__all__ = ["exposed_elsewhere", "guesses"]

_EXPECTED_OVER = 4
"""Trainings on the attacker's own samples, of which the mean is taken."""


def exposed_elsewhere(known: KnownChange, others: Sequence[KnownChange]) -> FloatVector | None:
    """Return what was exposed of the same clients' changes in the other rounds, (P,): the nearest round's.

    NaN where no other round exposed a position; None where nothing was.
    """
    exposed = np.full(known.change.size, np.nan, dtype=np.float32)
    for one in sorted(others, key=lambda other: -abs(other.round - known.round)):
        if one.clients == known.clients and one.round != known.round:
            exposed[one.known] = one.change[one.known]
    return None if np.isnan(exposed).all() else exposed


def guesses(
    observed: ObservedUpdate,
    exposed: FloatVector | None,
    public: tuple[torch.Tensor, torch.Tensor],
    seed: int,
) -> Iterator[tuple[str, ObservedUpdate]]:
    """Yield an update with its hidden positions filled in each way that the attacker can, by name.

    Parameters
    ----------
    observed : an update; one of which all is known is yielded as it is.
    exposed : as :func:`exposed_elsewhere` returns it.
    public : the attacker's own samples (N, ...) and their labels (N,).
    seed : of draws among them.
    """
    if observed.known.all():
        yield "nothing hidden", observed
        return
    zeros = with_zeros(observed)
    yield "zeros", zeros
    yield "class sums", by_class_sums(zeros)
    if len(public[0]) >= observed.samples:
        expected = with_own_expectation(observed, *public, trials=_EXPECTED_OVER, seed=seed)
        yield "own expectation and class sums", by_class_sums(expected)
    if exposed is not None:
        yield "other rounds and class sums", by_class_sums(with_last_exposed(zeros, exposed))
