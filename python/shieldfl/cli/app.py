"""The typer application: its commands and the options before them."""

from __future__ import annotations

from typing import Annotated

import typer

import shieldfl
from shieldfl.cli.audit.command import audit
from shieldfl.cli.authority.clients import enrol, revoke, show
from shieldfl.cli.authority.keys import client_key, init, rotate
from shieldfl.cli.authority.serve import serve
from shieldfl.cli.bench.command import bench
from shieldfl.cli.doctor.command import doctor
from shieldfl.cli.flower.new import new
from shieldfl.cli.flower.restored import restored
from shieldfl.cli.inspect import inspect
from shieldfl.cli.profile.calibrate import calibrate
from shieldfl.cli.profile.measure import measure
from shieldfl.cli.profile.plan import plan
from shieldfl.cli.profile.simulate import simulate
from shieldfl.cli.run.command import run
from shieldfl.cli.run.method_list import HelpWithMethods

__all__ = ["app"]

_HELP = """Protected federated averaging at about the cost of plain averaging.

To begin with:
  shieldfl doctor           whether all of it works on this machine
  shieldfl run --rounds 2   train on small data under protection; some seconds
"""

app = typer.Typer(
    name="shieldfl",
    help=_HELP,
    epilog="Exit codes: 0 fine, 1 failed (one line on standard error says why), 2 wrong usage.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
profile = typer.Typer(
    name="profile",
    help="Calibrate this machine, simulate and measure rounds of a fleet of clients, and plan what they can encrypt.",
    no_args_is_help=True,
)


authority = typer.Typer(
    name="authority",
    help="Make, look at and serve a key authority that aggregators reach over HTTPS.",
    no_args_is_help=True,
)
flower = typer.Typer(
    name="flower",
    help="Make an app for Flower whose clients' updates are protected, and look after its nodes.",
    no_args_is_help=True,
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


app.command(cls=HelpWithMethods)(run)
app.command(cls=HelpWithMethods)(audit)
app.command()(doctor)
app.command()(inspect)
app.command()(bench)
app.add_typer(profile)
for command in (calibrate, simulate, plan, measure):
    profile.command()(command)
app.add_typer(authority)
for command in (init, serve, enrol, revoke, show, rotate, client_key):
    authority.command()(command)
app.add_typer(flower)
for command in (new, restored):
    flower.command()(command)
