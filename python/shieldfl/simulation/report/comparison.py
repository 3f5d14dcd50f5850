"""What people compare methods by: twelve rows at most, and a line of notes for each method."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from shieldfl.reporting.quantities import MISSING, epsilon_text
from shieldfl.simulation.report.summary import Row, summarise
from shieldfl.simulation.results import MethodResult
from shieldfl.simulation.run_result import RunResult

__all__ = ["audited", "compared_rows", "footnotes", "what_happened"]

_LABELS = {
    "hidden_share": "hidden from the aggregator",
    "epsilon": "ε",
    "seconds_round": "time a round",
    "bytes_up": "bytes up, a client",
    "bytes_down": "bytes down, a client",
    "encrypted_by": "encrypted by",
    "opened_by": "sums opened by",
}
"""Of figures of the summary, in their order, by name."""
_SAYS_NOTHING = (MISSING, "nobody")


def compared_rows(result: RunResult) -> tuple[Row, ...]:
    """Return the rows that decide, without those that say nothing of any method. Every method must have a round."""
    rows = {row.name: row for section in summarise(result) for row in section.rows}
    name = result.metrics[0]
    chosen = [replace(rows[name], label=f"{name}, global model")]
    own = rows[f"personalised_{name}"]
    if own.cells != chosen[0].cells:
        chosen.append(replace(own, label=f"{name}, merged models"))
    chosen += _attacked(result)
    rows["epsilon"] = replace(rows["epsilon"], cells=tuple(map(_epsilon_text, result.methods)))
    chosen += [replace(rows[figure], label=label) for figure, label in _LABELS.items()]
    return tuple(row for row in chosen if not all(cell in _SAYS_NOTHING for cell in row.cells))


def audited(result: RunResult, method: MethodResult) -> Mapping[str, Any] | None:
    """Return what an attack on a method's federations read for the aggregator; None where none was made."""
    cells = () if result.audit is None else result.audit["cells"]
    return next((cell for cell in cells if cell["method"] == method.method), None)


def _attacked(result: RunResult) -> list[Row]:
    if result.audit is None:
        return []
    cells = [audited(result, method) for method in result.methods]
    return [
        Row("labels an attack reads", tuple(map(_read_text, cells)), "labels_read"),
        Row(
            "  by chance",
            tuple(
                MISSING if cell is None or cell["chance"] is None else f"{100 * cell['chance']:.0f} %"
                for cell in cells
            ),
            "labels_by_chance",
        ),
    ]


def _read_text(cell: Mapping[str, Any] | None) -> str:
    if cell is None:
        return MISSING
    if cell["status"] == "nothing received":
        return "nothing"
    if cell["status"] != "attacked":
        return str(cell["status"])
    figure = f"{100 * cell['figure']:.0f} %"
    return figure if cell["low"] is None else f"{figure} ({100 * cell['low']:.0f}–{100 * cell['high']:.0f})"


def _epsilon_text(method: MethodResult) -> str:
    epsilon = method.last.epsilon
    text = epsilon_text(epsilon)
    return f"{text} for a {method.privacy_unit}" if math.isfinite(epsilon) and method.privacy_unit else text


def what_happened(method: MethodResult) -> list[str]:
    """Return a method's notes without the one that says how its ε is to be read, which its page says as well."""
    return method.notes[1:]


def footnotes(result: RunResult) -> list[tuple[str, str]]:
    """Return one line for each method that needs one, after the names of the methods that have the same one.

    It says whom a finite ε protects and against whom, and the newest of the notes.
    """
    methods_of: dict[str, list[str]] = {}
    for method in result.methods:
        parts = []
        if math.isfinite(method.last.epsilon) and method.privacy_unit:
            whom = (method.privacy_adversary or "an adversary that its page names").partition(",")[0]
            parts.append(
                f"ε of {epsilon_text(method.last.epsilon)} at δ = {method.delta:g} protects a {method.privacy_unit} "
                f"in all rounds together, against {whom}"
            )
        notes = what_happened(method)
        if notes:
            parts.append(notes[-1] + (f" ({len(notes) - 1} more in the notes)" if len(notes) > 1 else ""))
        if parts:
            methods_of.setdefault("; ".join(parts), []).append(method.method)
    return [(", ".join(names), note) for note, names in methods_of.items()]
