"""Apps in the shapes of Flower's own quick starts survive the five lines, and have the plain app's model."""

from __future__ import annotations

import difflib
import json
import random
import re
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import Context, RecordDict

from flower.loopback_grid import LoopbackGrid

APPS = Path(__file__).with_name("quickstarts")
CONFIG = {"num-server-rounds": 3, "learning-rate": 0.1, "batch-size": 16, "fraction-evaluate": 0.5}
CONFIG |= {"fraction-train": 1.0, "model-name": "tiny"}
NODES = 4
LINES = [
    ("client_app = ClientApp()", "client_app = ClientApp(mods=[shield_mod])"),
    ("result = strategy.start(", "result = ShieldStrategy(strategy, context.run_config).start("),
]
IMPORTS = ["from shieldfl.flower import shield_mod", "from shieldfl.flower import ShieldStrategy"]


class QuickStart:
    """An app, plain or protected, in a folder of its own.

    Parameters
    ----------
    name : of its module.
    folder : where it runs.
    protected : whether it has the five lines.
    changes : what the app's text has in the place of other text, in both forms.
    """

    def __init__(self, name, folder, *, protected, changes=()):
        self.folder = folder
        folder.mkdir()
        self.plain = (APPS / f"{name}.py").read_text()
        for old, new in changes:
            assert old in self.plain
            self.plain = self.plain.replace(old, new)
        self.source, self.config = self.plain, dict(CONFIG)
        if protected:
            for old, new in LINES:
                assert self.plain.count(old) == 1
                self.source = self.source.replace(old, new)
            first, rest = self.source.split("from __future__ import annotations\n")
            self.source = f"{first}from __future__ import annotations\n" + "\n".join([*IMPORTS, rest])
            self.config["shieldfl.clients"] = NODES

    @property
    def changed_lines(self):
        """How many lines there are in the place of others, or beside them."""
        compared = difflib.ndiff(self.plain.splitlines(), self.source.splitlines())
        return sum(one.startswith("+ ") for one in compared) + ("shieldfl.clients" in self.config)

    def run(self, monkeypatch, **config):
        """Run it; nodes are drawn after one seed."""
        self.config |= {name.replace("__", ".").replace("_", "-"): one for name, one in config.items()}
        module = types.ModuleType("quickstart")
        monkeypatch.chdir(self.folder)
        exec(compile(self.source, "quickstart", "exec"), vars(module))
        self.grid = LoopbackGrid(lambda: module.client_app, NODES, run_config=self.config)
        random.seed(3)
        module.server_app(self.grid, Context(1, 0, {}, RecordDict(), self.config))
        return self

    def model(self, name="final_model"):
        """Return what the app has saved."""
        npz = self.folder / f"{name}.npz"
        if npz.exists():
            return dict(np.load(npz))
        return {key: one.numpy() for key, one in torch.load(self.folder / f"{name}.pt").items()}


def both(name, folder, monkeypatch, *, changes=(), **config):
    """Run an app in both forms; return them, and what each has printed last."""
    return [
        QuickStart(name, folder / form, protected=form == "protected", changes=changes).run(
            monkeypatch, **config
        )
        for form in ("plain", "protected")
    ]


def numbers_in(text):
    return [float(one) for one in re.findall(r"\d+\.\d+(?:e-?\d+)?", text)]


def check_alike(plain, protected, said, name="final_model"):
    models = plain.model(name), protected.model(name)
    assert models[0].keys() == models[1].keys()
    for key, own in models[0].items():
        np.testing.assert_allclose(models[1][key], own, atol=2e-5)
    assert any(np.abs(own).max() > 0.05 for own in models[0].values())
    printed = [numbers_in(one) for one in said.splitlines() if "accuracy" in one]
    assert len(printed) == 2
    assert printed[1] == pytest.approx(printed[0], abs=1e-3)


@pytest.mark.parametrize("name", ["pytorch", "sklearn", "advanced", "huggingface"])
def test_a_quick_start_of_five_more_lines_has_the_plain_ones_model(name, tmp_path, monkeypatch, capsys):
    """Models were lost, or those of clients that all count alike; of one strategy the start was skipped."""
    fraction = {"fraction_train": 0.75} if name in ("advanced", "huggingface") else {}
    plain, protected = both(name, tmp_path, monkeypatch, **fraction)
    assert protected.changed_lines == 5
    said = capsys.readouterr().out
    check_alike(plain, protected, said)
    if name == "advanced":
        check_alike(plain, protected, said, "best_model")
        rows = [json.loads((one.folder / "results.json").read_text()) for one in (plain, protected)]
        assert [one["round"] for one in rows[1]] == [1, 2, 3]
        for own, other in zip(*rows, strict=True):
            assert other == pytest.approx(own, abs=1e-3)


STRATEGIES = {
    "FedAdam": "FedAdam(eta=0.02, tau=0.1)",
    "FedYogi": "FedYogi(eta=0.02, tau=0.1)",
    "FedAdagrad": "FedAdagrad(eta=0.02, tau=0.1)",
    "FedAvgM": "FedAvgM(server_learning_rate=0.8, server_momentum=0.5)",
    "FedProx": "FedProx(proximal_mu=0.5)",
}
GIVEN = 'FedAvg(fraction_evaluate=context.run_config["fraction-evaluate"])'


def instead(strategy):
    """Return the changes that give the app another of Flower's strategies."""
    return [("import FedAvg\n", f"import {strategy.partition('(')[0]}\n"), (GIVEN, strategy)]


@pytest.mark.every_run("FedAdam", "FedProx")
@pytest.mark.parametrize("label", STRATEGIES)
def test_a_quick_start_with_another_strategy_has_the_plain_ones_model(label, tmp_path, monkeypatch, capsys):
    changes = instead(STRATEGIES[label])
    plain, protected = both("pytorch", tmp_path, monkeypatch, changes=changes, num_server_rounds=2)
    assert protected.changed_lines == 5
    check_alike(plain, protected, capsys.readouterr().out)
