"""Synthetic data of a run: given or made, checked, charged and dealt out."""

from __future__ import annotations

import pytest
import torch

from shieldfl.errors import DataError, ParameterError
from shieldfl.methods.settings import MethodSettings
from shieldfl.simulation.config import RunConfig
from shieldfl.simulation.driver import run_methods

CONFIG = RunConfig(clients=3, rounds=2, local_epochs=1, model="linear", threads=1)
SETTINGS = MethodSettings().changed("alt-fl-si-he", {"interleaving_ratio": "1/2"})
FEATURES, LABELS = torch.zeros(30, 1, 8, 8), torch.arange(30) % 10


@pytest.mark.parametrize(
    ("features", "labels", "error"),
    [
        (torch.zeros(30, 1, 9, 8), LABELS, ParameterError),
        (FEATURES, LABELS[:29], ParameterError),
        (FEATURES, LABELS + 1, DataError),
        (FEATURES * torch.nan, LABELS, DataError),
        (FEATURES[:2], LABELS[:2], ParameterError),
    ],
)
def test_data_that_do_not_fit_are_refused(features, labels, error):
    with pytest.raises(error):
        run_methods(CONFIG, ["alt-fl-si-he"], SETTINGS, synthetic=(features, labels))


def test_given_data_are_used_and_noted_and_made_data_are_charged():
    given = run_methods(CONFIG, ["alt-fl-si-he"], SETTINGS, synthetic=(FEATURES, LABELS)).methods[0]
    made = run_methods(CONFIG, ["alt-fl-si-he"], SETTINGS).methods[0]
    assert given.last.epsilon_paper == 0.0
    assert any("synthetic data were given" in note for note in given.notes)
    assert 0.0 < made.last.epsilon_paper < 12.0
    assert made.averaging_window == 10


def test_the_window_follows_the_interleaving():
    changed = SETTINGS.changed("alt-fl-si-he", {"interleaving_ratio": "1/4"})
    result = run_methods(CONFIG, ["alt-fl-si-he"], changed, synthetic=(FEATURES, LABELS)).methods[0]
    assert (result.averaging_window, result.converged_in_round) == (8, None)
