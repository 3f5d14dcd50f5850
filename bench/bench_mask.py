"""Masks: negotiation, wire form, gathering. Every benchmark checks its result."""

from __future__ import annotations

import numpy as np
import pytest

import shieldfl as sf

SHARES = [0.01, 0.1]


def masks_of(size: int, share: float, count: int) -> tuple[np.ndarray, list[sf.Mask]]:
    chosen = np.random.default_rng(1).random((count, size)) < share
    return chosen, [sf.Mask.from_bool(row) for row in chosen]


@pytest.mark.parametrize("share", SHARES, ids=lambda share: f"share={share}")
def test_negotiate(benchmark, size, share):
    chosen, masks = masks_of(size, share, 20)
    result = benchmark(sf.negotiate, masks, 0.2, threads=1)
    np.testing.assert_array_equal(result.to_bool(), chosen.sum(axis=0) >= 4)


@pytest.mark.parametrize("share", SHARES, ids=lambda share: f"share={share}")
def test_negotiate_in_numpy(benchmark, size, share):
    """The same on boolean arrays, for comparison."""
    chosen, masks = masks_of(size, share, 20)
    result = benchmark(lambda: chosen.sum(axis=0, dtype=np.uint8) >= 4)
    np.testing.assert_array_equal(result, sf.negotiate(masks, 0.2).to_bool())


@pytest.mark.parametrize("share", SHARES, ids=lambda share: f"share={share}")
def test_encode_and_decode(benchmark, size, share):
    _, (mask,) = masks_of(size, share, 1)
    result = benchmark(lambda: sf.Mask.from_bytes(mask.to_bytes()))
    benchmark.extra_info["bytes"] = len(mask.to_bytes())
    assert result == mask


@pytest.mark.parametrize("share", SHARES, ids=lambda share: f"share={share}")
def test_gather(benchmark, size, share, update):
    chosen, (mask,) = masks_of(size, share, 1)
    result = benchmark(mask.gather, update, threads=1)
    np.testing.assert_array_equal(result, update[chosen[0]])
