"""Whole runs with clients on an accelerator, where the machine has one: all trainings come to nearly the same."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import shieldfl as sf
from lab.simulation.small_runs import fewer_samples, quick_synthetic_data
from shieldfl.methods.registry import BUILT_IN

ON = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else None
pytestmark = pytest.mark.skipif(ON is None, reason="there is no accelerator")

SMALL = {"clients": 4, "rounds": 3, "local_epochs": 1, "learning_rate": 0.05, "threads": 1}
# What it trains with noise, or synthetic data made with some, is never the same twice.
NOISED = ("alt-fl-pi", "alt-fl-si-dp", "alt-fl-si-he", "alt-fl-mp", "dp-fedavg", "ddp-fedavg", "dp-sgd")


@pytest.mark.parametrize("method", BUILT_IN)
def test_every_method_trains_there(method):
    """Sums are of another order: losses of the first round differ in the last digits, and what is drawn does not."""
    settings = {"selective-shield": {"noise_multiplier": 0.0}} if method == "selective-shield" else None
    model = "small-vit" if method == "dict-pfl" else "small-mlp"
    with fewer_samples(coarse=True), quick_synthetic_data():
        here, there = (
            sf.run("digits", method, model=model, settings=settings, device=device, **SMALL).records()
            for device in ("cpu", ON)
        )
    assert [one["participants"] for one in here] == [one["participants"] for one in there]
    assert all(np.isfinite(one["loss"]) for one in there)
    if method not in NOISED:
        assert there[0]["loss"] == pytest.approx(here[0]["loss"], rel=1e-3)
        assert there[-1]["accuracy"] == pytest.approx(here[-1]["accuracy"], abs=0.1)


def test_a_run_goes_on_there_from_a_checkpoint(tmp_path):
    with fewer_samples(coarse=True):
        whole = sf.run("digits", "full-he", model="small-mlp", device=ON, **SMALL).records()
        folder = str(tmp_path / "run")

        def stop(seed, method, record):
            if record.round == 2:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            sf.run("digits", "full-he", model="small-mlp", device=ON, folder=folder, on_round=stop, **SMALL)
        rest = sf.run(
            "digits", "full-he", model="small-mlp", device=ON, folder=folder, resume=True, **SMALL
        ).records()
    assert len(rest) == 3
    assert rest[-1]["loss"] == pytest.approx(whole[-1]["loss"], rel=1e-3)
