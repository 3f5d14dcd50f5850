"""What encryption takes with the instruction sets below this processor's best: each in a process of its own.

The core chooses its kernels once, when it is loaded, so another set needs another process: ``SHIELDFL_SIMD``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence

import numpy as np

from shieldfl.build_info import build_info, lower_instruction_sets
from shieldfl.errors import ShieldError
from shieldfl.fleet.costs.scheme_calibration import SchemeWork, measure_schemes

__all__ = ["measure_other_sets"]

_CODE = "from shieldfl.fleet.costs.other_sets import _answer; _answer()"


def measure_other_sets(schemes: Sequence[str], work: SchemeWork) -> dict[str, dict[str, float]]:
    """Return, by scheme and lower instruction set, the seconds of a ciphertext on one thread, its pool included.

    Raises ShieldError where a process of another set fails.
    """
    best = build_info()["instruction_set"]
    found: dict[str, dict[str, float]] = {name: {} for name in schemes}
    facts = {
        "schemes": list(schemes),
        "values": int(work.update.size),
        "ciphertexts": work.slow_ciphertexts,
        "key_bits": work.key_bits,
        "seconds": work.seconds,
    }
    for lower in lower_instruction_sets(best):
        done = subprocess.run(
            [sys.executable, "-P", "-c", _CODE],
            input=json.dumps(facts),
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"SHIELDFL_SIMD": lower},
        )
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise ShieldError(f"the instruction set {lower} could not be measured: {last}")
        for name, seconds in json.loads(done.stdout).items():
            found[name][lower] = seconds
    return found


def _answer() -> None:
    """Measure what standard input asks for and print it as JSON: the process of one instruction set."""
    facts = json.load(sys.stdin)
    update = np.random.default_rng(0).normal(0.0, 0.05, facts["values"]).astype(np.float32)
    work = SchemeWork(update, facts["ciphertexts"], facts["key_bits"], (1,), facts["seconds"])
    seconds = {
        measured.name: measured.encrypt_seconds[1] + measured.pool_seconds.get(1, 0.0)
        for measured in measure_schemes(facts["schemes"], work)
    }
    print(json.dumps(seconds))
