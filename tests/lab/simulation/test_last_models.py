"""The models that ``shieldfl.run`` hands back: of all clients, of one, and of a cluster."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import shieldfl as sf
from shieldfl.errors import ParameterError
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.lab.simulation.data import load_dataset
from shieldfl.lab.simulation.method_run import ClientModels, measured_clients
from shieldfl.lab.simulation.results import has_own_figures
from shieldfl.learning.local_update import StartingPoint

QUICK = {"clients": 4, "rounds": 1, "local_epochs": 1, "model": "linear"}


def accuracy_of(state):
    model, digits = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), load_dataset("digits")
    model.load_state_dict(dict(zip(model.state_dict(), state.values(), strict=True)))
    said = model(digits.test_features).argmax(dim=1)
    return float((said == digits.test_labels).double().mean())


def test_a_single_cluster_is_everybodys_model():
    result = sf.run(
        "digits",
        "sense-crypt",
        settings={"sense-crypt": {"clustering": "none", "encryption": "kahe"}},
        **QUICK,
    )
    state = result.state_dict("sense-crypt")
    for same in (
        result.state_dict("sense-crypt", cluster=0),
        result.state_dict("sense-crypt", client=np.int64(3)),
    ):
        assert all(torch.equal(one, same[name]) for name, one in state.items())
    accuracy = result.figure("sense-crypt", "accuracy").mean
    assert accuracy == pytest.approx(accuracy_of(state))
    with pytest.raises(ParameterError, match=r"no cluster 1: choose from 0$"):
        result.state_dict("sense-crypt", cluster=1)


def test_several_clusters_are_told_apart_by_number_or_client():
    result = sf.run(
        "digits",
        "sense-crypt",
        settings={"sense-crypt": {"least_silhouette": -1.0, "encryption": "kahe"}},
        **QUICK | {"clients": 8, "classes_per_client": 5},
        min_clients=2,
    )
    models = result.models[0, "sense-crypt"]
    numbers = sorted(set(models.clusters.values()))
    assert len(numbers) > 1
    with pytest.raises(ParameterError, match=rf"ended with {len(numbers)} clusters.*one of 0, 1"):
        result.state_dict("sense-crypt")
    for client, number in models.clusters.items():
        ours, its = (
            result.state_dict("sense-crypt", **which) for which in ({"client": client}, {"cluster": number})
        )
        assert all(torch.equal(one, its[name]) for name, one in ours.items())


def test_a_clients_merged_model_keeps_its_own_values():
    settings = {"selective-shield": {"threshold": 0.2}}
    result = sf.run("digits", "selective-shield", settings=settings, **QUICK)
    states = [result.state_dict("selective-shield", client=client) for client in range(4)]
    accuracy = np.mean([accuracy_of(state) for state in states])
    assert accuracy == pytest.approx(result.runs[0].methods[0].last.personalised_accuracy)
    of_all = result.state_dict("selective-shield")
    assert any(not torch.equal(of_all[name], states[0][name]) for name in of_all)


def test_what_models_of_clients_have_alike_is_in_memory_once():
    first, second = np.random.default_rng(0).normal(size=(2, 10_000)).astype(np.float32)
    own = [first, first.copy(), second.copy(), first.copy(), second]
    own[1][:3] = -0.0, np.nan, 5.0
    own[2][9_000:] = 0.0
    own[3][0] = -own[3][0]
    models = ClientModels((7 - client, StartingPoint(one, one[:2])) for client, one in enumerate(own))
    assert [*models] == [7, 6, 5, 4, 3]
    for one, found in zip(own, models.values(), strict=True):
        assert one.tobytes() == found.parameters.tobytes()
        assert one[:2].tobytes() == found.buffers.tobytes()
    assert len(models._whole) == 2
    assert sum(positions.size for _, positions, _ in models._differences.values()) == 3 + 1 + 1_000


def test_own_models_of_some_clients_are_measured_and_the_result_says_so():
    settings = {"selective-shield": {"threshold": 0.2}}
    result = sf.run("digits", ["fedavg", "selective-shield"], settings=settings, **QUICK, measured_clients=2)
    plain, shielded = result.runs[0].methods
    measured = measured_clients(RunConfig(clients=4, measured_clients=2))
    assert len(measured) == 2
    states = [result.state_dict("selective-shield", client=client) for client in measured]
    assert shielded.last.personalised_accuracy == pytest.approx(np.mean([accuracy_of(one) for one in states]))
    said = "personalised figures are means over 2 of the 4 clients, which the seed has drawn"
    assert [said in method.notes for method in (plain, shielded)] == [False, True]


def test_a_mean_of_equal_figures_is_no_figure_of_clients():
    result = sf.run("digits", "fedavg", **QUICK).runs[0].methods[0].last
    assert not has_own_figures([], "accuracy")
    for figure, differs in ((np.nextafter(result.accuracy, 1.0), False), (result.accuracy + 1e-6, True)):
        assert has_own_figures([result, replace(result, personalised_accuracy=figure)], "accuracy") is differs
    assert not has_own_figures([result], "a metric that is none")


def test_all_clients_are_measured_up_to_a_hundred_and_then_few():
    drawn = [
        measured_clients(RunConfig(clients=clients, seed=seed))
        for clients, seed in ((100, 0), (101, 0), (101, 1))
    ]
    assert drawn[0] == [*range(100)]
    assert len({*drawn[1]}) == len({*drawn[2]}) == 10
    assert drawn[1] == sorted(drawn[1]) != drawn[2]
    assert measured_clients(RunConfig(clients=101, measured_clients=101)) == [*range(101)]
    with pytest.raises(ParameterError, match=r"measured_clients is 5, above the number of clients \(4\)"):
        RunConfig(clients=4, min_clients=3, measured_clients=5)


def test_what_names_no_model_is_refused_and_what_is_given_is_a_copy():
    result = sf.run("digits", "fedavg", **QUICK)
    for given, words in (
        ({"client": 4}, "no client 4: clients are 0 to 3"),
        ({"client": -1}, "client must be at least 0"),
        ({"client": 1.0}, "client must be a whole number, not float"),
        ({"cluster": "0"}, "cluster must be a whole number, not str"),
        ({"seed": "0"}, "seed must be a whole number, not str"),
        ({"cluster": 0}, "fedavg has no clusters: leave out cluster"),
        ({"client": 0, "cluster": 0}, "client or cluster, not both"),
    ):
        with pytest.raises(ParameterError, match=words):
            result.state_dict("fedavg", **given)
    first = result.state_dict("fedavg")
    expected = {name: one.clone() for name, one in first.items()}
    for one in first.values():
        one.fill_(7.0)
    assert all(torch.equal(one, expected[name]) for name, one in result.state_dict("fedavg").items())
    read = type(result).from_json(json.loads(json.dumps(result.to_json())))
    with pytest.raises(ParameterError, match="was read from a file"):
        read.state_dict("fedavg")


def test_buffers_that_stay_with_clients_leave_no_model_for_all():
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(60, 4, generator=generator)
    task = sf.Task(
        model=lambda: nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2)),
        train_data=(features, (features[:, 0] > 0).long()),
        test_data=(features, (features[:, 0] > 0).long()),
    )
    result = sf.run(task, "dp-fedavg", clients=3, rounds=1, local_epochs=1)
    with pytest.raises(ParameterError, match=r"leaves buffers with each client.*give client"):
        result.state_dict("dp-fedavg")
    own, other = (result.state_dict("dp-fedavg", client=client) for client in (0, 1))
    assert torch.equal(own["1.weight"], other["1.weight"])
    assert not torch.equal(own["0.running_mean"], other["0.running_mean"])
