"""The progress bars of ``shieldfl run``: on a terminal, on standard error, and nowhere else."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Column

from shieldfl.cli.terminal_progress import TerminalProgress, progress_on_terminal
from shieldfl.reporting.quantities import metric_text
from shieldfl.simulation.results import RoundRecord

__all__ = ["RoundProgress"]
_SHORT_NAMES = {"encrypted": "enc", "personalised": "pers"}


class RoundProgress(TerminalProgress):
    """One bar for each method; calling it with a method's name and a round's record moves one on."""

    def __init__(self, methods: Sequence[str], rounds: int) -> None:
        progress = progress_on_terminal(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=10),
            TextColumn("round"),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn(
                "{task.fields[figures]}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")
            ),
            expand=True,
        )
        super().__init__(progress)
        self._rounds = rounds
        self._waiting = [
            (name, self._progress.add_task(name, total=rounds, start=False, figures="")) for name in methods
        ]
        self._tasks = dict(self._waiting)
        self._start_next()

    def __call__(self, method: str, record: RoundRecord) -> None:
        """Show a finished round."""
        self._progress.update(self._tasks[method], completed=record.round, figures=_figures(record))
        if record.round == self._rounds:
            self._start_next()

    def _start_next(self) -> None:
        if self._waiting:
            self._progress.start_task(self._waiting.pop(0)[1])


def _figures(record: RoundRecord) -> str:
    """Two short lines, which fit beside the bar on a terminal of 80 columns."""
    name = next(iter(record.metrics), "accuracy") if math.isnan(record.accuracy) else "accuracy"
    measured = metric_text(record.measured(name), name)
    if record.measured_by_clients(name) != record.measured(name):
        measured += f", own {metric_text(record.measured_by_clients(name), name)}"
    if name != "accuracy":
        measured = f"{name} {measured}"
    zones = [
        f"{_SHORT_NAMES.get(zone, zone)} {share:.1%}"
        for zone, share in record.zone_shares.items()
        if share > 0.0
    ]
    return f"{measured}\n{' '.join(zones)}"
