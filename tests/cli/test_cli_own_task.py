"""``shieldfl run --task`` and ``--seeds``: a user's own model and data from a file, once for each seed."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from small_pictures import ONE_PICTURE
from warm_python import COMMAND_LINE

MODULE = """
import numpy as np
import shieldfl as sf
from torch import nn

features = np.random.default_rng(0).normal(size=(60, 4))
targets = features @ [[1.0], [-2.0], [0.5], [0.0]]
task = sf.Task(
    name="line",
    model=lambda: nn.Linear(4, 1),
    train_data=(features[:40], targets[:40]),
    test_data=(features[40:], targets[40:]),
    loss=nn.MSELoss(),
    metrics={"mse": nn.functional.mse_loss},
)

def made():
    return task

"""
QUICK = ["--clients", "3", "--rounds", "2", "--local-epochs", "1"]


@pytest.fixture
def run(warm_python, tmp_path):
    (tmp_path / "my_app.py").write_text(MODULE)

    def ran(*arguments: str):
        code = ONE_PICTURE + COMMAND_LINE if "--report" in arguments else COMMAND_LINE
        return warm_python.run(code, ["run", *arguments], folder=tmp_path)

    return ran


@pytest.mark.parametrize("name", ["task", "made"])
def test_a_task_is_trained_from_a_file_beside_the_command(run, tmp_path, name):
    done = run("--task", f"my_app:{name}", "--method", "fedavg,full-he", "--json", "out.json", *QUICK)
    assert done.returncode == 0, done.stderr
    assert (
        b"line (40 train / 20 test), Linear, 5 parameters, 3 clients, 2 rounds, iid partition" in done.stdout
    )
    assert b"mse, global model" in done.stdout
    assert b"Accuracy" not in done.stdout
    written = json.loads((tmp_path / "out.json").read_text())
    assert written["metrics"] == ["mse"]
    assert written["config"]["task"] == f"my_app:{name}"
    assert written["methods"][0]["rounds"][-1]["accuracy"] is None


def test_several_seeds_give_means_files_and_a_table(run, tmp_path):
    done = run(
        "--task", "my_app:task", "--method", "fedavg,full-he", "--seeds", "0,3", "--report", "out", *QUICK
    )
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode()
    assert "seeds 0, 3" in text
    assert "mse less fedavg's" in text
    with open(tmp_path / "out/rounds.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    last = [float(row["mse"]) for row in rows if (row["method"], row["round"]) == ("full-he", "2")]
    assert f"{np.mean(last):.4g} ± {np.std(last, ddof=1):.4g}" in text
    assert all((tmp_path / f"out/seed-{seed}/index.html").is_file() for seed in (0, 3))


DIVERGING = """
import torch
from my_app import task as kept

seeds = []


def model():
    seeds.append(torch.initial_seed())
    return kept.model() if callable(kept.model) else kept.model


def train(model, features, targets, seed):
    # The trial is on two samples.
    if seeds[-1] == 3 and len(targets) > 2:
        with torch.no_grad():
            next(model.parameters()).fill_(float("nan"))
    return 0.0
"""


def test_a_seed_that_fails_keeps_those_before_it(run, tmp_path):
    (tmp_path / "diverging.py").write_text(
        f"{DIVERGING}\n\ntask = __import__('dataclasses').replace(kept, model=model, train=train)\n"
    )
    names = ("--task", "diverging:task", "--method", "fedavg,full-he", "--seeds", "0,3,4")
    done = run(*names, "--report", "out", "--json", "out.json", *QUICK)
    assert done.returncode == 1
    said = done.stderr.decode()
    assert said.startswith("shieldfl: failed in round 1 of fedavg, before full-he, with seed 3: ")
    assert said.endswith("; finished rounds (fedavg 2, full-he 2) are in out.json and out\n")
    assert said.count("\n") == 1
    assert "seed 0" in done.stdout.decode()
    written = json.loads((tmp_path / "out.json").read_text())
    assert written["seeds"] == [0]
    assert [len(method["rounds"]) for method in written["runs"][0]["methods"]] == [2, 2]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["rounds.csv", "runs.json", "seed-0"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--task", "my_app"], 1, "is no MODULE:NAME"),
        (["--task", "my_app:nothing"], 1, "has no 'nothing'"),
        (["--task", "my_app:task", "--model", "mlp"], 2, "leave out model"),
        (["--task", "my_app:task", "--dataset", "mnist"], 2, "leave --dataset out"),
        (["--seeds", "1,2", "--seed", "1"], 2, "--seed: it is for a run of one seed"),
        (["--seeds", "1,1"], 1, "each once"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(run, arguments, code, said):
    done = run(*arguments, *QUICK)
    assert (done.returncode, done.stdout) == (code, b"")
    assert said in done.stderr.decode()
