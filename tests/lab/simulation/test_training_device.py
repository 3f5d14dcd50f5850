"""Where clients train: devices by name, and how many threads a model is worth."""

from __future__ import annotations

import pytest
import torch

import shieldfl as sf
from lab.simulation.small_runs import run_methods
from shieldfl.errors import DataError, ParameterError
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.lab.simulation.federation import forward_products, threads_worth, training_device
from shieldfl.learning.networks import build_model
from shieldfl.models.torch_bridge import exact_dtype


def test_devices_that_torch_has_are_taken_and_others_refused_with_those_that_are(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    for name in ("cpu", "cuda", "cuda:1", "mps"):
        assert training_device(name) == torch.device(name)
    for name in ("cuda:2", "xpu", "meta", "cpu:1", "gpu", "", "cuda:first"):
        with pytest.raises(ParameterError, match="take cpu or cuda or cuda:0 or cuda:1 or mps"):
            training_device(name)


def test_a_run_on_a_device_that_is_not_there_begins_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ParameterError, match="torch has no device 'cuda' on this machine"):
        sf.run("digits", "fedavg", rounds=1, device="cuda", checkpoint=str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_sums_are_kept_in_float64_where_the_device_has_it():
    assert exact_dtype(torch.device("cuda:1")) == exact_dtype(torch.device("cpu")) == torch.float64
    assert exact_dtype(torch.device("mps")) == torch.float32


@pytest.fixture
def three_before():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_a_run_that_fails_gives_threads_back_too(three_before):
    with pytest.raises(DataError):
        run_methods(RunConfig(dataset="mnist", data_dir="no-such-folder", threads=1), ["fedavg"])
    assert torch.get_num_threads() == 3


@pytest.mark.parametrize("threads", [None, 1, 2])
def test_a_small_model_trains_on_one_thread(three_before, threads):
    seen = []
    config = RunConfig(clients=2, min_clients=2, rounds=1, local_epochs=1, model="mlp", threads=threads)
    result = run_methods(config, ["full-he"], None, lambda *_: seen.append(torch.get_num_threads()))
    assert seen == [result.environment["torch_threads"]] == [1]
    assert torch.get_num_threads() == 3


def test_a_large_step_is_worth_all_that_there_may_be(three_before):
    mlp, cnn = build_model("mlp", (1, 28, 28), 10, seed=0), build_model("simple-cnn", (3, 32, 32), 10, seed=0)
    convolutions = 32 * 3 * 9 * 32 * 32 + 64 * 32 * 9 * 16 * 16
    digit, picture = torch.zeros(1, 1, 28, 28), torch.zeros(1, 3, 32, 32)
    assert forward_products(mlp, digit) == 784 * 256 + 256 * 128 + 128 * 10
    assert forward_products(cnn, picture) == convolutions + 64 * 8 * 8 * 256 + 256 * 10
    assert threads_worth(mlp, digit, 32, 3) == 1
    assert threads_worth(mlp, digit, 2000, 3) == 3
    assert threads_worth(cnn, picture, 32, 2) == 2
    assert cnn.training
