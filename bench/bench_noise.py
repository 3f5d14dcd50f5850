"""Clipping and noise beside torch's, and the discrete Gaussian. Every benchmark checks its result's moments."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from shieldfl.privacy.noise import clip_and_noise, discrete_gaussian_noise

NORM = 1.0
DEVIATION = 0.1


@pytest.fixture(autouse=True)
def one_torch_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def check_moments(noised: np.ndarray, update: np.ndarray) -> None:
    clipped = update * (NORM / np.linalg.norm(update.astype(np.float64)))
    residual = (noised.astype(np.float64) - clipped) / DEVIATION
    assert abs(residual.mean()) * math.sqrt(update.size) < 6.0
    assert abs((residual**2).mean() - 1.0) * math.sqrt(update.size / 2) < 6.0


@pytest.mark.parametrize("threads", [1, None], ids=lambda threads: f"threads={threads or 'all'}")
def test_clip_and_noise(benchmark, size, update, threads):
    noised, _, was_clipped = benchmark(clip_and_noise, update, NORM, DEVIATION, threads=threads)
    assert was_clipped
    check_moments(noised, update)


def test_clip_and_noise_in_torch(benchmark, size, update):
    """The same on one thread, for comparison; it works on a copy, which the time includes."""
    vector = torch.from_numpy(update)

    def clip_and_add() -> torch.Tensor:
        clipped = vector * min(1.0, NORM / float(vector.norm()))
        return clipped.add_(torch.empty_like(clipped).normal_(0.0, DEVIATION))

    check_moments(benchmark(clip_and_add).numpy(), update)


def test_discrete_gaussian_noise(benchmark, size, update):
    noised, _, _ = benchmark.pedantic(
        discrete_gaussian_noise, (update, NORM, DEVIATION, 24), {"threads": 1}, rounds=3
    )
    check_moments(noised, update)
