"""The apps of examples/flower, plain or with their protected.diff, run in the test's process."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from flower.app_in_process import AppInProcess
from flower.loopback_grid import FIRST_NODE, LoopbackGrid
from shieldfl.flower.client_session import ClientSession
from shieldfl.flower.wire import ASK

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
        records = message.content.config_records
        counts = (
            records.get(ASK, {}).get("kind") == "count"
        )  # before the first round, in which it asks for its training
        number = 0 if counts else records.get("config", {}).get("server-round", 0)
        client, kind = message.metadata.dst_node_id - FIRST_NODE, message.metadata.message_type
        self.carried.append(Carried(number, client, kind, self.bytes_down - down, self.bytes_up - up))
        return reply


class ExampleApp(AppInProcess):
    """A copy of an example in a folder of its own.

    Parameters
    ----------
    name : of the example.
    folder : for the copy.
    protected : whether its diff is applied.
    """

    grid_class = MeteredGrid

    def __init__(self, name, folder, *, protected):
        super().__init__(Path(shutil.copytree(EXAMPLES / name, Path(folder) / name)), name)
        if protected:
            diff = ["patch", "--strip=1", "--input=protected.diff"]
            subprocess.run(diff, cwd=self.folder, check=True, capture_output=True)


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
