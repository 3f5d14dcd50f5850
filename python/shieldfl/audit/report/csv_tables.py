"""The cells of an audit as CSV text."""

from __future__ import annotations

from typing import Any

from shieldfl.audit.result import AuditResult
from shieldfl.simulation.report.csv_tables import csv_text

__all__ = ["cells_csv"]


def cells_csv(result: AuditResult) -> str:
    """Return a line for each cell under a line of names; what there is not is left empty.

    Further figures have columns of their own names, behind all others.
    """
    return csv_text(_line(cell.to_json() | {"verdict": result.verdict(cell)}) for cell in result.cells)


def _line(facts: dict[str, Any]) -> dict[str, Any]:
    others: dict[str, Any] = facts.pop("others")
    return facts | others
