"""The progress bar of ``shieldfl audit``: on a terminal, on standard error, and nowhere else."""

from __future__ import annotations

import time

from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn

from shieldfl.cli.terminal_progress import TerminalProgress, progress_on_terminal

__all__ = ["AuditProgress"]


class AuditProgress(TerminalProgress):
    """One bar for the whole budget; calling it with a method and a trial's number says what runs."""

    def __init__(self, budget_minutes: float) -> None:
        progress = progress_on_terminal(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TimeElapsedColumn(),
            TextColumn(f"of {budget_minutes:g} min"),
        )
        super().__init__(progress)
        self._task = self._progress.add_task("set-up", total=60 * budget_minutes)
        self._began = time.monotonic()

    def __call__(self, method: str, trial: int) -> None:
        """Show which federation begins."""
        spent = time.monotonic() - self._began
        self._progress.update(self._task, completed=spent, description=f"{method}, trial {trial + 1}")
