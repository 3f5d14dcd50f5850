"""A server that ends before the last round goes on where it stood."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAdam

from flower.vector_app import ALL, VectorRun, cut_off
from shieldfl.errors import DataError, PolicyError

SETTINGS = [
    {},
    {"opener": "aggregator"},
    {"opener": "authority"},
    {"method": "dict-pfl"},
    {"method": "mask-crypt"},
    {"method": "fedavg"},
]


PLACES = [("round 1", "train"), ("evaluation 1", "model"), ("round 2", "train"), ("evaluation 3", "model")]


@pytest.mark.every_run("dict-pfl, round 2 train", "authority, round 2 train", "full-he, evaluation")
@pytest.mark.parametrize(
    ("settings", "group", "kind"),
    [
        # Of every method one place, and of full-he two; `every_run` says which of them `make test` runs.
        pytest.param(
            settings,
            *place,
            id=f"{', '.join(settings.values()) or 'full-he'}, {' '.join(place)}",
            marks=() if place == PLACES[2] or (not settings and place == PLACES[1]) else pytest.mark.slow,
        )
        for settings in SETTINGS
        for place in PLACES
    ],
)
def test_a_run_that_was_cut_off_goes_on_to_the_same_model(tmp_path, settings, group, kind):
    whole = VectorRun(**settings)
    expected = whole.start()
    run = VectorRun(**settings, checkpoint=str(tmp_path / "run"))
    cut_off(run, group, kind)
    # The simulation's own memory is gone with its process.
    for node in run.grid.states:
        run.grid.states[node] = type(run.grid.states[node])()
    result = run.start()
    assert set(run.evaluated) == set(ALL)
    for client, arrays in whole.evaluated.items():
        for name, one in arrays.items():
            np.testing.assert_array_equal(run.evaluated[client][name], one)
    assert result.train_metrics_clientapp == expected.train_metrics_clientapp
    assert result.evaluate_metrics_clientapp == expected.evaluate_metrics_clientapp


def test_an_optimiser_goes_on_with_its_moments(tmp_path):
    def adam():
        return FedAdam(min_available_nodes=1, min_train_nodes=1, min_evaluate_nodes=1, eta=0.05, tau=0.1)

    expected = VectorRun(strategy=adam(), opener="aggregator").start()
    run = VectorRun(strategy=adam(), opener="aggregator", checkpoint=str(tmp_path / "run"))
    cut_off(run, "round 3", "train")
    run.own = adam()
    result = run.start()
    for name, array in expected.arrays.items():
        np.testing.assert_array_equal(result.arrays[name].numpy(), array.numpy())


def test_a_checkpoint_is_of_one_run(tmp_path):
    folder = str(tmp_path / "run")
    run = VectorRun(checkpoint=folder)
    run.start()
    with pytest.raises(PolicyError, match=r"go on from it with shieldfl.resume"):
        run.start()
    (tmp_path / "run" / "checkpoint").unlink()
    run.config["shieldfl.resume"] = True
    with pytest.raises(DataError, match="there is no checkpoint"):
        run.start()


def test_a_run_goes_on_with_the_settings_that_it_began_with(tmp_path):
    weighted = {"samples": lambda context: 20, "weighting": "samples", "most_weight": 2**14}
    run = VectorRun(checkpoint=str(tmp_path / "run"), **weighted)
    cut_off(run, "round 2", "train")
    given = run.config
    for changes, names in (
        ({"method": "fedavg", "clients": 3}, "clients, method, the method's own settings"),
        ({"min-clients": 3, "opener": "aggregator"}, "min-clients, opener"),
        ({"server-learning-rate": 0.5}, "server-learning-rate"),
        ({"settings.value_bits": 25}, "the method's own settings"),
        ({"weighting": "uniform"}, "weighting"),
        ({"most-weight": 2**13}, "most-weight"),
        ({"buffers": "*running_mean"}, "buffers"),
    ):
        run.config = given | {f"shieldfl.{name}": value for name, value in changes.items()}
        with pytest.raises(PolicyError, match=f"differs in {names}: a run goes on with the settings"):
            run.start()
    run.config, run.rounds = given, 4
    with pytest.raises(PolicyError, match="differs in rounds: "):
        run.start()
    run.rounds = 3
    run.start()
    run.check({1: ALL, 2: ALL, 3: ALL})


def test_a_run_that_has_ended_ends_again_with_what_it_came_to(tmp_path):
    run = VectorRun(checkpoint=str(tmp_path / "run"))
    first = run.start()
    trained = list(run.trained)
    run.config["shieldfl.resume"] = True
    again = run.start()
    assert run.trained == trained
    assert again.train_metrics_clientapp == first.train_metrics_clientapp
