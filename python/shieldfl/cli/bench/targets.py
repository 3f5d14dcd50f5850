"""Figures beside what they have to reach, as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from shieldfl.benchmarks.target import Target
from shieldfl.cli.result_console import result_table

__all__ = ["print_targets"]


def print_targets(targets: Sequence[Target], console: Console, head: str = "figure") -> None:
    """Print one line for each figure, and the notes below; without columns that none of them fills."""
    rows = [
        (
            target.figure,
            "–" if target.measured is None else _number(target.measured, target.unit, "#.3g"),
            *(_limit(target, limit) for limit in (target.target, target.stretch)),
            target.verdict,
        )
        for target in targets
    ]
    heads = (head, "measured", "target", "stretch", "")
    filled = [column for column in range(len(heads)) if any(row[column] for row in rows)]
    console.print(
        result_table(
            [heads[column] for column in filled], [[row[column] for column in filled] for row in rows]
        )
    )
    for target in targets:
        if target.note:
            console.print(f"{target.figure}: {target.note}", soft_wrap=True)


def _limit(target: Target, limit: float | None) -> str:
    return "" if limit is None else f"{'≥' if target.at_least else '≤'} {_number(limit, target.unit)}"


def _number(value: float, unit: str, form: str = ".3g") -> str:
    text = f"{value:,.0f}" if value >= 100 else f"{value:{form}}"
    return f"{text} {unit}"
