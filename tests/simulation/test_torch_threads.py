"""Torch's threads during a run and after it."""

from __future__ import annotations

import pytest
import torch

from shieldfl.errors import DataError
from shieldfl.simulation.config import RunConfig
from shieldfl.simulation.driver import run_methods
from shieldfl.simulation.torch_threads import forward_products, threads_worth, torch_threads
from shieldfl.training.models import build_model


@pytest.fixture
def three_before():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_a_run_has_its_threads_and_torch_gets_its_own_back(three_before):
    seen = []
    config = RunConfig(clients=2, min_clients=2, rounds=1, local_epochs=1, model="linear", threads=1)
    result = run_methods(config, ["fedavg"], None, lambda *_: seen.append(torch.get_num_threads()))
    assert seen == [1]
    assert result.environment["torch_threads"] == 1
    assert torch.get_num_threads() == 3


def test_a_run_that_fails_gives_them_back_too(three_before):
    with pytest.raises(DataError):
        run_methods(RunConfig(dataset="mnist", data_dir="no-such-folder", threads=1), ["fedavg"])
    assert torch.get_num_threads() == 3


@pytest.mark.parametrize("threads", [None, 2])
def test_a_small_model_trains_on_one_thread(three_before, threads):
    seen = []
    config = RunConfig(clients=2, min_clients=2, rounds=1, local_epochs=1, model="mlp", threads=threads)
    result = run_methods(config, ["full-he"], None, lambda *_: seen.append(torch.get_num_threads()))
    assert seen == [result.environment["torch_threads"]] == [1]
    assert torch.get_num_threads() == 3


def test_a_large_step_is_worth_all_that_there_may_be(three_before):
    mlp, cnn = build_model("mlp", (1, 28, 28), 10, seed=0), build_model("simple-cnn", (3, 32, 32), 10, seed=0)
    assert forward_products(mlp, (1, 28, 28)) == 784 * 256 + 256 * 128 + 128 * 10
    convolutions = 32 * 3 * 9 * 32 * 32 + 64 * 32 * 9 * 16 * 16
    assert forward_products(cnn, (3, 32, 32)) == convolutions + 64 * 8 * 8 * 256 + 256 * 10
    assert threads_worth(mlp, (1, 28, 28), 32, 3) == 1
    assert threads_worth(mlp, (1, 28, 28), 2000, 3) == 3
    assert threads_worth(cnn, (3, 32, 32), 32, 2) == 2
    assert cnn.training


def test_without_a_number_nothing_changes(three_before):
    with torch_threads(None):
        assert torch.get_num_threads() == 3
    assert torch.get_num_threads() == 3
