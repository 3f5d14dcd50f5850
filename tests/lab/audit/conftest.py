"""Small federations to attack: scikit-learn's digits, one linear layer, four clients of a few samples."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from methods.keys_made_once import keys_made_once  # noqa: F401
from shieldfl.lab.audit.audit_config import AuditConfig
from shieldfl.lab.audit.views.view import Trial
from shieldfl.lab.simulation.data import Dataset, load_dataset
from shieldfl.methods.registry import MethodSettings


@pytest.fixture(scope="session")
def digits() -> Dataset:
    return load_dataset("digits")


@pytest.fixture(scope="session")
def small() -> AuditConfig:
    return AuditConfig(model="linear", samples=4, rounds=2, threads=1, trials=2, workers=1)


@pytest.fixture(scope="session")
def trial_of(digits: Dataset, small: AuditConfig) -> Callable[[str], Trial]:
    """Each method's first federation, made once."""
    made: dict[str, Trial] = {}

    def trial(name: str) -> Trial:
        if name not in made:
            made[name] = Trial(name, MethodSettings(), small, digits, 0)
        return made[name]

    return trial
