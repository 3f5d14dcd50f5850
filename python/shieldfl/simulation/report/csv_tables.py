"""The figures of a run as CSV text: numbers as they were measured, in bytes, seconds and shares."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping
from io import StringIO
from typing import Any

from shieldfl.simulation.report.summary import Section
from shieldfl.simulation.results import RoundRecord
from shieldfl.simulation.run_result import RunResult

__all__ = ["csv_text", "flat_record", "rounds_csv", "summary_csv"]


def summary_csv(result: RunResult, sections: Iterable[Section]) -> str:
    """Return a line for each method with every figure of a summary's sections, under a line of names.

    What there is not, such as the ε of encryption, is left empty; an infinite number is ``inf``.
    """
    rows = [row for section in sections for row in section.rows]
    return csv_text(
        {"method": method.method}
        | {row.name: row.values[index] for row in rows}
        | {"readable_parts": ", ".join(method.readable_parts)}
        for index, method in enumerate(result.methods)
    )


def rounds_csv(result: RunResult) -> str:
    """Return a line for each method and round, as :func:`summary_csv` writes numbers."""
    return csv_text(
        {"method": method.method, **flat_record(record)}
        for method in result.methods
        for record in method.rounds
    )


def flat_record(record: RoundRecord) -> dict[str, Any]:
    """Return a round's figures without dicts in it: what is in one has its name, or a head that says of what it is."""
    nested = {"metrics": "", "personalised_metrics": "personalised_", "zone_shares": "share_"}
    nested["stage_seconds"] = "seconds_"
    flat: dict[str, Any] = {}
    for name, value in vars(record).items():
        flat |= (
            {f"{nested[name]}{key}": one for key, one in value.items()} if name in nested else {name: value}
        )
    return flat


def csv_text(lines: Iterable[Mapping[str, Any]]) -> str:
    """Return lines under a line of all their names, as :func:`summary_csv` writes numbers."""
    written = list(lines)
    text = StringIO()
    writer = csv.DictWriter(
        text, list(dict.fromkeys(name for line in written for name in line)), lineterminator="\n"
    )
    writer.writeheader()
    for line in written:
        writer.writerow({name: _plain(value) for name, value in line.items()})
    return text.getvalue()


def _plain(value: Any) -> Any:
    return "" if value is None or (isinstance(value, float) and math.isnan(value)) else value
