"""Digits for runs of whose figures it is not tested how good they are: few, and of few values."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from shieldfl.simulation import driver
from shieldfl.simulation.data import Dataset

__all__ = ["fewer_samples"]

_TRAIN, _TEST = 360, 90


@contextlib.contextmanager
def fewer_samples(*, coarse: bool = False) -> Iterator[None]:
    """Within it, runs get a quarter of the data; ``coarse`` makes of every two by two pixels one."""
    load = driver.load_dataset

    def shrunk(features: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.avg_pool2d(features, 2) if coarse else features

    def load_some(name: str, data_dir: str | None) -> Dataset:
        dataset = load(name, data_dir)
        return replace(
            dataset,
            train_features=shrunk(dataset.train_features[:_TRAIN]),
            train_labels=dataset.train_labels[:_TRAIN],
            test_features=shrunk(dataset.test_features[:_TEST]),
            test_labels=dataset.test_labels[:_TEST],
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "load_dataset", load_some)
        yield
