"""The apps of examples/flower, plain or with their protected.diff, run in the test's process."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from flower.app_in_process import AppInProcess
from shieldfl.flower.mod import ClientSession

EXAMPLES = Path(__file__).parents[2] / "examples" / "flower"


class ExampleApp(AppInProcess):
    """A copy of an example in a folder of its own.

    Parameters
    ----------
    name : of the example.
    folder : for the copy.
    protected : whether its diff is applied.
    """

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

        def kept(session):
            self.evaluated.append(model_of(session))
            return self.evaluated[-1]

        self.apps, self.results = [], []
        for form in ("plain", "protected"):
            app = ExampleApp(name, folder / form, protected=form == "protected")
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(ClientSession, "model", kept)
                self.results.append(app.run(patch, **override))
            self.apps.append(app)
