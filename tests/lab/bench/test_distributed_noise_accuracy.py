"""The table of accuracies at the same epsilon: its cells are of one schedule, and what is missing is said to be."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("torch")

from shieldfl.lab.simulation.data import load_dataset
from shieldfl.privacy.noise import gaussian_noise

bench = pytest.importorskip("distributed_noise_accuracy", exc_type=ModuleNotFoundError)


@pytest.fixture(params=["each", "exactly"])
def small(request):
    return bench.Draws(request.param, 8, clients=20, share=0.4, rounds=2)


@pytest.mark.parametrize("name", ["fedavg", "central-dp-fedavg", "dp-fedavg", "ddp-fedavg"])
def test_every_method_spends_no_more_than_the_epsilon_of_its_column(small, name):
    epsilon = None if name == "fedavg" else 8.0
    dataset = bench.without_test(load_dataset("digits"))
    cell = bench.measured(dataset, name, epsilon, 3, bench.Choice(0.1, 0.6), small)
    assert 0.0 < cell["accuracy"] <= 1.0
    if epsilon is not None:
        # Noise is for the client that takes part most often, and not for more.
        assert 7.9 < cell["spent"] <= 8.0
        assert cell["most_rounds_of_a_client"] in (1, 2)


def test_a_trusted_aggregator_noises_the_sum_of_clipped_updates_once(small, monkeypatch):
    noised = []

    def recorded(total, deviation, **others):
        noised.append((float(np.linalg.norm(total)), deviation))
        return gaussian_noise(total, deviation, **others)

    monkeypatch.setattr("central_dp_fedavg.gaussian_noise", recorded)
    cell = bench.measured(load_dataset("digits"), "central-dp-fedavg", 8.0, 3, bench.Choice(0.1, 0.05), small)
    counts = [int(one.sum()) for one in small.schedule(3)]
    assert counts == [8, 8] or small.name == "each"
    assert [deviation for _, deviation in noised] == [pytest.approx(cell["noise_multiplier"] * 0.05)] * 2
    assert all(0.0 < norm <= 0.05 * count * 1.001 for (norm, _), count in zip(noised, counts, strict=True))


def test_held_out_samples_are_training_samples_that_no_client_has():
    dataset = load_dataset("digits")
    parted = bench.without_test(dataset)
    whole = len(dataset.train_labels)
    assert len(parted.test_labels) == whole // 6
    assert len(parted.train_labels) + len(parted.test_labels) == whole
    found = np.concatenate([parted.train_features.numpy(), parted.test_features.numpy()]).reshape(whole, -1)
    own = dataset.train_features.numpy().reshape(whole, -1)
    assert np.array_equal(np.sort(found, axis=0), np.sort(own, axis=0))


def test_a_table_takes_differences_seed_by_seed_and_says_what_is_missing(tmp_path):
    results = bench.Results(tmp_path / "cells.json")
    for name, accuracies in {"central-dp-fedavg": (0.9, 0.8, 0.7), "ddp-fedavg": (0.91, 0.82, 0.73)}.items():
        for seed, accuracy in enumerate(accuracies):
            cell = {"dataset": "mnist", "method": name, "epsilon": 8.0, "seed": seed, "draws": "each"}
            results.cells.append(cell | {"accuracy": accuracy})
            results.cells.append(cell | {"accuracy": 0.1, "draws": "exactly"})
    results.cells.append({**results.cells[0], "epsilon": 4.0})
    results.write()
    task, other = (bench.TASKS[name] for name in ("convolution", "linear"))
    results.cells.append({**results.cells[0], "task": "linear", "accuracy": 0.5})
    results.write()
    rows = bench.table(
        bench.Results(tmp_path / "cells.json"), task, "mnist", "each", bench.SEEDS
    ).splitlines()
    assert (
        rows[2] == "| 8 | missing (0 of 3) | 80.00 ± 10.00 | missing (0 of 3) | 82.00 ± 9.00 | +2.00 ± 1.00 |"
    )
    assert "missing (1 of 3)" in rows[3]
    assert rows[3].endswith("| missing |")
    some = bench.table(results, task, "mnist", "each", [1, 2]).splitlines()[2]
    assert some == "| 8 | missing (0 of 2) | 75.00 ± 7.07 | missing (0 of 2) | 77.50 ± 6.36 | +2.50 ± 0.71 |"
    of_other = bench.table(results, other, "mnist", "each", [0]).splitlines()[2]
    assert of_other == "| 8 | missing (0 of 1) | 50.00 | missing (0 of 1) | missing (0 of 1) | missing |"
    assert json.loads((tmp_path / "cells.json").read_text())["cells"] == results.cells
