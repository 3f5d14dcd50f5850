"""The progress bar of ``shieldfl audit``: on a terminal, on standard error, and nowhere else."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

__all__ = ["AuditProgress"]


class AuditProgress:
    """One bar for the whole budget; calling it with a method and a trial's number says what runs."""

    def __init__(self, budget_minutes: float) -> None:
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TimeElapsedColumn(),
            TextColumn(f"of {budget_minutes:g} min"),
            console=Console(stderr=True),
            disable=not sys.stderr.isatty(),
        )
        self._task = self._progress.add_task("set-up", total=60 * budget_minutes)
        self._began = time.monotonic()

    def __enter__(self) -> AuditProgress:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def __call__(self, method: str, trial: int) -> None:
        """Show which federation begins."""
        spent = time.monotonic() - self._began
        self._progress.update(self._task, completed=spent, description=f"{method}, trial {trial + 1}")
