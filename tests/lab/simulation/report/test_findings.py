"""The sentence on top of a report, against the figures that it is read off."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from lab.simulation.report.made_up_runs import changed, run_of
from shieldfl.lab.report.run_summary import findings, joined


@pytest.mark.parametrize(
    ("accuracies", "samples", "said"),
    [
        ({"fedavg": 0.5}, 1_000, "50.00 % under fedavg."),
        ({"fedavg": 0.5, "top-2": 0.9}, 1_000, "between 50.00 % under fedavg and 90.00 % under top-2."),
        ({"fedavg": 0.9, "top-2": 0.89}, 100_000, "between 89.00 % under top-2 and 90.00 % under fedavg."),
        (
            {"fedavg": 0.9, "top-2": 0.89},
            1_000,
            "between 89.00 % under top-2 and 90.00 % under fedavg: 1,000 test samples cannot tell these apart.",
        ),
        ({"fedavg": 0.75, "full-he": 0.75, "top-2": 0.75}, 1_000, "75.00 % under fedavg, full-he and top-2."),
        ({"fedavg": math.nan, "top-2": 0.5}, 1_000, "50.00 % under top-2."),
    ],
)
def test_between_what_models_end(accuracies: dict[str, float], samples: int, said: str) -> None:
    result = replace(run_of(*accuracies), dataset=f"made up (9 train / {samples:,} test)")
    for number, accuracy in enumerate(accuracies.values()):
        result = changed(result, number, accuracy=accuracy, personalised_accuracy=accuracy)
    assert findings(result) == [f"Accuracy after 3 rounds is {said}"]


def test_other_metrics_interrupted_runs_and_what_could_not_be_measured() -> None:
    result = replace(run_of("fedavg", "full-he"), metrics=("mse", "mae"))
    for number, value in enumerate((0.25, 4.0)):
        result = changed(result, number, metrics={"mse": value}, personalised_metrics={"mse": value})
    result.methods[1] = replace(result.methods[1], rounds=result.methods[1].rounds[:1])
    assert findings(result) == ["Mse after 1 to 3 rounds is between 0.25 under fedavg and 4 under full-he."]
    assert findings(changed(run_of("fedavg"), 0, accuracy=math.nan)) == [
        "No model's accuracy could be measured."
    ]


def test_names_are_joined_and_not_all_of_many() -> None:
    assert [joined(list("abcdefg"[:n])) for n in (1, 2, 3, 7)] == [
        "a",
        "a and b",
        "a, b and c",
        "a, b, c and 4 others",
    ]
