"""Clipping and noise in one call: the same as one after the other, under every instruction set."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import numpy as np
import pytest

from encryption.child_process import INSTRUCTION_SETS
from shieldfl.errors import ArrayTypeError, ParameterError, RangeError
from shieldfl.privacy.noise import clip_and_noise, clip_l2

DRAWS = 1_000_000
# A standard score beyond 6 comes once in 5e8 honest runs.
SCORE_LIMIT = 6.0


@pytest.mark.parametrize("threads", [None, 1, 3])
def test_what_is_left_after_clipping_is_the_noise(threads: int | None) -> None:
    vector = np.random.default_rng(1).normal(0.0, 1.0, DRAWS).astype(np.float32)
    clipped, norm, _ = clip_l2(vector, 100.0)
    noised, original_norm, was_clipped = clip_and_noise(vector, 100.0, 0.5, threads=threads)
    assert (original_norm, was_clipped) == (norm, True)
    assert noised.dtype == np.float32
    residual = (noised.astype(np.float64) - clipped) / 0.5
    assert abs(residual.mean()) * math.sqrt(DRAWS) < SCORE_LIMIT
    assert abs((residual**2).mean() - 1.0) * math.sqrt(DRAWS / 2) < SCORE_LIMIT
    assert abs((residual**4).mean() - 3.0) * math.sqrt(DRAWS / 96) < SCORE_LIMIT
    assert abs((residual * vector).mean()) * math.sqrt(DRAWS / (vector.astype(np.float64) ** 2).mean()) < 6


def test_two_calls_draw_different_noise() -> None:
    vector = np.zeros(10_000, dtype=np.float32)
    first, second = (clip_and_noise(vector, 1.0, 1.0)[0] for _ in range(2))
    assert np.count_nonzero(first == second) < 10


def test_no_noise_is_clipping_alone() -> None:
    vector = np.arange(10, dtype=np.float32)[::2]
    clipped, norm, was_clipped = clip_and_noise(vector, 1.0, 0.0)
    np.testing.assert_array_equal(clipped, clip_l2(vector, 1.0)[0])
    assert norm == math.sqrt(120.0)
    assert was_clipped
    assert clip_and_noise(vector[:0], 1.0, 1.0)[0].shape == (0,)


def test_bad_input_is_refused() -> None:
    vector = np.ones(5000, dtype=np.float32)
    with pytest.raises(ParameterError, match="clipping norm"):
        clip_and_noise(vector, 2.0**-101, 1.0)
    with pytest.raises(ParameterError, match="standard deviation"):
        clip_and_noise(vector, 1.0, -1.0)
    with pytest.raises(ParameterError, match="threads"):
        clip_and_noise(vector, 1.0, 1.0, threads=0)
    with pytest.raises(ArrayTypeError):
        clip_and_noise(np.ones(2), 1.0, 1.0)  # type: ignore[arg-type]
    vector[4999] = np.inf
    vector[4100] = np.nan
    with pytest.raises(RangeError, match="position 4100 "):
        clip_and_noise(vector, 1.0, 1.0)


def test_every_instruction_set_clips_alike() -> None:
    code = (
        "import numpy as np; from shieldfl.privacy.noise import clip_l2, gaussian_noise;"
        "v = np.random.default_rng(2).normal(0, 1, 10_007).astype(np.float32);"
        "c, norm, _ = clip_l2(v, 3.0); n = gaussian_noise(v, 1.0) - v;"
        "assert 0.9 < n.std() < 1.1; print(norm.hex(), c.tobytes().hex())"
    )
    printed = {}
    for name in INSTRUCTION_SETS:
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "SHIELDFL_SIMD": name},
        )
        if name != "scalar" and done.returncode != 0 and "SHIELDFL_SIMD" in done.stderr:
            continue  # a set that this machine lacks is refused by name
        assert done.returncode == 0, done.stderr
        printed[name] = done.stdout
    assert len(set(printed.values())) == 1
