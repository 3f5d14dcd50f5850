"""Whoever trains has the same defaults and refuses the same settings, in the same words."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable

import pytest

from shieldfl.errors import ParameterError
from shieldfl.privacy.dp_sgd import train_privately
from shieldfl.sgd_settings import DEFAULT_MOMENTUM
from shieldfl.simulation.config import RunConfig
from shieldfl.simulation.training import TrainingSettings

SETTINGS = {
    "local_epochs": 1,
    "batch_size": 2,
    "learning_rate": 0.1,
    "momentum": 0.5,
    "weight_decay": 0.0,
}


def private(**settings: float) -> None:
    import torch

    model = torch.nn.Linear(2, 2)
    train_privately(
        model,
        torch.zeros(2, 2),
        torch.tensor([0, 1]),
        noise_multiplier=0.0,
        **settings,  # type: ignore[arg-type]
    )


def test_one_default_for_momentum():
    stated = inspect.signature(train_privately).parameters["momentum"].default
    assert {RunConfig().momentum, TrainingSettings().momentum, stated} == {DEFAULT_MOMENTUM}


@pytest.mark.parametrize("make", [RunConfig, TrainingSettings, private])
@pytest.mark.parametrize(
    ("name", "wrong", "right"),
    [
        ("momentum", (1.0, -0.1, math.nan, "0.5"), 0.0),
        ("weight_decay", (-0.1, math.inf, math.nan), 0.01),
        ("learning_rate", (0.0, -1.0, math.inf, math.nan), 1e-3),
        ("local_epochs", (0, 1.5), 2),
        ("batch_size", (0, -3, 2**31), 1),
    ],
)
def test_one_check(make: Callable[..., object], name: str, wrong: tuple[object, ...], right: float):
    make(**(SETTINGS | {name: right}))
    for value in wrong:
        with pytest.raises(ParameterError, match=name):
            make(**(SETTINGS | {name: value}))
