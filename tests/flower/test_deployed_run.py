"""A run of real processes, SuperLink, key authority and nodes, is the one in a single process, bit for bit."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from flower.deployment import Deployment, model_in, new_app
from flower.digits_app import SEED, DigitsRun
from shieldfl.models.torch_bridge import flatten, flatten_buffers
from shieldfl.rounds.plan import GlobalModel

SETTINGS = {"seed": SEED, "partition-seed": SEED, "fraction-evaluate": 0.0, "shieldfl.min-clients": 2}
SEEDED = " ".join(f"{key}={value}" for key, value in SETTINGS.items())


@pytest.fixture(scope="module")
def two_nodes(tmp_path_factory):
    """As few as may be, of an app without torch: each message to a node starts a process, which would import it."""
    modules = Path(__file__).with_name("numpy_app")
    with Deployment(tmp_path_factory.mktemp("deployed"), clients=2, modules=modules) as one:
        one.up()
        yield one


def models_in_process(app, folder, monkeypatch, **override):
    """Run an app of two clients over a grid in this process; return the model that each node has written."""

    def own_store(node):
        return {"shieldfl-store": str(folder / f"node-{node}"), "shieldfl-openers": "aggregator"}

    app.run(monkeypatch, 2, own_store, **SETTINGS | {"rounds": 1} | override)
    return [model_in(folder / f"node-{node}") for node in range(2)]


def vectors(models):
    return [np.concatenate([array.ravel() for array in one.values()]) for one in models]


def test_nodes_end_with_the_model_of_the_run_in_one_process(two_nodes, tmp_path, monkeypatch):
    done = two_nodes.run(f"{SEEDED} rounds=1")
    assert done.status == "finished:completed", done.output
    result = tmp_path / "result.json"
    expected = vectors(models_in_process(two_nodes.app, tmp_path, monkeypatch, result=str(result)))
    for one, own in zip(vectors(two_nodes.models()), expected, strict=True):
        np.testing.assert_array_equal(one, own)
        np.testing.assert_array_equal(one, expected[0])
    assert set(done.result["rounds"]) == {"1"}
    assert done.result == json.loads(result.read_text())


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed: pip install 'flwr[simulation]'")
def test_a_simulated_run_comes_to_what_the_one_in_this_process_does(tmp_path, monkeypatch):
    """The loss of the second round is that of the first one's model."""
    with Deployment(tmp_path, clients=2) as one:
        done = one.finished(one.begin(f"{SEEDED} rounds=2", "simulate"))
    assert done.status == "finished:completed", done.output
    result = tmp_path / "result.json"
    one.app.run(monkeypatch, 2, **SETTINGS | {"rounds": 2, "result": str(result)})
    assert done.result == json.loads(result.read_text())
    assert set(done.result["rounds"]) == {"1", "2"}


def test_the_app_as_it_is_written_ends_with_the_model_of_the_run_without_flower(tmp_path, monkeypatch):
    """Deployed it is by tests that kill its parts."""
    app = new_app(tmp_path, clients=2)
    run = DigitsRun("full-he", clients=2, rounds=1, by_samples=True)
    with app.modules("task") as (task,):
        run.model = task.new_model(SEED)
    run.initial = GlobalModel(flatten(run.model), flatten_buffers(run.model)).kept()
    expected = run.embedded()[-1]
    result = tmp_path / "result.json"
    more = {"fraction-evaluate": 1.0, "result": str(result)}
    got = vectors(models_in_process(app, tmp_path, monkeypatch, **more))
    assert set(json.loads(result.read_text())["rounds"]["1"]) == {"train", "evaluate"}
    for one, own in zip(got, expected, strict=True):
        np.testing.assert_array_equal(one, own)
        np.testing.assert_array_equal(one, got[0])
