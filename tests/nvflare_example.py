"""The modules of examples/nvflare, and a session of three sites in a folder, for the tests of both environments."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from documentation_pages import ROOT
from shieldfl.models import ModelLayout

FOLDER = ROOT / "examples" / "nvflare"
SITES = ("site-1", "site-2", "site-3")
MOST_STEPS = 8
MODEL = {"layer.weight": np.zeros((3, 5), np.float32), "layer.bias": np.zeros(3, np.float32)}
PASSPHRASE = "a passphrase of the tests"


def module(name):
    """Import a module of the example; its folder stays on the path, since the example's modules import each other."""
    if str(FOLDER) not in sys.path:
        sys.path.insert(0, str(FOLDER))
    return importlib.import_module(name)


def model_of(number):
    """Return what a site has trained: another model for each number."""
    rng = np.random.default_rng(number)
    return {name: rng.normal(0, 0.5, array.shape).astype(np.float32) for name, array in MODEL.items()}


def weighted_mean(models, steps):
    return {name: np.average([model[name] for model in models], axis=0, weights=steps) for name in MODEL}


class Federation:
    """A key authority, and the folders of a server and three sites as NVFlare would have them.

    Keys of files take a while to derive, so tests that change nothing of each other's get copies of one.
    """

    def __init__(self, folder: Path, port: int = 1) -> None:
        self.session_module, self.authority_module = module("kahe_session"), module("key_authority")
        self.authority = folder / "authority"
        self.address = f"127.0.0.1:{port}"
        self.aggregator = folder / "server" / "local" / "kahe"
        self.sites = {site: folder / site / "local" / "kahe" for site in SITES}
        if not self.authority.exists():
            self._make()

    def _make(self) -> None:
        self.authority_module.make(
            self.authority,
            ModelLayout.of(MODEL),
            max_clients=len(SITES),
            min_clients=len(SITES),
            most_steps=MOST_STEPS,
            address=self.address,
            passphrase=PASSPHRASE,
        )
        self._give(self.aggregator, os.listdir(self.authority / "aggregator"))
        for site, place in self.sites.items():
            self._give(place, ["session.json"])
            request = self.session_module.ClientSite.request(place, site)
            grant = self.authority_module.accept(self.authority, request, PASSPHRASE)
            self.session_module.ClientSite(place).take_grant(grant)

    def _give(self, place: Path, names: list[str]) -> None:
        place.mkdir(parents=True)
        for name in names:
            shutil.copy(self.authority / "aggregator" / name, place)

    def answered(self, request: bytes) -> bytes:
        """Answer as the authority does, in this process."""
        with self.authority_module.opened(self.authority, PASSPHRASE) as authority:
            return authority.sum_key(request)

    @contextmanager
    def served(self):
        """Serve the authority in a process of its own."""
        process = subprocess.Popen(
            [sys.executable, FOLDER / "key_authority.py", "serve", self.authority],
            env=os.environ | {"SHIELDFL_AUTHORITY_PASSPHRASE": PASSPHRASE},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            assert process.stdout.readline() == f"answering at {self.address}\n"
            yield
        finally:
            process.terminate()
            process.wait()
            process.stdout.close()
