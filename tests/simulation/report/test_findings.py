"""The sentences on top of a report, against the figures that they are read off."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from shieldfl.simulation.report.findings import findings, joined
from shieldfl.simulation.run_result import Interruption, RunResult
from simulation.report.made_up_runs import changed, run_of, run_of_sixteen

ALL, NOTHING = {"encrypted": 1.0}, {"clear": 1.0}


def run_with(accuracies: dict[str, float], samples: int = 1_000) -> RunResult:
    result = replace(run_of(*accuracies), dataset=f"made up (9 train / {samples:,} test)")
    for number, accuracy in enumerate(accuracies.values()):
        result = changed(result, number, accuracy=accuracy, personalised_accuracy=accuracy)
    return result


def test_one_method() -> None:
    assert findings(run_of("fedavg")) == [
        "fedavg reaches 83.33 % accuracy after 3 rounds.",
        "In a round a client sends 1.00 MB and receives 1.00 MB; all roles together take 750 ms.",
        "ε is ∞: nothing bounds what was sent.",
    ]


def test_a_difference_that_the_test_set_shows() -> None:
    said = findings(run_with({"fedavg": 0.9, "top-2": 0.5}))[0]
    assert said == "fedavg ends with the highest accuracy, 90.00 %; top-2's is lower, 50.00 %."
    said = findings(run_with({"fedavg": 0.5, "top-2": 0.9, "dp-sgd": 0.1}))[0]
    assert said == "top-2 ends with the highest accuracy, 90.00 %; dp-sgd's is the lowest, 10.00 %."


def test_a_difference_that_the_test_set_does_not_show() -> None:
    said = findings(run_with({"fedavg": 0.90, "top-2": 0.89}, samples=1_000))[0]
    assert said == (
        "Accuracy ends between 90.00 % under fedavg and 89.00 % under top-2: 1,000 test samples cannot tell these "
        "apart."
    )
    assert "highest" in findings(run_with({"fedavg": 0.90, "top-2": 0.89}, samples=100_000))[0]
    said = findings(run_with({"fedavg": 0.90, "top-2": 0.89, "dp-sgd": 0.1}))[0]
    assert said.endswith("the lowest, 10.00 %. 1,000 test samples cannot tell top-2 from fedavg.")


@pytest.mark.parametrize(
    ("methods", "words"),
    [(("fedavg", "full-he"), "Both methods end"), (("fedavg", "full-he", "top-2"), "All 3 methods end")],
)
def test_ties(methods: tuple[str, ...], words: str) -> None:
    said = findings(run_with(dict.fromkeys(methods, 0.75)))[0]
    assert said == f"{words} at 75.00 % accuracy."
    three = findings(run_with({"fedavg": 0.9, "full-he": 0.9, "dp-sgd": 0.2}))[0]
    assert three.startswith(
        "fedavg and full-he end with the highest accuracy, 90.00 %; dp-sgd's is the lowest"
    )


def test_clients_own_models_are_told_where_they_are_better() -> None:
    result = changed(run_with({"fedavg": 0.9, "top-2": 0.5}), 1, personalised_accuracy=0.95)
    assert findings(result)[0].endswith(" The clients' own models under top-2 reach 95.00 %, a mean.")


def test_a_metric_of_ones_own_is_told_and_not_judged() -> None:
    result = replace(run_of("fedavg", "full-he"), metrics=("mse", "mae"))
    for number, value in enumerate((0.25, 4.0)):
        result = changed(result, number, metrics={"mse": value}, personalised_metrics={"mse": value})
    said = findings(result)[0]
    assert said == "After the last round mse is 0.25 under fedavg and 4 under full-he."
    for judgement in ("best", "better", "highest", "lowest", "accuracy"):
        assert judgement not in said
    same = changed(result, 1, metrics={"mse": 0.25})
    assert findings(same)[0] == "All 2 methods end with mse 0.25."
    many = replace(run_of(*"abcdef"), metrics=("mse",))
    for number in range(6):
        many = changed(many, number, metrics={"mse": float(number)})
    assert findings(many)[0] == "After the last round mse is between 0 under a and 5 under f."


def test_what_was_not_measured_is_said() -> None:
    result = run_with({"fedavg": math.nan, "top-2": 0.5})
    said = findings(result)[0]
    assert said == "top-2 reaches 50.00 % accuracy after 3 rounds. There is no accuracy of fedavg."
    assert findings(run_with({"fedavg": math.nan}))[0] == "No model's accuracy could be measured."


def test_costs_of_encrypting_everything_beside_the_first_method() -> None:
    result = changed(
        run_of("fedavg", "top-2", "full-he"), 2, zone_shares=ALL, bytes_up=2_000_000, seconds=3.0
    )
    said = findings(result)[1]
    assert said == (
        "Encrypting everything, by full-he, makes a client send 2.00 MB (×2.00) in a round and a round take "
        "3.00 s (×6.0), compared with fedavg."
    )
    several = changed(result, 1, zone_shares=ALL)
    assert findings(several)[1] == (
        "Encrypting everything makes a client send 1.50 MB (×1.50, top-2) to 2.00 MB (×2.00, full-he) in a round and "
        "a round take 2.00 s (×4.0, top-2) to 3.00 s (×6.0, full-he), compared with fedavg."
    )


def test_costs_where_nothing_or_the_first_is_encrypted() -> None:
    assert findings(run_of("fedavg", "top-2"))[1].startswith(
        "top-2 makes a client send 1.50 MB (×1.50) in a round"
    )
    first = changed(changed(run_of("full-he", "top-2"), 0, zone_shares=ALL), 1, zone_shares=ALL)
    assert findings(first)[1].startswith("top-2 makes a client send 1.50 MB (×1.00)")
    assert findings(run_of("fedavg", "a", "b"))[1].startswith(
        "The other methods make a client send 1.50 MB (×1.50)"
    )
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
    models, costs, privacy = findings(run_of_sixteen())
    assert len(models) < 300
    assert len(costs) < 300
    assert len(privacy) < 300
    assert privacy.startswith("15 of 16 methods keep a finite ε: selective-shield (15 for a client) to ")


def test_epsilons_for_different_units_are_not_ranked_together() -> None:
    result = run_of(*"abcdefg")
    for number in range(7):
        result = changed(result, number, epsilon=float(number))
        unit = "sample" if number > 4 else "client"
        result.methods[number] = replace(result.methods[number], privacy_unit=unit)
    assert findings(result)[-1] == (
        "7 of 7 methods keep a finite ε: a (0 for a client) to e (4 for a client) and f (5 for a sample) to "
        "g (6 for a sample)."
    )


def test_of_an_interrupted_run_rounds_that_differ_are_told() -> None:
    result = run_with({"fedavg": 0.9, "top-2": 0.5})
    result.methods[1] = replace(result.methods[1], rounds=result.methods[1].rounds[:1])
    stopped = replace(result, interrupted=Interruption("top-2", 2, ()))
    assert findings(stopped)[0].endswith(" Not all have run the same number of rounds.")


def test_names_are_joined_and_not_all_of_many() -> None:
    assert [joined(list("abcdefg"[:n])) for n in (1, 2, 3, 7)] == [
        "a",
        "a and b",
        "a, b and c",
        "a, b, c and 4 others",
    ]
