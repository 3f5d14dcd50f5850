"""Where ``--json`` writes to: a file, or standard output for ``-``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from shieldfl.lab.report.output_files import write_whole


def checked_output(path: Path | None) -> Path | None:
    """Refuse a folder that does not exist now, rather than after the work is done."""
    if path is not None and not is_stdout(path) and not path.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {path.parent}")
    return path


JsonFile = Annotated[
    Path | None,
    typer.Option(
        "--json",
        metavar="FILE",
        rich_help_panel="Output",
        help='Write every figure as JSON; "-" for standard output, and then nothing else goes there.',
        callback=checked_output,
        dir_okay=False,
        writable=True,
        allow_dash=True,
    ),
]


def is_stdout(path: Path | None) -> bool:
    """Whether the path is the dash that stands for standard output."""
    return path is not None and str(path) == "-"


def write_json(facts: dict[str, Any], path: Path | None) -> None:
    """Write plain JSON types to where ``--json`` says; nowhere for None. Raises OSError."""
    if path is None:
        return
    text = json.dumps(facts, indent=2, allow_nan=False) + "\n"
    if is_stdout(path):
        sys.stdout.write(text)
    else:
        write_whole(path, text)
