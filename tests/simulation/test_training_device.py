"""Where clients train: names of devices, and what a machine does not have."""

from __future__ import annotations

import pytest
import torch

import shieldfl as sf
from shieldfl.errors import ParameterError
from shieldfl.simulation.training_device import training_device
from shieldfl.torch_bridge import exact_dtype


@pytest.fixture
def with_accelerators(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)


@pytest.mark.parametrize("name", ["cpu", "cuda", "cuda:1", "mps"])
def test_a_device_that_torch_has_is_taken(with_accelerators, name):
    assert training_device(name) == torch.device(name)


@pytest.mark.parametrize("name", ["cuda:2", "xpu", "meta", "cpu:1"])
def test_a_device_that_is_not_there_is_refused_with_those_that_are(with_accelerators, name):
    with pytest.raises(ParameterError, match="take cpu or cuda or cuda:0 or cuda:1 or mps"):
        training_device(name)


@pytest.mark.parametrize("name", ["gpu", "", "cuda:first"])
def test_what_names_no_device_is_refused(name):
    with pytest.raises(ParameterError):
        training_device(name)


def test_a_run_on_a_device_that_is_not_there_begins_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ParameterError, match="torch has no device 'cuda' on this machine"):
        sf.run("digits", "fedavg", rounds=1, device="cuda", checkpoint=str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_sums_are_kept_in_float64_where_the_device_has_it():
    assert exact_dtype(torch.device("cuda:1")) == exact_dtype(torch.device("cpu")) == torch.float64
    assert exact_dtype(torch.device("mps")) == torch.float32
