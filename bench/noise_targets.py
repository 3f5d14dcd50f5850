"""Clipping and Gaussian noise beside torch's, and a share of distributed noise beside others: on one thread each."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np

from shieldfl.privacy.noise import (
    NoiseTable,
    clip_and_noise,
    discrete_gaussian_noise,
    mean_of_total,
    noise_share,
    noise_table,
)
from sizes import Sizes
from target import Target, at_least, at_most, median_seconds_in_turns

NORM = 1.0
DEVIATION = 0.01
FRACTION_BITS = 18
STEPS = 2.0**FRACTION_BITS
NOISE_STEPS = 1000
ROTATION_SEED = bytes(range(32))


def measure(sizes: Sizes) -> Iterator[Target]:
    """Yield the lines of this page."""
    yield from _gaussian(sizes)
    yield from _share(sizes)


def _gaussian(sizes: Sizes) -> Iterator[Target]:
    name = f"clip and Gaussian noise, {sizes.noise:,} values, against torch"
    if importlib.util.find_spec("torch") is None:
        yield at_least(name, None, 2, 4, "torch is not installed: pip install torch")
        return
    seconds = _seconds(sizes)
    yield at_least(
        name,
        seconds["torch"] / seconds["ours"],
        2,
        4,
        f"{1e9 * seconds['ours'] / sizes.noise:.2f} ns a value beside {1e9 * seconds['torch'] / sizes.noise:.2f}",
    )


def _seconds(sizes: Sizes) -> dict[str, float]:
    import torch

    vector = np.random.default_rng(3).standard_normal(sizes.noise, dtype=np.float32)
    tensor = torch.from_numpy(vector)

    def ours() -> np.ndarray:
        return clip_and_noise(vector, NORM, DEVIATION, threads=1)[0]

    def torchs() -> np.ndarray:
        """Clip and add in one pass over the noise, which is one pass fewer than a multiplication of its own."""
        scale = min(1.0, NORM / tensor.norm().item())
        return torch.empty_like(tensor).normal_(0.0, DEVIATION).add_(tensor, alpha=scale).numpy()

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for function in (ours, torchs):
            _check(function(), vector)
        return median_seconds_in_turns({"ours": ours, "torch": torchs}, sizes.repetitions)
    finally:
        torch.set_num_threads(threads)


def _check(noised: np.ndarray, vector: np.ndarray) -> None:
    """What is left when the clipped vector is taken off has the mean and the deviation of the noise."""
    noise = noised.astype(np.float64) - vector * (NORM / np.linalg.norm(vector.astype(np.float64)))
    error = DEVIATION / np.sqrt(vector.size)
    assert abs(noise.mean()) < 6 * error
    assert abs(noise.std() - DEVIATION) < 6 * error


def _share(sizes: Sizes) -> Iterator[Target]:
    """All that a client does to its update for distributed noise, with a deviation of NOISE_STEPS steps.

    NumPy's noise is what NumPy has: normal draws from a fast generator, rounded, for which no proof speaks.
    """
    vector = np.random.default_rng(4).standard_normal(sizes.noise, dtype=np.float32)
    table = noise_table("discrete-gaussian", Fraction(NOISE_STEPS**2))
    least = noise_table("discrete-gaussian", Fraction(1, 128))
    bound = int((NORM * STEPS) ** 2) + vector.size

    def share_from(table: NoiseTable) -> np.ndarray:
        return noise_share(
            vector,
            clip_norm=NORM,
            steps_per_unit=STEPS,
            rotation_seed=ROTATION_SEED,
            norm_bound_squared=bound,
            most_rounded=2**20,
            most_sent=2**20,
            table=table,
            threads=1,
        )[0]

    def ours() -> np.ndarray:
        return share_from(table)

    def exact() -> np.ndarray:
        return discrete_gaussian_noise(vector, NORM, NOISE_STEPS / STEPS, FRACTION_BITS, threads=1)[0]

    functions = {
        "ours": ours,
        "exact": exact,
        "butterflies": lambda: _numpy_share(vector, _butterflies),
        "products": lambda: _numpy_share(vector, _matrix_products),
        # The least noise there is: a word is drawn for each value all the same.
        "ours without noise": lambda: share_from(least),
        "butterflies without noise": lambda: _numpy_share(vector, _butterflies, noise_steps=0),
    }
    _check_share(ours(), vector)
    _check_transforms()
    seconds = median_seconds_in_turns(functions, sizes.repetitions, clock=time.process_time)
    each = {name: f"{1e9 * value / vector.size:.2f} ns a value" for name, value in seconds.items()}
    what = f"clip, rotate, round and discrete noise, {vector.size:,} values"
    yield at_most(
        f"{what}, over discrete noise drawn exactly without a table",
        seconds["ours"] / seconds["exact"],
        1,
        0.25,
        note=f"{each['ours']} beside {each['exact']}",
    )
    yield at_least(
        f"{what}, against NumPy's butterflies and rounded normal noise",
        seconds["butterflies"] / seconds["ours"],
        10,
        note=f"{each['ours']} beside {each['butterflies']}; {each['products']} where NumPy multiplies by small"
        " Hadamard matrices",
    )
    yield at_least(
        f"clip, rotate and round, {vector.size:,} values, against NumPy's butterflies; ours with the least noise",
        seconds["butterflies without noise"] / seconds["ours without noise"],
        10,
        note=f"{each['ours without noise']} beside {each['butterflies without noise']}",
    )


def _check_share(share: np.ndarray, vector: np.ndarray) -> None:
    """What is left when the clipped vector is taken off has the deviation of the noise and of rounding."""
    mean = mean_of_total(
        share.astype(np.float64), clients=1, steps_per_unit=STEPS, rotation_seed=ROTATION_SEED
    )
    noise = mean * STEPS - vector * (NORM * STEPS / np.linalg.norm(vector.astype(np.float64)))
    assert abs(noise.std() / NOISE_STEPS - 1) < 6 / np.sqrt(2 * vector.size)


def _check_transforms() -> None:
    values = np.random.default_rng(5).standard_normal(2**11, dtype=np.float32)
    expected = _hadamard_matrix(11) @ values
    for transform in (_butterflies, _matrix_products):
        np.testing.assert_allclose(transform(values.copy()), expected, atol=1e-3)


def _numpy_share(
    vector: np.ndarray, transform: Callable[[np.ndarray], np.ndarray], noise_steps: int = NOISE_STEPS
) -> np.ndarray:
    """Clip, rotate, scale, round and noise by passes over the whole vector, with NumPy's generator."""
    random = np.random.default_rng(6)
    count = 2 ** (vector.size.bit_length() - 1)
    norm = float(np.linalg.norm(vector))
    values = vector * np.float32(min(1.0, NORM / norm) * STEPS)
    for start in (0, values.size - count):
        part = values[start : start + count]
        bits = np.unpackbits(np.frombuffer(random.bytes(-(-count // 8)), np.uint8), count=count)
        signs = np.array([1, -1], np.float32) / np.float32(np.sqrt(count))
        part *= signs[bits]
        part[:] = transform(part)
    values += random.random(values.size, dtype=np.float32)
    np.floor(values, out=values)
    assert np.dot(values, values) < 2 * (NORM * STEPS) ** 2 + vector.size
    if noise_steps:
        noise = random.standard_normal(values.size, dtype=np.float32)
        noise *= noise_steps
        values += np.rint(noise, out=noise)
    return values.astype(np.int32)


def _butterflies(values: np.ndarray) -> np.ndarray:
    """The fast Walsh-Hadamard transform in place, stage after stage."""
    kept = np.empty(values.size // 2, dtype=values.dtype)
    distance = 1
    while distance < values.size:
        pairs = values.reshape(-1, 2, distance)
        differences = kept.reshape(-1, distance)
        np.subtract(pairs[:, 0], pairs[:, 1], out=differences)
        pairs[:, 0] += pairs[:, 1]
        pairs[:, 1] = differences
        distance *= 2
    return values


def _matrix_products(values: np.ndarray) -> np.ndarray:
    """The same as products with Hadamard matrices of 16 rows, by BLAS: more additions, but fewer passes."""
    size, left = values.size, 1
    while left < size:
        rows = min(16, size // left)
        matrix = _hadamard_matrix(rows.bit_length() - 1)
        right = size // (left * rows)
        values = (
            np.matmul(matrix, values.reshape(left, rows, right))
            if right > 1
            else values.reshape(-1, rows) @ matrix
        )
        left *= rows
    return values.reshape(-1)


def _hadamard_matrix(log2_rows: int) -> np.ndarray:
    matrix = np.ones((1, 1), dtype=np.float32)
    for _ in range(log2_rows):
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix
