"""The typer application: its commands and the options before them."""

from __future__ import annotations

from typing import Annotated, ClassVar

import typer

import shieldfl
from shieldfl.cli.commands_on_demand import CommandsOnDemand
from shieldfl.cli.run.method_list import HelpWithMethods

__all__ = ["app"]

_HELP = """Protected federated averaging at about the cost of plain averaging.

To begin with:
  shieldfl doctor           whether all of it works on this machine
  shieldfl run --rounds 2   train on small data under protection; some seconds
"""


class _Commands(CommandsOnDemand):
    places: ClassVar = {
        "run": "shieldfl.cli.run.command:run",
        "audit": "shieldfl.cli.audit.command:audit",
        "doctor": "shieldfl.cli.doctor.command:doctor",
        "inspect": "shieldfl.cli.inspect:inspect",
        "bench": "shieldfl.cli.bench.command:bench",
    }
    classes: ClassVar = {"run": HelpWithMethods, "audit": HelpWithMethods}


class _ProfileCommands(CommandsOnDemand):
    places: ClassVar = {
        "calibrate": "shieldfl.cli.profile.command:calibrate",
        "simulate": "shieldfl.cli.profile.command:simulate",
        "plan": "shieldfl.cli.profile.command:plan",
    }


class _AuthorityCommands(CommandsOnDemand):
    places: ClassVar = {
        "init": "shieldfl.cli.authority.keys:init",
        "serve": "shieldfl.cli.authority.serve:serve",
        "enrol": "shieldfl.cli.authority.clients:enrol",
        "revoke": "shieldfl.cli.authority.clients:revoke",
        "show": "shieldfl.cli.authority.clients:show",
        "rotate": "shieldfl.cli.authority.keys:rotate",
        "client-key": "shieldfl.cli.authority.keys:client_key",
    }


class _FlowerCommands(CommandsOnDemand):
    places: ClassVar = {
        "new": "shieldfl.cli.flower.new:new",
        "restored": "shieldfl.cli.flower.restored:restored",
    }


app = typer.Typer(
    name="shieldfl",
    cls=_Commands,
    help=_HELP,
    epilog="Exit codes: 0 fine, 1 failed (one line on standard error says why), 2 wrong usage.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"shieldfl {shieldfl.__version__}")
        raise typer.Exit


@app.callback()
def _before_command(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Take the options before the command; each acts through its own callback."""


app.add_typer(
    typer.Typer(
        name="profile",
        cls=_ProfileCommands,
        help="Calibrate this machine, simulate rounds of a fleet of clients, and plan what they can encrypt.",
        no_args_is_help=True,
    )
)
app.add_typer(
    typer.Typer(
        name="authority",
        cls=_AuthorityCommands,
        help="Make, look at and serve a key authority that aggregators reach over HTTPS.",
        no_args_is_help=True,
    )
)
app.add_typer(
    typer.Typer(
        name="flower",
        cls=_FlowerCommands,
        help="Make an app for Flower whose clients' updates are protected, and look after its nodes.",
        no_args_is_help=True,
    )
)
