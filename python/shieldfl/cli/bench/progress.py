"""The bar that moves while a benchmark goes through its cases."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["progress_of"]


@contextmanager
def progress_of(cases: int) -> Iterator[Callable[[int, str], None]]:
    """Show a bar on standard error where that is a terminal; yields what moves it to the case that begins."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

    with Progress(
        SpinnerColumn(),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        console=Console(stderr=True),
        transient=True,
        # Not the console's own opinion: FORCE_COLOR asks for colours, not for a moving cursor in a file.
        disable=not sys.stderr.isatty(),
    ) as progress:
        task = progress.add_task("", total=cases)
        yield lambda done, text: progress.update(task, completed=done, description=text)
