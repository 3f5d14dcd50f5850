"""The command line in this process, and in one of its own; a small fleet and its made-up costs."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from typer.testing import CliRunner, Result

from shieldfl.cli.app import app
from shieldfl.lab.fleet.cost_source import DeviceProfile, SchemeProfile


def invoke(*arguments: object, data: bytes | None = None) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(app, list(map(str, arguments)), input=data)


def said(text: str) -> str:
    """What was printed, without the lines and the frame that it was broken into."""
    return " ".join(re.sub(r"[│\n]", " ", text).split())


def run_without(
    packages: Sequence[str],
    *arguments: object,
    folder: object = None,
    environment: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command in a Python that cannot import some packages."""
    code = (
        "import sys\n"
        f"for name in {list(packages)!r}: sys.modules[name] = None\n"
        "from shieldfl.cli.main import main\n"
        f"sys.argv[1:] = {list(map(str, arguments))!r}\n"
        "main()\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=folder,
        env=environment,
    )


CLIENTS = """
[[client]]
name = "laptop"
count = 2
cores = 4
bandwidth = "100 Mbit/s"
samples = 100

[[client]]
name = "phone"
cores = 2
cpu_share = 0.5
upload = "10 Mbit/s"
download = "50 Mbit/s"
latency = "40 ms"
samples = 50
"""
FLEET = f"[model]\nparameters = 10000\ntrain_core_seconds_per_sample = 0.001\n{CLIENTS}"


def save_made_up_profile(path: Path) -> Path:
    """Of two schemes; made up, so that tests do not depend on the machine."""
    schemes = tuple(
        SchemeProfile(name, "made up", values, size, {1: seconds, 2: seconds / 2}, 1e-4, 1e-4, clear)
        for name, values, size, seconds, clear in (
            ("ckks", 4096, 40_000.0, 1e-3, False),
            ("paillier-single", 1, 768.0, 2e-3, True),
        )
    )
    machine = {"processor": "a processor", "date": "a day"}
    DeviceProfile(machine, schemes, 1e-9, 1e-8, 1e-9).save(path)
    return path
