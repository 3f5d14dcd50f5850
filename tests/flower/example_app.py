"""The apps of examples/flower, plain or with their protected.diff, run in the test's process."""

from __future__ import annotations

import importlib
import random
import shutil
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from flwr.app import Context, RecordDict
from flwr.common.config import get_fused_config_from_dir
from flwr.serverapp.strategy import Strategy

from flower.loopback_grid import FIRST_NODE, LoopbackGrid
from shieldfl.flower.client_session import ClientSession
from shieldfl.flower.strategy import ShieldStrategy

EXAMPLES = Path(__file__).parents[2] / "examples" / "flower"


@dataclass(frozen=True)
class Carried:
    """A message and its reply."""

    round: int
    """0 for what is before the first one, and after the last."""
    client: int
    type: str
    down: int
    up: int


class MeteredGrid(LoopbackGrid):
    """Knows what every message and its reply took."""

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.carried = []

    def _delivered(self, message):
        down, up = self.bytes_down, self.bytes_up
        reply = super()._delivered(message)
        number = message.content.config_records.get("config", {}).get("server-round", 0)
        client, kind = message.metadata.dst_node_id - FIRST_NODE, message.metadata.message_type
        self.carried.append(Carried(number, client, kind, self.bytes_down - down, self.bytes_up - up))
        return reply


class ExampleApp:
    """A copy of an example in a folder of its own.

    Parameters
    ----------
    name : of the example.
    folder : for the copy.
    protected : whether its diff is applied.
    """

    def __init__(self, name, folder, *, protected):
        self.name = name
        self.folder = Path(shutil.copytree(EXAMPLES / name, Path(folder) / name))
        if protected:
            diff = ["patch", "--strip=1", "--input=protected.diff"]
            subprocess.run(diff, cwd=self.folder, check=True, capture_output=True)
        self.grid = None
        """What it ran on last."""

    @contextmanager
    def modules(self):
        """Import the copy's ServerApp and ClientApp, and forget them with all that they import of it."""
        sys.path.insert(0, str(self.folder))
        try:
            yield [importlib.import_module(f"{self.name}.{one}") for one in ("server_app", "client_app")]
        finally:
            sys.path.remove(str(self.folder))
            for module in [module for module in sys.modules if module.partition(".")[0] == self.name]:
                del sys.modules[module]

    def run(self, monkeypatch, nodes=10, **override):
        """Run it on a grid with so many nodes; return the result of its strategy.

        ``override`` is of its configuration, underscores of names for hyphens. Nodes are drawn as ever after this seed.
        """
        config = get_fused_config_from_dir(self.folder, {})
        config |= {name.replace("_", "-").replace("--", "."): one for name, one in override.items()}
        monkeypatch.chdir(self.folder)
        kept = []
        with self.modules() as (server, client), monkeypatch.context() as patch:
            patch.setattr("shieldfl.flower.mod.is_simulated", lambda: True)
            for kind in (Strategy, ShieldStrategy):
                patch.setattr(kind, "start", _keeping(kind.start, kept))
            self.grid = MeteredGrid(lambda: client.app, nodes, run_config=config)
            random.seed(3)
            server.app(self.grid, Context(1, 0, {}, RecordDict(), config))
        return kept[-1]


def _keeping(start, kept):
    def kept_start(*arguments, **named):
        result = start(*arguments, **named)
        kept.append(result)
        return result

    return kept_start


class Runs:
    """Plain and protected form of an example, each of which was run."""

    def __init__(self, name, folder, **override):
        self.evaluated = []
        """The arrays of each evaluation at a client of the protected form."""
        model_of = ClientSession.model

        def kept(session, message):
            self.evaluated.append(model_of(session, message))
            return self.evaluated[-1]

        self.apps, self.results = [], []
        for form in ("plain", "protected"):
            app = ExampleApp(name, folder / form, protected=form == "protected")
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(ClientSession, "model", kept)
                self.results.append(app.run(patch, **override))
            self.apps.append(app)
