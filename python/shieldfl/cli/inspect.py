"""``shieldfl inspect``: what a frame is and whether it is intact."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from shieldfl.cli.console import JsonFile, write_json
from shieldfl.encryption.frame_inspection import FrameReport, inspect_frame
from shieldfl.errors import WireFormatError

Frame = Annotated[
    Path,
    typer.Argument(
        metavar="FRAME",
        help='File with one frame: mask, public key, batch, total, request or sum key. "-" is standard '
        "input.",
        exists=True,
        dir_okay=False,
        allow_dash=True,
    ),
]


def inspect(frame: Frame, json_file: JsonFile = None) -> None:
    """Describe a frame: kind, parameters, key id, counts, sizes, and whether it is intact.

    The command needs no key and never shows contents. The exit code is 1 if the frame is not intact.
    """
    report = inspect_frame(sys.stdin.buffer.read() if str(frame) == "-" else frame.read_bytes())
    if write_json(report.to_json(), json_file):
        typer.echo(_text(report))
    if not report.intact:
        raise WireFormatError(report.problem)


def _text(report: FrameReport) -> str:
    stated, checksum = report.declared_bytes, "fits" if report.checksum_ok else "does not fit"
    facts = {
        "size": f"{report.size_bytes:,} bytes",
        "stated size": None if stated in (None, report.size_bytes) else f"{stated:,} bytes",
        "version": report.version,
        "checksum": None if report.version is None else checksum,
        "parameter id": report.parameter_id,
        "key id": report.key_id,
        **report.counts,
    }
    lines = [f"{report.kind}, {'intact' if report.intact else 'NOT INTACT'}"]
    lines += [f"  {name:<14} {_fact_text(value)}" for name, value in facts.items() if value is not None]
    if report.description:
        lines += ["", report.description]
    elif report.parameters:
        lines += ["", "parameters"]
        lines += [f"  {name:<22} {_fact_text(value)}" for name, value in report.parameters.items()]
    return "\n".join(lines)


def _fact_text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)
