"""Peak memory, measured in a process of its own."""

from __future__ import annotations

import os

import pytest

from core.child_process import run_python

# Resident bytes now, and the most since the process began. The most of later minus the now of earlier bounds from
# above what came on top in between. (getrusage will not do: a child inherits its parent's maximum.)
METERS = """
import sys
import numpy as np
import shieldfl as sf

def status(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name + ":"))

"""

measures_memory = [
    pytest.mark.skipif(
        "libasan" in os.environ.get("LD_PRELOAD", ""), reason="a sanitizer takes memory of its own"
    ),
]


def measured(code, *arguments):
    """Run code that prints a figure, behind the meters."""
    done = run_python("-c", METERS + code, *map(str, arguments))
    assert done.returncode == 0, done.stderr
    return float(done.stdout)
