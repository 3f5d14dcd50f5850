"""Our figures beside the papers'."""

from __future__ import annotations

import math

import pytest

from shieldfl.errors import ParameterError
from shieldfl.lab.simulation.papers import FIGURES, PaperFigure, compare_figures
from shieldfl.lab.simulation.results import STAGES, MethodResult, RoundRecord
from shieldfl.lab.simulation.run_result import RunResult


def record(number: int, factor: float) -> RoundRecord:
    return RoundRecord(
        round=number,
        participants=3,
        dropped=1,
        loss=0.5,
        accuracy=0.9 - 0.1 * number,
        personalised_accuracy=0.4,
        zone_shares={
            "encrypted": 0.1 * number,
            "personalised": 0.0,
            "noise": 0.0,
            "clear": 1.0 - 0.1 * number,
        },
        stage_seconds={"encrypt": 8.0 * factor},
        bytes_up=1000.0 * factor,
        bytes_down=10.0,
        epsilon=math.inf,
        epsilon_of_noise=math.inf,
        epsilon_if_participants_true=math.inf,
        seconds=3.0 * factor,
    )


def run_result() -> RunResult:
    methods = [
        MethodResult(name, {}, 10, 1e-5, [record(number, factor) for number in (1, 2)], 6.0 * factor, [])
        for name, factor in (("fedavg", 1.0), ("full-he", 2.0))
    ]
    return RunResult("data", "mlp", {}, {}, 10, methods)


@pytest.mark.parametrize(
    ("figure", "ours"),
    [
        ("accuracy", 0.7),
        ("best_accuracy", 0.8),
        ("personalised_accuracy", 0.4),
        ("encrypted_share", 0.15),
        ("clear_share", 0.85),
        ("encrypt_seconds", 16.0),
        ("encrypt_seconds_per_client", 4.0),
        ("open_seconds", 0.0),
        ("round_seconds", 6.0),
        ("bytes_up", 2000.0),
        ("bytes_down", 10.0),
        ("total_bytes", 4020.0),
        ("epsilon", math.inf),
    ],
)
def test_a_figure_is_read_off_the_run(figure, ours):
    (compared,) = compare_figures(run_result(), (PaperFigure("a table", "full-he", figure, (1.0,)),))
    assert compared.ours == pytest.approx(ours)


def test_every_stage_and_zone_has_its_figures():
    for stage in STAGES:
        assert {f"{stage}_seconds", f"{stage}_seconds_per_client"} <= set(FIGURES)
    assert {f"{zone}_share" for zone in ("encrypted", "personalised", "noise", "clear")} <= set(FIGURES)


def test_a_figure_against_another_method_says_how_many_times_less():
    paper = PaperFigure("a table", "fedavg", "bytes_up", (402.0, 748.0), "full-he", "on a larger model")
    (compared,) = compare_figures(run_result(), (paper,))
    assert compared.ours == 2.0
    assert compared.cells() == (
        "fedavg",
        "up, a round and client: full-he / fedavg",
        "×2.00",
        "×402 to ×748",
        "a table; on a larger model",
    )
    assert compared.to_json()["ours"] == 2.0


def test_what_has_no_figure_is_marked_as_missing():
    paper = PaperFigure("a table", "fedavg", "open_seconds", (1.0,), "full-he")
    (compared,) = compare_figures(run_result(), (paper,))
    assert math.isnan(compared.ours)
    assert compared.cells()[2] == "–"
    assert compared.to_json()["ours"] is None


def test_cells_of_a_plain_figure():
    (compared,) = compare_figures(run_result(), (PaperFigure("table 8", "full-he", "accuracy", (0.981,)),))
    assert compared.cells() == ("full-he", "accuracy", "70.00 %", "98.10 %", "table 8")


@pytest.mark.parametrize(("method", "against"), [("top-2", None), ("fedavg", "top-2")])
def test_a_method_that_did_not_run(method, against):
    with pytest.raises(ParameterError, match="no method 'top-2'"):
        compare_figures(run_result(), (PaperFigure("a table", method, "accuracy", (1.0,), against),))


@pytest.mark.parametrize(
    ("figure", "least", "most"),
    [("speed", 1.0, 1.0), ("accuracy", 2.0, 1.0), ("accuracy", math.nan, 1.0), ("accuracy", 0.0, math.inf)],
)
def test_a_figure_that_is_none(figure, least, most):
    with pytest.raises(ParameterError):
        PaperFigure("a table", "fedavg", figure, (least, most))
