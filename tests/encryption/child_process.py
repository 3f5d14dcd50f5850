"""Python in a process of its own, which imports the very package under test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from shieldfl.build_info import instruction_sets_of

TESTS = Path(__file__).parents[1]
INSTRUCTION_SETS = ("scalar", "neon", "avx2", "avx512")
"""What the core has kernels for."""


def lower_instruction_sets(best):
    """Those that a machine with this one has too, the slowest first."""
    sets = next(sets for sets in map(instruction_sets_of, ("x86_64", "aarch64")) if best in sets)
    return sets[: sets.index(best)]


def run_python(*arguments: str, **variables: str | None) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments and environment variables; None unsets one."""
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join([str(TESTS), *filter(None, sys.path)])
    for name, value in variables.items():
        environment.pop(name, None)
        if value is not None:
            environment[name] = value
    # Where this process runs without site packages' hooks, an installed package must not be found by the child.
    flags = ["-S"] if sys.flags.no_site else []
    return subprocess.run(
        [sys.executable, *flags, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
