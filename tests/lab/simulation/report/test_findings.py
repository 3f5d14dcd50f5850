"""The sentence on top of a report, against the figures that it is read off."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from lab.simulation.report.made_up_runs import changed, run_of
from shieldfl.lab.report.run_summary import findings


@pytest.mark.parametrize(
    ("accuracies", "samples", "close"),
    [
        ({"fedavg": 0.5}, 1_000, False),
        ({"fedavg": 0.5, "top-2": 0.9}, 1_000, False),
        ({"fedavg": 0.9, "top-2": 0.89}, 100_000, False),
        ({"fedavg": 0.9, "top-2": 0.89}, 1_000, True),
        ({"fedavg": 0.9, "full-he": 0.75, "top-2": 0.89}, 1_000, False),
        ({"fedavg": 0.75, "top-2": 0.75}, 1_000, False),
        ({"fedavg": math.nan, "top-2": 0.5}, 1_000, False),
    ],
)
def test_accuracies_that_samples_cannot_tell_apart(accuracies, samples, close) -> None:
    result = replace(run_of(*accuracies), dataset=f"made up (9 train / {samples:,} test)")
    for number, accuracy in enumerate(accuracies.values()):
        result = changed(result, number, accuracy=accuracy)
    assert findings(result) == ["1,000 test samples cannot tell these accuracies apart."] * close
    assert findings(replace(result, metrics=("mse",))) == findings(replace(result, dataset="mine")) == []
