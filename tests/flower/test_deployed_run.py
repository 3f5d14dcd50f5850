"""A run of real processes, SuperLink, key authority and nodes, is the one in a single process, bit for bit."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from flower.deployment import Deployment, model_in, new_app
from flower.digits_app import SEED, VARIANTS, DigitsRun
from shieldfl.flower.node_memory import DiskMemory
from shieldfl.models.torch_bridge import flatten, flatten_buffers
from shieldfl.rounds.global_model import GlobalModel

SETTINGS = {"seed": SEED, "partition-seed": SEED, "fraction-evaluate": 0.0, "shieldfl.min-clients": 2}
SEEDED = " ".join(f"{key}={value}" for key, value in SETTINGS.items())

# Without noise, which is the operating system's, and under keys that clients enrol for.
WITH_THREE_NODES = {
    label: VARIANTS[label]
    for label in (
        *("full-he", "fedavg", "selective-shield, clear votes", "selective-shield, encrypted votes"),
        *("dict-pfl", "alt-fl-pi"),
    )
} | {"sense-crypt": ("sense-crypt", {"encryption": "kahe"}, {})}


@pytest.fixture(scope="module")
def two_nodes(tmp_path_factory):
    """As few as may be, of an app without torch: each message to a node starts a process, which would import it."""
    modules = Path(__file__).with_name("numpy_app")
    with Deployment(tmp_path_factory.mktemp("deployed"), clients=2, modules=modules) as one:
        one.up()
        yield one


@pytest.fixture(scope="module")
def open_to_all(tmp_path_factory):
    """Nodes whose operator has allowed a method that encrypts nothing, too."""
    methods = ",".join(sorted({method for method, _, _ in WITH_THREE_NODES.values()}))
    folder = tmp_path_factory.mktemp("deployed")
    # Whatever protects, what is trained is the same.
    config = (
        f'shieldfl-methods="{methods}" shieldfl-repeats=true shieldfl-openers="aggregator,clients,authority"'
    )
    with Deployment(folder, node_config=config) as one:
        one.up()
        yield one


def embedded(app, method, settings, shared_secret=None, **more):
    """Return the clients' last models in a run of the app's model without Flower."""
    run = DigitsRun(method, settings=settings, **more)
    with app.modules("task") as (task,):
        run.model = task.new_model(SEED)
    run.initial = GlobalModel(flatten(run.model), flatten_buffers(run.model)).kept()
    return run.embedded(shared_secret)[-1]


def models_in_process(app, folder, monkeypatch, **override):
    """Run an app of two clients over a grid in this process; return the model that each node has written."""

    def own_store(node):
        return {"shieldfl-store": str(folder / f"node-{node}"), "shieldfl-openers": "aggregator"}

    app.run(monkeypatch, 2, own_store, **SETTINGS | {"rounds": 1} | override)
    return [model_in(folder / f"node-{node}") for node in range(2)]


def vectors(models):
    return [np.concatenate([array.ravel() for array in one.values()]) for one in models]


def shared_secret_in(store):
    """Return the secret that a node shares with the others, the last that it was given; None for none."""
    with contextlib.closing(sqlite3.connect(store / "store")) as connection:
        sessions = [one for (one,) in connection.execute("SELECT session FROM records WHERE name = 'secret'")]
    found = [DiskMemory(store).read(session)[1]["secret"] for session in sessions]
    return next((one for one in found if one), None)


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


def test_the_app_as_it_is_written_ends_with_the_model_of_the_run_without_flower(tmp_path, monkeypatch):
    """Deployed it is by slow tests alone."""
    app = new_app(tmp_path, clients=2)
    expected = embedded(app, "full-he", {}, clients=2, rounds=1, by_samples=True)
    result = tmp_path / "result.json"
    more = {"fraction-evaluate": 1.0, "result": str(result)}
    got = vectors(models_in_process(app, tmp_path, monkeypatch, **more))
    assert set(json.loads(result.read_text())["rounds"]["1"]) == {"train", "evaluate"}
    for one, own in zip(got, expected, strict=True):
        np.testing.assert_array_equal(one, own)
        np.testing.assert_array_equal(one, got[0])


@pytest.mark.slow
@pytest.mark.parametrize("label", WITH_THREE_NODES)
def test_any_method_ends_with_the_models_of_the_run_in_one_process(label, open_to_all):
    method, settings, more = WITH_THREE_NODES[label]
    given = " ".join(f"shieldfl.settings.{name}={json.dumps(value)}" for name, value in settings.items())
    weighting = "samples" if more else "uniform"
    run = f'{SEEDED} rounds=2 shieldfl.method="{method}" shieldfl.weighting="{weighting}" {given}'
    done = open_to_all.run(run)
    assert done.status == "finished:completed", done.output
    assert set(done.result["rounds"]) == {"1", "2"}
    if method == "alt-fl-pi":  # which draws the batches of DP-SGD by the operating system
        got = vectors(open_to_all.models())
        assert all(np.array_equal(one, got[0]) for one in got)
        return
    secret = shared_secret_in(open_to_all.store(0)) if method == "dict-pfl" else None
    expected = embedded(open_to_all.app, method, settings, secret, **more)
    for one, own in zip(vectors(open_to_all.models()), expected, strict=True):
        np.testing.assert_array_equal(one, own)
