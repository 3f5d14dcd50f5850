"""What all benchmarks share: values like a model update's, and sizes that can be raised from outside."""

from __future__ import annotations

import os

import numpy as np
import pytest

SIZES = [int(size) for size in os.environ.get("SHIELDFL_BENCH_SIZES", "100000,1000000").split(",")]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "size" in metafunc.fixturenames:
        metafunc.parametrize("size", SIZES, ids=[f"values={size}" for size in SIZES])


@pytest.fixture
def update(size: int) -> np.ndarray:
    return np.random.default_rng(0).normal(0.0, 0.05, size).astype(np.float32)
