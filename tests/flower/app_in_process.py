"""An app in a folder of its own, whose ServerApp and ClientApp run in the test's process."""

from __future__ import annotations

import functools
import importlib
import random
import sys
from contextlib import contextmanager

from flwr.app import Context, RecordDict
from flwr.common.config import get_fused_config_from_dir
from flwr.serverapp.strategy import Strategy

from flower.loopback_grid import LoopbackGrid
from shieldfl.flower.strategy import ShieldStrategy


class AppInProcess:
    """What is in a folder, over a grid in this process.

    Parameters
    ----------
    folder : of the app.
    name : of its package.
    """

    def __init__(self, folder, name):
        self.folder, self.name = folder, name

    @contextmanager
    def modules(self, *names):
        """Import modules of its package, by default those of its ServerApp and ClientApp, and forget all of it."""
        sys.path.insert(0, str(self.folder))
        try:
            yield [
                importlib.import_module(f"{self.name}.{one}") for one in names or ("server_app", "client_app")
            ]
        finally:
            sys.path.remove(str(self.folder))
            for module in [module for module in sys.modules if module.partition(".")[0] == self.name]:
                del sys.modules[module]

    def run(self, monkeypatch, nodes=10, node_config=lambda number: {}, **override):
        """Run it on a grid with so many nodes; return the result of its strategy.

        ``override`` is of its configuration, underscores of names for hyphens. Nodes are drawn as ever after this seed.
        """
        config = get_fused_config_from_dir(self.folder, {})
        config |= {name.replace("_", "-").replace("--", "."): one for name, one in override.items()}
        kept = []
        with self.modules() as (server, client), monkeypatch.context() as patch:
            patch.chdir(self.folder)
            patch.setattr("shieldfl.flower.mod.is_simulated", lambda: True)
            for kind in (Strategy, ShieldStrategy):
                patch.setattr(kind, "start", _keeping(kind.start, kept))
            grid = LoopbackGrid(lambda: client.app, nodes, node_config, config)
            random.seed(3)
            server.app(grid, Context(1, 0, {}, RecordDict(), config))
        return kept[-1]


def _keeping(start, kept):
    @functools.wraps(start)
    def kept_start(*arguments, **named):
        result = start(*arguments, **named)
        kept.append(result)
        return result

    return kept_start
