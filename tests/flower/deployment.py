"""An app of ``shieldfl flower new``, deployed by its own script as processes of this machine."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flower.app_in_process import AppInProcess
from shieldfl.cli.flower import new

BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class RunResult:
    """How a run ended, what was printed, and what the app wrote down of it."""

    status: str
    output: str
    result: dict | None


class Deployment:
    """SuperLink, key authority and nodes, started by :meth:`up` and ended when the block is left, whatever happened.

    ``with Deployment(tmp_path) as deployed: deployed.up(); deployed.run("rounds=2")``. Parts are ``superlink``,
    ``authority``, ``node-0``, ``node-1``, ...; everything of theirs is in ``state / part``, logs in ``state / "logs"``.

    Parameters
    ----------
    folder : an empty one; the app and all that belongs to the deployment are in there.
    clients : how many nodes.
    min_clients : that the key authority allows.
    node_config : of every node, beside what the script gives it.
    modules : a folder whose modules take the place of the app's of their names.
    """

    def __init__(self, folder, *, clients=3, min_clients=2, node_config="", modules=None):
        self.app = new_app(folder, clients)
        for path in sorted(modules.glob("*.py")) if modules else []:
            shutil.copy(path, self.app.folder / self.app.name)
        self.state, self.clients = folder / "state", clients
        self._up = ["--min-clients", str(min_clients)]
        self._up += ["--node-config", node_config] if node_config else []
        self._environment = os.environ | {
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "DIGITS_APP_STATE": str(self.state),
            "OMP_NUM_THREADS": "1",
            # Of a second, which is Flower's own; each look takes some of the SuperLink's processor time.
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5",
        }

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self._script("down")

    def _begun(self, *words):
        return subprocess.Popen(
            [sys.executable, self.app.folder / "deploy" / "loopback.py", *words],
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def _script(self, *words):
        with self._begun(*words) as process:
            output, _ = process.communicate()
        assert process.returncode == 0, output
        return output

    def up(self):
        """Make keys and certificates, where there are none yet, and start all that does not run."""
        return self._script("up", *self._up)

    def kill(self, part):
        """End a part, and what it has started, by SIGKILL."""
        self._script("kill", part)

    def start(self, part):
        """Start a part again."""
        self._script("start", part)

    def begin(self, config="", how="run"):
        """Start a run with changes to the app's settings, ``key=value ...``; :meth:`finished` waits for it."""
        self._result().unlink(missing_ok=True)
        return self._begun(how, f'result="{self._result()}" {config}')

    def finished(self, process):
        """Wait for a run that :meth:`begin` has started."""
        with process:
            output, _ = process.communicate()
        status = re.findall(r"^run \d+: ([\w:]+)", output, re.MULTILINE)
        assert status, output
        assert (process.returncode == 0) == (status[0] == "finished:completed"), output
        file = self._result()
        return RunResult(status[0], output, json.loads(file.read_text()) if file.exists() else None)

    def run(self, config=""):
        """Run the app to its end."""
        return self.finished(self.begin(config))

    def _result(self):
        return self.state / "result.json"

    def log(self, part):
        """Return what a part has printed."""
        return (self.state / "logs" / f"{part}.log").read_text(errors="replace")

    def store(self, node):
        """Return the folder that a node keeps its secrets in."""
        return self.state / f"node-{node}" / "store"

    def models(self):
        """Return the model that each node wrote when the last run ended, its arrays by name."""
        return [model_in(self.store(node)) for node in range(self.clients)]


def model_in(store):
    """Return the model that a node wrote into the folder of its secrets when its last run ended, arrays by name."""
    with np.load(store / "model.npz") as arrays:
        return {name: arrays[name] for name in arrays.files}


def new_app(folder, clients):
    """Return the app that ``shieldfl flower new`` writes."""
    # In this process, which has imported what a new one would import for seconds.
    with contextlib.chdir(folder):
        new("digits-app", clients=clients)
    return AppInProcess(folder / "digits-app", "digits_app")
