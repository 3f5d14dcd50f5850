from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from lab.fleet.fleets import COSTS, client, fleet_of, three_clients
from shieldfl.lab.fleet.cost_source import MaskSettings
from shieldfl.lab.fleet.round_simulation import STAGES, simulate
from shieldfl.lab.report.fleet_page import draw_gantt
from shieldfl.quantities import seconds_text

SETTINGS = MaskSettings(uniform_ratio=0.2)


def test_bars_of_a_gantt_chart():
    runs = [simulate(name, three_clients(), COSTS, settings=SETTINGS) for name in ("fedavg", "mask-crypt")]
    figure = draw_gantt(runs)
    titles = [f"{rounds.plan.method}, {seconds_text(rounds.round_seconds[0])}" for rounds in runs]
    assert [axes.get_title(loc="left") for axes in figure.axes] == titles
    for axes, rounds in zip(figure.axes, runs, strict=True):
        assert [label.get_text() for label in axes.get_yticklabels()] == ["far", "half", "fast"]
        bars = {container.get_label(): container.patches for container in axes.containers}
        assert tuple(bars) == (*STAGES, "wait", "download")
        begin, parts = np.zeros(3), rounds.stages | {"wait": rounds.idle, "download": rounds.download}
        for name, drawn in bars.items():
            seconds = parts[name][0, [2, 1, 0]]
            np.testing.assert_allclose([bar.get_x() for bar in drawn], begin)
            np.testing.assert_allclose([bar.get_width() for bar in drawn], seconds)
            begin = begin + seconds
        np.testing.assert_allclose(begin, rounds.round_seconds[0])


def test_clients_that_drop_out_are_marked_where_they_do():
    fleet = fleet_of(client("lost", dropout_probability=1.0), client("stays", count=2))
    rounds = simulate("full-he", fleet, COSTS)
    (mark,) = draw_gantt([rounds]).axes[0].lines
    assert mark.get_xdata() == pytest.approx(rounds.client_seconds[0, [0]])
    names = [label.get_text() for label in draw_gantt([rounds]).axes[0].get_yticklabels()]
    assert mark.get_ydata().tolist() == [names.index("lost")]


def test_of_many_clients_the_slowest_are_shown():
    fleet = fleet_of(client("usual", count=50), client("slow", cpu_share=0.1))
    (axes,) = draw_gantt([simulate("full-he", fleet, COSTS)]).axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert (names[0], len(names)) == ("slow", 20)
    assert "the 20 slowest of 51 clients" in axes.get_title(loc="left")
