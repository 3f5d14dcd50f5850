"""Clipping and Gaussian noise beside torch's, on one thread each."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import numpy as np

from shieldfl.benchmarks.target import Target, at_least
from shieldfl.benchmarks.turns import median_seconds_in_turns
from sizes import Sizes

NORM = 1.0
DEVIATION = 0.01


def measure(sizes: Sizes) -> Iterator[Target]:
    """Yield the line of this page."""
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

    from shieldfl.privacy.mechanisms import clip_and_noise

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
