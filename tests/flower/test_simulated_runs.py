"""Runs in Flower's simulation, whose clients are Ray's workers, are those in one process, bit for bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from flower.simulated_runs import VARIANTS, digest_of, run_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("ray") is None, reason="ray is not installed: pip install 'flwr[simulation]'"
    ),
]


@pytest.fixture(scope="module")
def simulated():
    """What all runs told, of one simulation: to start one takes longer than they do."""
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "FLWR_TELEMETRY_ENABLED": "0", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", "from flower.simulated_runs import main; main()"],
        cwd=Path(__file__).parents[1],
        env=os.environ | quiet,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("label", VARIANTS)
def test_a_simulated_run_is_the_one_without_flower(label, simulated):
    run = run_of(label)
    told = simulated[label]
    assert len(told) == run.rounds
    secret = bytes(told[-1]["secret"]) if label == "dict-pfl" else None
    assert secret is None or len(secret) == 32
    expected = [[digest_of(one) for one in models] for models in run.embedded(secret)]
    assert [one["digests"] for one in told] == expected
    assert len({digest for digests in expected for digest in digests}) > 1
