"""Masks: making, negotiating, splitting, wire form, gathering. Every benchmark checks its result."""

from __future__ import annotations

import numpy as np
import pytest

import shieldfl as sf
from shieldfl.masks import negotiate_zones, split_zones

CLIENTS = 20
CONSENSUS = 0.2
NEEDED = 4  # votes out of CLIENTS

shares = pytest.mark.parametrize("share", [0.01, 0.1], ids=lambda share: f"share={share}")
clients = pytest.mark.parametrize("clients", [CLIENTS], ids=lambda clients: f"clients={clients}")
one_thread = pytest.mark.parametrize("threads", [1], ids=lambda threads: f"threads={threads}")


def masks_of(size: int, share: float, count: int) -> tuple[np.ndarray, list[sf.Mask]]:
    rng = np.random.default_rng(1)
    chosen = np.empty((count, size), dtype=bool)
    for row in chosen:
        np.less(rng.random(size, dtype=np.float32), share, out=row)
    return chosen, [sf.Mask.from_bool(row) for row in chosen]


def votes_row_by_row(chosen: np.ndarray) -> np.ndarray:
    """Which positions have enough votes, in one counter a position: the rows are read once each."""
    votes = np.zeros(chosen.shape[1], dtype=np.uint8)
    for row in chosen.view(np.uint8):
        votes += row
    return votes >= NEEDED


def votes_at_once(chosen: np.ndarray) -> np.ndarray:
    return chosen.sum(axis=0, dtype=np.uint8) >= NEEDED


@shares
@clients
@one_thread
def test_negotiate(benchmark, size, share, clients, threads):
    chosen, masks = masks_of(size, share, clients)
    result = benchmark(sf.negotiate, masks, CONSENSUS, threads=threads)
    np.testing.assert_array_equal(result.to_bool(), votes_at_once(chosen))


@shares
@clients
@pytest.mark.parametrize("way", [votes_at_once, votes_row_by_row], ids=lambda way: f"way={way.__name__}")
def test_negotiate_in_numpy(benchmark, size, share, clients, way):
    """The same on boolean arrays, for comparison."""
    chosen, masks = masks_of(size, share, clients)
    result = benchmark(way, chosen)
    np.testing.assert_array_equal(result, sf.negotiate(masks, CONSENSUS).to_bool())


@shares
@clients
@one_thread
def test_negotiate_zones(benchmark, size, share, clients, threads):
    _, masks = masks_of(size, share, clients)
    encrypted, zones = benchmark(negotiate_zones, masks, CONSENSUS, threads=threads)
    assert zones == [split_zones(mask, encrypted) for mask in masks]


@shares
@clients
@one_thread
def test_negotiate_zones_step_by_step(benchmark, size, share, clients, threads):
    """The same with a pass over the masks for the consensus and some for every client's zones."""
    _, masks = masks_of(size, share, clients)

    def step_by_step():
        encrypted = sf.negotiate(masks, CONSENSUS, threads=threads)
        return encrypted, [split_zones(mask, encrypted) for mask in masks]

    assert benchmark(step_by_step) == negotiate_zones(masks, CONSENSUS)


@shares
@one_thread
def test_add_a_vote(benchmark, size, share, threads):
    chosen, (mask,) = masks_of(size, share, 1)
    votes = sf.Votes(size)
    benchmark(votes.add, mask, threads=threads)
    np.testing.assert_array_equal(votes.counts(), votes.voters * chosen[0].astype(np.uint32))


@shares
def test_encode_and_decode(benchmark, size, share):
    _, (mask,) = masks_of(size, share, 1)
    result = benchmark(lambda: sf.Mask.from_bytes(mask.to_bytes()))
    benchmark.extra_info["bytes"] = len(mask.to_bytes())
    assert result == mask


@shares
def test_from_bool(benchmark, size, share):
    chosen, _ = masks_of(size, share, 1)
    result = benchmark(sf.Mask.from_bool, chosen[0])
    np.testing.assert_array_equal(result.to_indices(), np.flatnonzero(chosen[0]))


@shares
def test_to_bool(benchmark, size, share):
    chosen, (mask,) = masks_of(size, share, 1)
    np.testing.assert_array_equal(benchmark(mask.to_bool), chosen[0])


@shares
@one_thread
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=lambda dtype: f"dtype={dtype.__name__}")
def test_gather(benchmark, size, share, update, threads, dtype):
    chosen, (mask,) = masks_of(size, share, 1)
    dense = update.astype(dtype)
    result = benchmark(mask.gather, dense, threads=threads)
    np.testing.assert_array_equal(result, dense[chosen[0]])
