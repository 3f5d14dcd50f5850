"""What an import brings along: nobody waits for packages that she does not use, or has to have them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

TRAINING = ("torch", "sklearn", "opacus")
PACKAGES = ("pytest", *TRAINING, "dp_accounting", "rich", "typer", "matplotlib", "jinja2")
COMMANDS = ("run", "audit", "bench", "doctor", "authority", "flower", "inspect", "profile")
SERVING = ("aiohttp", "httpx", "prometheus_client")
UNWANTED = {
    "shieldfl": (*PACKAGES, *SERVING, "cryptography", "msgspec", "scipy", "sqlite3"),
    "shieldfl.authority_service.service": (*PACKAGES, *SERVING),
    # httpx takes rich where it is installed, for a command of its own.
    "shieldfl.authority_service.authority_client": (*TRAINING, "aiohttp", "prometheus_client"),
    "shieldfl.authority_service.http_server": (*PACKAGES, "httpx"),
    # Of all commands one is run: the others' modules stay where they are.
    "shieldfl.cli.app": (
        *SERVING,
        *("torch", "scipy", "flwr", "cryptography"),
        *(f"shieldfl.cli.{one}" for one in COMMANDS),
        *(
            f"shieldfl.{one}"
            for one in ["authority_service", "lab.audit", "lab.bench", "lab.fleet", "lab.simulation"]
        ),
    ),
    # What a server alone needs would be imported for each message to a client.
    "shieldfl.flower.mod": (
        *(*TRAINING, "scipy", "matplotlib", "shieldfl.flower.strategy", "shieldfl.lab.simulation"),
        "shieldfl.authority_service.authority_client",
    ),
    "shieldfl.rounds.encrypted_mean": (*TRAINING, "matplotlib", "scipy", "msgspec"),
    "shieldfl.models": (*TRAINING, "matplotlib", "scipy"),
    "shieldfl.authority.message": (*TRAINING, "sqlite3"),
    "shieldfl.encryption.frame_inspection": TRAINING,
    "shieldfl.lab.bench": (*TRAINING, "rich", "typer", "tenseal", "phe", "heu", "flwr"),
    "shieldfl.methods.sense_crypt.clustering": TRAINING,
    "shieldfl.methods.selective_shield.method": TRAINING,
    "shieldfl.lab.simulation.compared_runs": (*TRAINING, "rich", "matplotlib", "scipy"),
    "shieldfl.lab.simulation.config": TRAINING,
    "shieldfl.lab.fleet.calibration": (*TRAINING, "matplotlib"),
    "shieldfl.lab.fleet.round_simulation": (*TRAINING, "matplotlib"),
    "shieldfl.lab.simulation.runner": ("pytest", "opacus", "rich", "typer", "matplotlib", "jinja2"),
}


@pytest.fixture(scope="module")
def imported_with() -> dict[str, list[str]]:
    """Unwanted packages that each module imports, alone in a process that had imported NumPy; or its error."""
    code = f"""
import json, os, sys
from importlib import import_module
import numpy
for module, unwanted in {UNWANTED!r}.items():
    if os.fork() == 0:
        try:
            import_module(module)
            found = sorted(set(unwanted) & set(sys.modules))
        except ImportError as error:
            found = [str(error)]
        print(json.dumps([module, found]), flush=True)
        os._exit(0)
    os.wait()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return dict(map(json.loads, done.stdout.splitlines()))


@pytest.mark.parametrize("module", UNWANTED)
def test_an_import_stays_light(module, imported_with):
    assert imported_with[module] == []
