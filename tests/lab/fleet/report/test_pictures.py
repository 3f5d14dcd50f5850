from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from lab.fleet.fleets import COSTS, client, fleet_of, three_clients
from shieldfl.errors import ParameterError
from shieldfl.lab.fleet.encryption_plan import MaskSettings
from shieldfl.lab.fleet.round_simulation import simulate
from shieldfl.lab.report.fleet_pictures import (
    SEGMENTS,
    draw_gantt,
    draw_round_times,
    draw_straggler_index,
    straggler_index_by_budget,
    timelines,
)
from shieldfl.quantities import seconds_text

SETTINGS = MaskSettings(uniform_ratio=0.2)


def test_timelines_are_the_rounds_slowest_first():
    rounds = simulate("mask-crypt", three_clients(), COSTS, settings=SETTINGS)
    ways = timelines(rounds)
    assert ways.clients == ("far", "half", "fast")
    assert ways.left_out == 0
    assert tuple(ways.seconds) == SEGMENTS
    ends = np.sum(list(ways.seconds.values()), axis=0)
    np.testing.assert_allclose(ends, rounds.round_seconds[0])
    assert ways.seconds["encrypt"].tolist() == rounds.stages["encrypt"][0, [2, 1, 0]].tolist()


def test_of_many_clients_the_slowest_are_shown():
    fleet = fleet_of(client("usual", count=50), client("slow", cpu_share=0.1))
    ways = timelines(simulate("full-he", fleet, COSTS), most=5)
    assert ways.clients[0] == "slow"
    assert (len(ways.clients), ways.left_out) == (5, 46)


def test_a_round_that_there_is_not():
    with pytest.raises(ParameterError, match="round 1"):
        timelines(simulate("full-he", three_clients(), COSTS), number=1)


def test_bars_of_a_gantt_chart():
    runs = [simulate(name, three_clients(), COSTS, settings=SETTINGS) for name in ("fedavg", "mask-crypt")]
    figure = draw_gantt(runs)
    titles = [f"{rounds.plan.method}, {seconds_text(rounds.round_seconds[0])}" for rounds in runs]
    assert [axes.get_title(loc="left") for axes in figure.axes] == titles
    for axes, rounds in zip(figure.axes, runs, strict=True):
        assert [label.get_text() for label in axes.get_yticklabels()] == ["far", "half", "fast"]
        bars = {container.get_label(): container.patches for container in axes.containers}
        assert tuple(bars) == SEGMENTS
        begin = np.zeros(3)
        for name, seconds in timelines(rounds).seconds.items():
            np.testing.assert_allclose([bar.get_x() for bar in bars[name]], begin)
            np.testing.assert_allclose([bar.get_width() for bar in bars[name]], seconds)
            begin = begin + seconds


def test_clients_that_drop_out_are_marked_where_they_do():
    fleet = fleet_of(client("lost", dropout_probability=1.0), client("stays", count=2))
    rounds = simulate("full-he", fleet, COSTS)
    (mark,) = draw_gantt([rounds]).axes[0].lines
    ways = timelines(rounds)
    assert mark.get_xdata() == pytest.approx(rounds.client_seconds[0, [0]])
    assert mark.get_ydata().tolist() == [ways.clients.index("lost")]


def test_straggler_index_by_budget():
    fleet = three_clients()
    index = straggler_index_by_budget(fleet, COSTS, budgets=(0.0, 0.2, 1.0))
    assert index[0] == simulate("fedavg", fleet, COSTS).straggler_index[0]
    uniform = simulate("mask-crypt", fleet, COSTS, settings=MaskSettings(uniform_ratio=0.2))
    assert index[1] == uniform.straggler_index[0]
    (axes,) = draw_straggler_index({"tens": index}, (0.0, 0.2, 1.0)).axes
    (line,) = axes.lines
    assert line.get_xdata().tolist() == [0.0, 20.0, 100.0]
    assert line.get_ydata().tolist() == index.tolist()
    assert line.get_label() == "tens"


def test_round_times_over_fleets():
    (axes,) = draw_round_times(["even", "uneven"], {"a": [1.0, 2.0], "b": [3.0, 5.0]}).axes
    assert {line.get_label(): list(line.get_ydata()) for line in axes.lines} == {
        "a": [1.0, 2.0],
        "b": [3.0, 5.0],
    }
    assert [label.get_text() for label in axes.get_xticklabels()] == ["even", "uneven"]
