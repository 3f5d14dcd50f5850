"""A progress bar of a command: on a terminal, on standard error, and nowhere else."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import Progress, ProgressColumn


def progress_on_terminal(*columns: ProgressColumn, expand: bool = False, transient: bool = False) -> Progress:
    """Return a bar of these columns, which shows itself within a ``with`` block."""
    return Progress(
        *columns,
        console=Console(stderr=True),
        expand=expand,
        transient=transient,
        # Not the console's own opinion: FORCE_COLOR asks for colours, not for a moving cursor in a file.
        disable=not sys.stderr.isatty(),
    )


class TerminalProgress:
    """What shows a bar as long as its ``with`` block runs.

    Parameters
    ----------
    progress : of :func:`progress_on_terminal`.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
