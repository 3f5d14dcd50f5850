"""Synthetic data after a tenth of the fitting, for tests of everything but how good they are."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator

import pytest

from shieldfl.privacy.mean_embedding import fit_synthetic_data
from shieldfl.simulation import synthetic_shares

__all__ = ["quick_synthetic_data"]

_STEPS = 40


@contextlib.contextmanager
def quick_synthetic_data() -> Iterator[None]:
    """Within it, runs fit synthetic data in fewer steps; all that is released and charged stays what it is."""
    with pytest.MonkeyPatch.context() as patch:
        quick = functools.partial(fit_synthetic_data, steps=_STEPS)
        patch.setattr(synthetic_shares, "fit_synthetic_data", quick)
        yield
