"""The options of ``shieldfl profile`` that several of its commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from shieldfl.cli.json_output import JsonFile

__all__ = [
    "ClientsTable",
    "FleetFile",
    "JsonFile",
    "PaperCosts",
    "ProfileFile",
    "Schemes",
    "parse_names",
]


def parse_names(text: str) -> tuple[str, ...]:
    """Read names with commas between; each counts once."""
    names = tuple(dict.fromkeys(name for part in str(text).split(",") if (name := part.strip())))
    if not names:
        raise typer.BadParameter("give at least one name")
    return names


FleetFile = Annotated[
    Path,
    typer.Argument(
        metavar="FLEET.toml", exists=True, dir_okay=False, help="A fleet file: see docs/fleet.md."
    ),
]
ProfileFile = Annotated[
    Path | None,
    typer.Option(
        "--profile",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        rich_help_panel="Costs",
        help="Take costs from a device profile, which shieldfl profile calibrate writes.",
    ),
]
PaperCosts = Annotated[
    bool,
    typer.Option(
        "--paper-costs",
        rich_help_panel="Costs",
        help="Take the costs that the SenseCrypt paper reports, of its own library and machines.",
    ),
]
# typer takes no tuples of any length, so what has a parser is typed Any.
Schemes = Annotated[
    Any,
    typer.Option(
        "--scheme",
        metavar="NAME,...",
        parser=parse_names,
        rich_help_panel="Costs",
        help="Schemes of the device profile; by default all of them.",
        show_default=False,
    ),
]
ClientsTable = Annotated[
    bool, typer.Option("--clients-table", rich_help_panel="Output", help="Print a line for each client too.")
]
