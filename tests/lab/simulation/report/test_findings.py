"""The sentences on top of a report, against the figures that they are read off."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from lab.simulation.report.made_up_runs import changed, run_of, run_of_sixteen
from shieldfl.lab.report.run_summary import findings, joined
from shieldfl.lab.simulation.run_result import RunResult

ALL, NOTHING = {"encrypted": 1.0}, {"clear": 1.0}


def run_with(accuracies: dict[str, float], samples: int = 1_000) -> RunResult:
    result = replace(run_of(*accuracies), dataset=f"made up (9 train / {samples:,} test)")
    for number, accuracy in enumerate(accuracies.values()):
        result = changed(result, number, accuracy=accuracy, personalised_accuracy=accuracy)
    return result


def test_one_method() -> None:
    assert findings(run_of("fedavg")) == [
        "Accuracy after 3 rounds is 83.33 % under fedavg.",
        "In a round a client sends 1.00 MB and receives 1.00 MB; all roles together take 750 ms.",
        "No method keeps a finite ε.",
    ]


@pytest.mark.parametrize(
    ("accuracies", "samples", "said"),
    [
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
    assert findings(run_with(accuracies, samples))[0] == f"Accuracy after 3 rounds is {said}"


def test_what_could_not_be_measured_is_said() -> None:
    assert findings(run_with({"fedavg": math.nan}))[0] == "No model's accuracy could be measured."


def test_a_metric_of_ones_own_is_told_and_not_judged() -> None:
    result = replace(run_of("fedavg", "full-he"), metrics=("mse", "mae"))
    for number, value in enumerate((0.25, 4.0)):
        result = changed(result, number, metrics={"mse": value}, personalised_metrics={"mse": value})
    assert findings(result)[0] == "Mse after 3 rounds is between 0.25 under fedavg and 4 under full-he."


def test_of_an_interrupted_run_rounds_that_differ_are_told() -> None:
    result = run_with({"fedavg": 0.9, "top-2": 0.5})
    result.methods[1] = replace(result.methods[1], rounds=result.methods[1].rounds[:1])
    assert findings(result)[0].startswith("Accuracy after 1 to 3 rounds is between")


def test_costs_of_encrypting_everything_beside_the_first_method() -> None:
    result = changed(
        run_of("fedavg", "top-2", "full-he"), 2, zone_shares=ALL, bytes_up=2_000_000, seconds=3.0
    )
    assert findings(result)[1] == (
        "Encrypting everything makes a client send 2.00 MB (×2.00) in a round and a round take 3.00 s (×6.0), "
        "compared with fedavg."
    )
    assert findings(changed(result, 1, zone_shares=ALL))[1] == (
        "Encrypting everything makes a client send 1.50 MB (×1.50) to 2.00 MB (×2.00) in a round and a round take "
        "2.00 s (×4.0) to 3.00 s (×6.0), compared with fedavg."
    )


def test_costs_where_nothing_or_the_first_is_encrypted() -> None:
    assert findings(run_of("fedavg", "top-2"))[1].startswith("top-2 makes a client send 1.50 MB (×1.50) in a")
    first = changed(changed(run_of("full-he", "top-2"), 0, zone_shares=ALL), 1, zone_shares=ALL)
    assert findings(first)[1].startswith("top-2 makes a client send 1.50 MB (×1.00)")
    assert findings(run_of("fedavg", "a", "b"))[1].startswith("a and b make a client send 1.50 MB (×1.50)")
    nothing = changed(run_of("fedavg", "top-2"), 0, bytes_up=0)
    assert "send 1.50 MB in a round" in findings(nothing)[1]


@pytest.mark.parametrize(
    ("epsilons", "said"),
    [
        ([math.inf, 7.5], "A finite ε is kept by top-2 (7.5 for a client)."),
        ([math.inf, math.inf], "No method keeps a finite ε."),
        (
            [math.inf, math.nan],
            "No method keeps a finite ε; top-2 sends nothing readable, and encryption has no ε.",
        ),
        ([math.nan, math.nan], "Nothing readable was sent, so there is no ε."),
        ([2.0, 3.0], "A finite ε is kept by fedavg (2) and top-2 (3 for a client)."),
    ],
)
def test_who_keeps_a_finite_epsilon(epsilons: list[float], said: str) -> None:
    result = run_of("fedavg", "top-2")
    for number, epsilon in enumerate(epsilons):
        result = changed(result, number, epsilon=epsilon)
    assert findings(result)[-1] == said


def test_of_sixteen_methods_few_are_named() -> None:
    said = findings(run_of_sixteen())
    assert all(len(sentence) < 300 for sentence in said)
    assert said[-1].startswith("A finite ε is kept by selective-shield (15 for a client), ")
    assert said[-1].endswith(" and 12 others.")


def test_names_are_joined_and_not_all_of_many() -> None:
    assert [joined(list("abcdefg"[:n])) for n in (1, 2, 3, 7)] == [
        "a",
        "a and b",
        "a, b and c",
        "a, b, c and 4 others",
    ]
