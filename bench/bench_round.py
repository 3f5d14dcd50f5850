"""One whole round of each method on the digits: training, protection, messages, sums."""

from __future__ import annotations

import pytest

from shieldfl.lab.simulation.config import RunConfig
from shieldfl.lab.simulation.runner import run_seeds
from shieldfl.methods.registry import BUILT_IN


@pytest.mark.parametrize("method", BUILT_IN)
@pytest.mark.parametrize("clients", [5, 20], ids=lambda clients: f"clients={clients}")
def test_round(benchmark, method, clients):
    config = RunConfig(clients=clients, rounds=1, local_epochs=1, threads=1)
    result = benchmark.pedantic(run_seeds, (config, [method], [0]), rounds=3, warmup_rounds=1).runs[0]
    (record,) = result.methods[0].rounds
    benchmark.extra_info["stage_seconds"] = record.stage_seconds
    assert record.participants == clients
