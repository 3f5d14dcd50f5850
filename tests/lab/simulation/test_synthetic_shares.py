"""Synthetic data of a run: given or made, checked, charged and dealt out."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from lab.simulation.small_runs import quick_synthetic_data, run_methods
from shieldfl.errors import DataError, ParameterError
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.methods.registry import MethodSettings

CONFIG = RunConfig(clients=3, rounds=2, local_epochs=1, model="linear", threads=1)
SETTINGS = MethodSettings().changed("alt-fl-si-he", {"interleaving_ratio": "1/2"})
FEATURES, LABELS = torch.zeros(30, 1, 8, 8), torch.arange(30) % 10


@pytest.fixture(scope="module", autouse=True)
def _quick_synthetic_data():
    with quick_synthetic_data():
        yield


@pytest.mark.parametrize(
    ("features", "labels", "error"),
    [
        (torch.zeros(30, 1, 9, 8), LABELS, ParameterError),
        (FEATURES, LABELS + 1, DataError),
        (FEATURES[:2], LABELS[:2], ParameterError),
    ],
)
def test_data_that_do_not_fit_are_refused(features, labels, error):
    with pytest.raises(error):
        run_methods(CONFIG, ["alt-fl-si-he"], SETTINGS, synthetic=(features, labels))


def test_given_data_are_used_and_noted_and_made_data_are_charged():
    given = run_methods(CONFIG, ["alt-fl-si-he"], SETTINGS, synthetic=(FEATURES, LABELS)).methods[0]
    made = run_methods(CONFIG, ["alt-fl-si-he"], SETTINGS).methods[0]
    assert math.isnan(given.last.epsilon)
    assert any("given: they spend no epsilon here" in note for note in given.notes)
    assert 0.0 < made.last.epsilon < 12.0
    assert made.averaging_window == 10


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "mine.npz"
    np.savez(path, features=FEATURES.numpy(), labels=LABELS.numpy().astype(np.uint8))
    return path


def test_a_file_in_the_config_is_what_given_samples_are(archive):
    from_file = run_methods(replace(CONFIG, synthetic_data=str(archive)), ["alt-fl-si-he"], SETTINGS)
    given = run_methods(CONFIG, ["alt-fl-si-he"], SETTINGS, synthetic=(FEATURES, LABELS))
    assert from_file.methods[0].last.accuracy == given.methods[0].last.accuracy
    assert math.isnan(from_file.methods[0].last.epsilon)
    with pytest.raises(ParameterError, match="given twice"):
        run_methods(
            replace(CONFIG, synthetic_data=str(archive)), ["alt-fl-si-he"], synthetic=(FEATURES, LABELS)
        )


def test_data_that_no_round_trains_on_are_refused_before_anything_trains(archive):
    trained = []
    few = SETTINGS.changed("alt-fl-si-he", {"synthetic_samples": 2})
    with pytest.raises(ParameterError, match="too few for 3 clients"):
        run_methods(CONFIG, ["fedavg", "alt-fl-si-he"], few, lambda *done: trained.append(done))
    for methods, settings in (
        (["fedavg", "alt-fl-pi"], SETTINGS),
        (["alt-fl-si-he"], SETTINGS.changed("alt-fl-si-he", {"interleaving_ratio": "1/4"})),
    ):
        with pytest.raises(ParameterError, match="no round trains on them"):
            run_methods(
                replace(CONFIG, synthetic_data=str(archive)),
                methods,
                settings,
                lambda *done: trained.append(done),
            )
    assert trained == []


def test_samples_beside_the_own_are_made_charged_and_trained_on():
    """Alt-FL's augmentation, in processes beside each other too."""
    plain = run_methods(CONFIG, ["alt-fl-mp"]).methods[0]
    settings = MethodSettings().changed("alt-fl-mp", {"synthetic_share": 0.25})
    given, beside = (
        run_methods(
            replace(CONFIG, threads=threads), ["alt-fl-pi"], settings_of_pi(), synthetic=(FEATURES, LABELS)
        )
        for threads in (1, 2)
    )
    made = run_methods(CONFIG, ["alt-fl-mp"], settings).methods[0]
    # The release costs some 10; more samples, of which as many are in a batch, make the steps cost less.
    assert plain.last.epsilon < made.last.epsilon < plain.last.epsilon + 10.0
    assert [one.loss for one in given.methods[0].rounds] == [one.loss for one in beside.methods[0].rounds]
    alone = run_methods(CONFIG, ["alt-fl-pi"], settings_of_pi(share=0.0)).methods[0]
    assert [one.loss for one in given.methods[0].rounds] != [one.loss for one in alone.rounds]


def settings_of_pi(share: float = 0.25) -> MethodSettings:
    """Of rounds that encrypt alone: those of DP-SGD draw batches that nobody can draw again."""
    return MethodSettings().changed("alt-fl-pi", {"synthetic_share": share, "interleaving_ratio": "0"})
