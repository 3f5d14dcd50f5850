"""A small fleet, made-up costs, and a way to run ``shieldfl profile`` on them."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from shieldfl.cli.app import app
from shieldfl.lab.fleet.cost_model import DeviceProfile, SchemeProfile

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


def invoke(*arguments: object):
    return CliRunner().invoke(app, ["profile", *map(str, arguments)])


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
