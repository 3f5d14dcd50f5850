"""How epsilon is to be read agrees with what the methods do."""

from __future__ import annotations

import math

import pytest

from shieldfl.methods.registry import METHOD_NAMES
from shieldfl.methods.settings import MethodSettings
from shieldfl.simulation.config import RunConfig
from shieldfl.simulation.driver import run_methods
from shieldfl.simulation.privacy_reading import privacy_reading

SLOW_KEYS = {"plain-he", "batch-crypt", "sense-crypt"}


@pytest.mark.parametrize("name", [name for name in METHOD_NAMES if name not in SLOW_KEYS])
def test_a_run_says_how_to_read_its_epsilon(name):
    config = RunConfig(clients=2, min_clients=2, rounds=2, local_epochs=1, model="mlp", threads=1)
    settings = MethodSettings()
    if name == "selective-shield":
        settings = settings.changed(name, {"noise_multiplier": 0.01})
    (method,) = run_methods(config, [name], settings).methods
    reading = privacy_reading(name)
    assert method.privacy_unit == reading.unit
    assert method.notes[0] == reading.meaning
    assert (0.0 < method.last.epsilon_paper < math.inf) == (reading.unit is not None)
    encrypts = name not in ("fedavg", "dp-fedavg", "dp-sgd", "alt-fl-si-dp")
    assert ("opened sums, and with them the global model, tell is not counted" in reading.meaning) == encrypts
    if "second figure" in reading.meaning:
        assert method.last.epsilon_added < method.last.epsilon_paper
    else:
        assert method.last.epsilon_added == method.last.epsilon_paper
