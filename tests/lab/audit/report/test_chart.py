"""What the chart of an audit shows, for both kinds of screen."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("torch")

from lab.audit.report.made_up_audits import audit_of_one_try, small_audit
from shieldfl.lab.report.audit_report import attack_tables, draw_chart
from shieldfl.lab.report.figures import NARROW, WIDE, Shape


@pytest.mark.parametrize("shape", [WIDE, NARROW], ids=["wide", "narrow"])
def test_each_lane_has_its_figure_chance_and_interval(shape: Shape) -> None:
    table = attack_tables(small_audit())[0]
    # The aggregator and who got more: of fedavg nobody did, of full-he the aggregator got nothing.
    places = [
        ("fedavg", "aggregator"),
        ("full-he", "client"),
        ("mask-crypt", "aggregator"),
        ("mask-crypt", "client"),
    ]
    expected = [table.cells[place] for place in places]
    (axes,) = draw_chart(table, shape).axes
    dots = [line for line in axes.lines if len(line.get_xdata())]
    heights = [line.get_ydata()[0] for line in dots[::2]]
    assert heights == sorted(heights)
    assert [line.get_xdata()[0] for line in dots[::2]] == [one.chance for one in expected]
    assert [line.get_xdata()[0] for line in dots[1::2]] == [one.figure for one in expected]
    drawn = [lines.get_segments()[0][:, 0].tolist() for lines in axes.collections]
    assert drawn == [[one.low, one.high] for one in expected]


def test_one_try_has_no_interval() -> None:
    (table,) = attack_tables(audit_of_one_try())
    assert math.isinf(table.cells["fedavg", "aggregator"].low)
    (axes,) = draw_chart(table).axes
    assert not axes.collections
