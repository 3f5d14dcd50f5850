"""Our figures beside the papers'."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from lab.simulation.report.made_up_runs import changed, run_of
from shieldfl.errors import ParameterError
from shieldfl.lab.simulation.compared_runs import PaperFigure, compare_figures
from shieldfl.lab.simulation.results import RunResult


def run_result() -> RunResult:
    result = run_of("fedavg", "selective-shield", rounds=2)
    last = replace(
        result.methods[1].last, zone_shares={"encrypted": 0.2, "clear": 0.8}, dropped=1, bytes_up=2e6
    )
    result.methods[1].rounds[1] = last
    return result


@pytest.mark.parametrize(
    ("figure", "ours"),
    [
        ("accuracy", 0.75),
        ("best_accuracy", 0.75),
        ("personalised_accuracy", 0.7),
        ("encrypted_share", 0.11),
        ("encrypt_seconds", 0.25),
        ("encrypt_seconds_per_client", 0.0125),
        ("round_seconds", 2.0),
        ("bytes_up", 2e6),
        ("bytes_down", 1.2e6),
        ("total_bytes", 5.9e6),
        ("epsilon", 5.0),
    ],
)
def test_a_figure_is_read_off_the_run(figure, ours):
    (compared,) = compare_figures(run_result(), (PaperFigure("a table", "selective-shield", figure, (1.0,)),))
    assert compared.ours == pytest.approx(ours)


def test_a_figure_against_another_method_says_how_many_times_less():
    paper = PaperFigure(
        "a table", "fedavg", "bytes_up", (402.0, 748.0), "selective-shield", "on a larger model"
    )
    (compared,) = compare_figures(run_result(), (paper,))
    assert compared.cells() == (
        "fedavg",
        "up, a round and client: selective-shield / fedavg",
        "×2.00",
        "×402 to ×748",
        "a table; on a larger model",
    )
    assert compared.to_json()["ours"] == 2.0
    (missing,) = compare_figures(changed(run_result(), 0, bytes_up=0), (paper,))
    assert math.isnan(missing.ours)
    assert missing.cells()[2] == "–"
    assert missing.to_json()["ours"] is None
    (plain,) = compare_figures(run_result(), (PaperFigure("table 8", "fedavg", "accuracy", (0.981,)),))
    assert plain.cells() == ("fedavg", "accuracy", "75.00 %", "98.10 %", "table 8")


@pytest.mark.parametrize(("method", "against"), [("top-2", None), ("fedavg", "top-2")])
def test_a_method_that_did_not_run(method, against):
    with pytest.raises(ParameterError, match="no method 'top-2'"):
        compare_figures(run_result(), (PaperFigure("a table", method, "accuracy", (1.0,), against),))
