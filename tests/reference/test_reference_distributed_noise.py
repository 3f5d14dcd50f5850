"""The core's shares of distributed noise against their slow twin, bit for bit."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np
import pytest

from reference import distributed_noise as reference
from reference.ckks import test_seed as insecure_seed
from shieldfl import _core, _testing

SEED = bytes(range(32))


def random_update(size: int) -> np.ndarray:
    """Multiples of 2^-10, whose squares have an exact sum."""
    return (np.random.default_rng(size).integers(-999, 1000, size) / 1024).astype(np.float32)


def small_table(thresholds: list[int], others: list[int]) -> tuple[Any, reference.AliasTable]:
    columns = [
        np.array([t >> 64 for t in thresholds], np.uint64),
        np.array([t % 2**64 for t in thresholds], np.uint64),
    ]
    return (columns, np.array(others, np.uint32)), reference.AliasTable(thresholds, others)


@pytest.mark.parametrize("size", [1, 2, 3, 17, 64, 1000, 4097, 10_000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("inverse", [False, True])
def test_rotations_have_the_same_bits(size: int, dtype: Any, inverse: bool) -> None:
    values = np.random.default_rng(size).standard_normal(size).astype(dtype)
    np.testing.assert_array_equal(
        _core.rotate(values, SEED, inverse, 1.0), reference.rotated(values, SEED, inverse=inverse)
    )


@pytest.mark.parametrize(
    ("size", "most_rounded", "most_sent"), [(1, 50, 50), (100, 50, 50), (4100, 150, 155)]
)
def test_shares_have_the_same_bits(size: int, most_rounded: int, most_sent: int) -> None:
    columns, table = small_table([2**127, 5 * 2**100, 2**128 - 1, 0], [3, 2, 2, 1])
    update = random_update(size)
    bounds = {"norm_bound_squared": 10**9, "most_rounded": most_rounded, "most_sent": most_sent}
    share, tries = _testing.noise_share_insecure(
        update, 1e3, 100.25, SEED, *bounds.values(), *columns, seed=size
    )
    expected, expected_tries = reference.noise_share(
        update,
        steps_per_unit=100.25,
        rotation_seed=SEED,
        table=table,
        seeds=map(insecure_seed, iter(lambda: size, None), count()),
        **bounds,
    )
    assert share.tolist() == expected
    assert tries == expected_tries == 1


def test_rounding_is_drawn_again_in_the_same_way() -> None:
    columns, table = small_table([0, 0], [0, 0])
    update = random_update(40)

    def both(bound: int, seed: int) -> tuple[list[int], int]:
        bounds = {"norm_bound_squared": bound, "most_rounded": 100, "most_sent": 100}
        share, tries = _testing.noise_share_insecure(
            update, 1e3, 2.0, SEED, *bounds.values(), *columns, seed=seed
        )
        expected = reference.noise_share(
            update,
            steps_per_unit=2.0,
            rotation_seed=SEED,
            table=table,
            seeds=map(insecure_seed, iter(lambda: seed, None), count()),
            **bounds,
        )
        assert (share.tolist(), tries) == expected
        return expected

    lengths = sorted(sum(value**2 for value in both(10**6, seed)[0]) for seed in range(15))
    tries = [both(lengths[3], 20 + seed)[1] for seed in range(10)]
    assert max(tries) > 3


def test_open_words_are_decided_by_the_same_ones() -> None:
    """Thresholds with the first 32 bits of the words that a seed leads to: what follows decides."""
    size = 16
    words = reference.chacha20_words(insecure_seed(3, 1), 0)
    first = next(words)
    bucket = (first >> 1) % 2
    rest = [next(words) for _ in range(17)]
    open_threshold = (first >> 32) << 96 | (rest[15] % 2**32) << 64 | rest[16]
    for added, own in ((0, False), (1, True)):
        thresholds = [2**128 - 1, 2**128 - 1]
        thresholds[bucket] = open_threshold + added
        columns, table = small_table(thresholds, [1 - bucket, 1 - bucket] if bucket else [1, 1])
        share, _ = _testing.noise_share_insecure(
            np.zeros(size, np.float32), 1.0, 1.0, SEED, 0, 5, 5, *columns, seed=3
        )
        expected = reference.added_draws([0] * size, table, reference.chacha20_words(insecure_seed(3, 1), 0))
        assert share.tolist() == expected
        assert abs(expected[0]) == (bucket if own else table.others[bucket])
