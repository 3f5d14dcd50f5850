"""The example with transformers and PEFT: `make hugging-face` runs these tests, in an environment that has them."""

from __future__ import annotations

import re
import socket
import sys

import numpy as np
import pytest
import torch

from flower.example_app import ExampleApp, Runs

pytest.importorskip("peft", reason="an environment of its own has transformers and PEFT: make hugging-face")

NAME, CLIENTS, ROUNDS = "lora_text", 4, 5


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Both forms of the app, in this process, which cannot connect to anything meanwhile."""

    def refused(*arguments):
        raise AssertionError("nothing may be downloaded")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", refused)
        return Runs(NAME, tmp_path_factory.mktemp(NAME), nodes=CLIENTS)


@pytest.fixture
def task(tmp_path):
    app = ExampleApp(NAME, tmp_path, protected=False)
    with app.modules() as (server, _):
        yield server.task


@pytest.fixture
def parts(task):
    load_partition = sys.modules[f"{NAME}.sentences"].load_partition
    return [load_partition(number, CLIENTS) for number in range(CLIENTS)]


def accuracies(result):
    return [metrics["accuracy"] for _, metrics in sorted(result.evaluate_metrics_clientapp.items())]


def test_accuracy_rises_to_more_than_words_alone_tell(runs):
    """Guessing is right in half. Who counts words is in two thirds, and in half of the third with "but"."""
    for result in runs.results:
        found = accuracies(result)
        assert len(found) == ROUNDS
        assert found[0] < 0.6
        assert found == sorted(found)
        assert found[-1] > 0.9 > 5 / 6


def test_adapters_are_all_that_training_changes(task, parts):
    trained, fresh = task.make_model(rank=4), task.make_model(rank=4)
    before = {name: array.clone() for name, array in trained.state_dict().items()}
    task.train(trained, parts[0][0], epochs=1, learning_rate=0.005, seed=1)
    after = trained.state_dict()
    changed = {name for name, array in after.items() if not array.equal(before[name])}
    adapters = task.adapters_of(trained)
    assert len(changed) == len(adapters)
    assert all(re.search(r"\.lora_[AB]\.|\.classifier\.modules_to_save\.", name) for name in changed)
    task.load_adapters(fresh, {name: array.clone() for name, array in adapters.items()})
    assert all(array.equal(after[name]) for name, array in fresh.state_dict().items())
    with pytest.raises(ValueError, match="not the adapters of this model"):
        task.load_adapters(fresh, dict(list(adapters.items())[1:]))


def test_every_round_opens_the_mean_of_what_clients_train(runs, task, parts):
    """By the fixed point alone: each client trains anew here from the model that the round began with."""
    weights = np.array([len(trains) for trains, _ in parts])
    # Each client's values are rounded to steps of 2^-20 after they are scaled by its share of the largest number of
    # samples. Models are float32, of which a value below 2 is off by at most 2^-24.
    most_error = CLIENTS * 2**-21 * weights.max() / weights.sum() + 2 * 2**-24
    began = {name: array.numpy() for name, array in task.adapters_of(task.make_model(rank=4)).items()}
    assert len(runs.evaluated) == ROUNDS * CLIENTS
    for number in range(1, ROUNDS + 1):
        trained = []
        for trains, _ in parts:
            model = task.make_model(rank=4)
            task.load_adapters(model, {name: torch.tensor(array) for name, array in began.items()})
            task.train(model, trains, epochs=2, learning_rate=0.005, seed=number)
            trained.append({name: array.double().numpy() for name, array in task.adapters_of(model).items()})
        opened = runs.evaluated[(number - 1) * CLIENTS : number * CLIENTS]
        for name, array in began.items():
            mean = np.average([one[name] for one in trained], axis=0, weights=weights)
            assert np.abs(mean).max() < 2
            assert np.abs(mean - array).max() > 100 * most_error
            for model in opened:
                np.testing.assert_allclose(model[name].numpy(), mean, rtol=0, atol=most_error)
        began = {name: opened[0][name].numpy() for name in began}


def test_a_protected_app_has_model_and_metrics_of_the_plain_one(runs):
    """AdamW makes whole steps of small gradients, so that what is off by 4e-7 after a round is more after five."""
    plain, protected = runs.results
    np.testing.assert_allclose(accuracies(protected), accuracies(plain), atol=2 / 800)
    for model in runs.evaluated[-CLIENTS:]:
        assert list(model) == list(plain.arrays)
        for name, own in plain.arrays.items():
            np.testing.assert_allclose(model[name].numpy(), own.numpy(), atol=1e-3)


def test_little_is_sent(runs, task, capsys):
    model = task.make_model(rank=4)
    sent = sum(array.numel() for array in task.adapters_of(model).values())
    whole = model.num_parameters()
    assert sent == sum(one.numel() for one in model.parameters() if one.requires_grad)
    assert sent < whole / 10
    rows = [f"{sent:,} of {whole:,} parameters are sent, {4 * sent:,} of {4 * whole:,} bytes of float32"]
    up = []
    for app, result in zip(runs.apps, runs.results, strict=True):
        replies = [one.up for one in app.grid.carried if one.round == ROUNDS and one.type == "train"]
        every = [(one.down, one.up) for one in app.grid.carried]
        up.append(max(replies))
        rows.append(
            f"{app.folder.parent.name}: an update is {up[-1]:,} bytes; of the run {sum(u for _, u in every):,} up, "
            f"{sum(d for d, _ in every):,} down; accuracy {', '.join(f'{one:.4f}' for one in accuracies(result))}"
        )
    plain = runs.results[0].arrays
    apart = max(
        np.abs(model[name].numpy() - own.numpy()).max()
        for model in runs.evaluated[-CLIENTS:]
        for name, own in plain.items()
    )
    rows.append(f"the models differ by up to {apart:.1e}")
    assert 3 * sent < up[1] < up[0] < 4 * whole / 8
    with capsys.disabled():
        print("\n" + "\n".join(rows))
