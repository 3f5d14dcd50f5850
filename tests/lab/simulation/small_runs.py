"""Small and quick runs, for tests of everything but how good their figures are; and what is seen of them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest
import torch

from shieldfl.lab.simulation import data, runner
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.lab.simulation.data import Dataset
from shieldfl.lab.simulation.results import RoundRecord, RunResult
from shieldfl.lab.simulation.runner import run_seeds
from shieldfl.methods.registry import MethodSettings
from shieldfl.privacy.synthetic_data import fit_synthetic_data
from shieldfl.rounds.reports import Account


def charged_draws(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that from now on gets the number of clients of every draw that an account is charged."""
    counts: list[int] = []
    charge = Account.charge_draw

    def counting(account: Account, participants: int, drawn_from: int | None = None) -> None:
        counts.append(participants)
        charge(account, participants, drawn_from)

    monkeypatch.setattr(Account, "charge_draw", counting)
    return counts


SMALL = {"clients": 4, "rounds": 4, "local_epochs": 1, "model": "linear", "threads": 1, "learning_rate": 0.05}


class CutOffError(Exception):
    """The process ends."""


def cut_after(rounds: int) -> Callable[[str, RoundRecord], None]:
    """Return what ends a run after so many rounds, those before it was gone on with included."""
    told: list[tuple[str, int]] = []

    def on_round(name: str, record: RoundRecord) -> None:
        told.append((name, record.round))
        if len(told) == rounds:
            raise CutOffError

    return on_round


_STEPS = 40


@contextlib.contextmanager
def quick_synthetic_data() -> Iterator[None]:
    """Within it, runs fit synthetic data in fewer steps; all that is released and charged stays what it is."""
    with pytest.MonkeyPatch.context() as patch:
        quick = functools.partial(fit_synthetic_data, steps=_STEPS)
        patch.setattr(data, "fit_synthetic_data", quick)
        yield


_TRAIN, _TEST = 360, 90


@contextlib.contextmanager
def fewer_samples(*, coarse: bool = False) -> Iterator[None]:
    """Within it, runs get a quarter of the data; ``coarse`` makes of every two by two pixels one."""
    load = runner.load_dataset

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
        patch.setattr(runner, "load_dataset", load_some)
        yield


def run_methods(
    config: RunConfig,
    methods: Sequence[str],
    settings: MethodSettings | None = None,
    on_round: Callable[[str, RoundRecord], None] = lambda method, record: None,
    **options,
) -> RunResult:
    """Return the one run."""
    told = {"on_round": lambda seed, method, record: on_round(method, record)}
    return run_seeds(config, methods, (config.seed,), settings, **told, **options).runs[0]
