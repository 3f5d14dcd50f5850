"""The tables of a simulation's report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shieldfl.fleet.costs.cost_model import CostModel
from shieldfl.fleet.report.summary_text import client_cells, short_seconds_text, summary_cells
from shieldfl.fleet.simulate.round_simulation import FleetRounds
from shieldfl.fleet.simulate.summary import FleetSummary
from shieldfl.reporting.quantities import MISSING, bytes_text

__all__ = [
    "MOST_CLIENT_ROWS",
    "ReportTable",
    "clients_table",
    "costs_table",
    "methods_table",
    "reductions_table",
]

MOST_CLIENT_ROWS = 200
"""Clients that a table shows; of larger fleets the slowest."""


@dataclass(frozen=True)
class ReportTable:
    """Cells, and a note below them."""

    title: str
    heads: list[str]
    rows: list[list[str]]
    note: str = ""


def methods_table(summaries: Sequence[FleetSummary]) -> ReportTable:
    """Return a row of figures for each method."""
    cells = [
        {
            "method": one.method,
            **summary_cells(one),
            "down": bytes_text(one.bytes_down),
            "short of budget": f"{one.clients_short_of_budget:,}",
        }
        for one in summaries
    ]
    return ReportTable("Methods", list(cells[0]), [list(row.values()) for row in cells])


def reductions_table(summaries: Sequence[FleetSummary]) -> ReportTable:
    """Compare the round time of every method with that of every other."""
    return ReportTable(
        "Round time beside the others",
        ["method", *(f"than {one.method}" for one in summaries)],
        [
            [one.method, *(MISSING if one is other else _difference(one, other) for other in summaries)]
            for one in summaries
        ],
        "− is shorter, + longer than the method above the column.",
    )


def _difference(one: FleetSummary, other: FleetSummary) -> str:
    if other.round_seconds == 0.0:
        return MISSING
    share = one.round_seconds / other.round_seconds - 1.0
    # Thousands of percent say less than a factor.
    text = f"{share:+.1%}" if share < 10.0 else f"×{share + 1.0:,.0f}"
    return text.replace("-", "−").replace("%", " %")


def clients_table(rounds: FleetRounds) -> ReportTable:
    """Return a row for each client, the slowest first."""
    heads, rows = client_cells(rounds, MOST_CLIENT_ROWS)
    left_out = rounds.fleet.size - len(rows)
    note = f"The {len(rows)} slowest; simulation.json also has the other {left_out:,}." if left_out else ""
    return ReportTable(rounds.plan.method, heads, rows, note)


def costs_table(models: Iterable[CostModel]) -> ReportTable:
    """Return a row for each scheme."""
    rows = []
    for one in (model.scheme for model in models):
        times = (one.encrypt_seconds, one.add_seconds, one.open_seconds)
        sizes = (one.name, f"{one.values_per_ciphertext:,}", f"{one.ciphertext_bytes:,.0f}")
        rows.append([*sizes, *(short_seconds_text(seconds) for seconds in times), f"{one.serial_share:.1%}"])
    heads = ["scheme", "values", "bytes", "encrypt", "add", "open", "serial share"]
    note = "Of a ciphertext, on one core; serial share: what more cores do not shorten of encryption."
    return ReportTable("Costs", heads, rows, note)
