"""``shieldfl flower restored``: a node's operator says that its store is a backup."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shieldfl.cli.failures import failures_on_stderr
from shieldfl.errors import DataError

__all__ = ["restored"]


def restored(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", file_okay=False, help="The node's, its setting shieldfl-store."),
    ],
) -> None:
    """Have a node begin anew after its store was restored from a backup, before it takes part in a run again.

    What it has sent since the backup is not known there, so it leaves all runs that have begun.
    """
    with failures_on_stderr():
        from shieldfl.flower.node_memory import DiskMemory

        if not (folder / "store").exists() or not (folder / "key").exists():
            raise DataError(f"{folder} is no store of a node: give the folder of its setting shieldfl-store")
        DiskMemory(folder).begin_anew()
        typer.echo("the node takes no further part in runs that had begun, and can take part in new ones")
