"""The typer application: its commands, imported when they are asked for, and the options before them."""

from __future__ import annotations

from collections import UserDict
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast

import typer
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from typer.core import TyperCommand, TyperGroup

import shieldfl
from shieldfl.cli.failures import failures_on_stderr
from shieldfl.errors import ParameterError
from shieldfl.methods.registry import method_names, named_method

if TYPE_CHECKING:
    import click

_HELP = """Protected federated averaging at about the cost of plain averaging.

Start with:
  shieldfl doctor           test the installation
  shieldfl run --rounds 2   train on a small data set, protected; takes seconds
"""


class _CommandsOnDemand(TyperGroup):
    """A group that imports a command when it is asked for: importing all takes longer than most commands."""

    places: ClassVar[dict[str, str]] = {}
    """Module and function of each command, ``module:function``, by the command's name."""

    def __init__(self, *, commands: dict[str, click.Command] | None = None, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Imported({**self.places, **(commands or {})})


class _Imported(UserDict[str, Any]):
    """Commands by name; a text that says where a command is becomes the command when it is asked for."""

    def __getitem__(self, name: str) -> click.Command:
        known = self.data[name]
        if isinstance(known, str):
            module, function = known.split(":")
            # Of an application with one command and no options before it, typer makes that command alone.
            alone = typer.Typer(add_completion=False)
            kind = _HelpWithMethods if known in ("run:run", "audit:audit") else TyperCommand
            command = getattr(import_module(f"shieldfl.cli.{module}"), function)
            alone.command(name, cls=kind)(failures_on_stderr()(command))
            known = self.data[name] = typer.main.get_command(alone)
        return cast("click.Command", known)


class _HelpWithMethods(TyperCommand):
    """A command whose help ends with the names of all methods."""

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help(ctx, formatter)
        names = method_names()
        table = Table.grid(padding=(0, 2), expand=True)
        # What is cut where there is no room is never a name.
        table.add_column(style="bold cyan", no_wrap=True, min_width=max(map(len, names)))
        table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        for name in names:
            try:
                method = named_method(name)
                table.add_row(name, f"{method.purpose}: {method.sends}")
            except ParameterError as error:
                table.add_row(name, str(error))
        title = "Methods: what each is for, and what leaves a client"
        panel = Panel(table, title=title, title_align="left", border_style="dim")
        Console(markup=False, highlight=False).print(panel)


def _group(commands: str, module: str = "") -> type[TyperGroup]:
    places = {name: f"{module or name}:{name.replace('-', '_')}" for name in commands.split()}
    return type("_Commands", (_CommandsOnDemand,), {"places": places})


app = typer.Typer(
    name="shieldfl",
    cls=_group("run audit doctor inspect bench"),
    help=_HELP,
    epilog="Exit codes: 0 success, 1 failure (one line on standard error says why), 2 wrong usage.",
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


for _name, _commands, _help in (
    (
        "profile",
        "calibrate simulate plan",
        "Measure this machine, simulate rounds of a fleet of clients, plan what each can encrypt.",
    ),
    (
        "authority",
        "init serve enrol revoke show rotate client-key",
        "Set up, inspect and serve a key authority that aggregators reach over HTTPS.",
    ),
    (
        "flower",
        "new restored",
        "Create a Flower app that protects its clients' updates; restore a node from a backup.",
    ),
):
    app.add_typer(typer.Typer(name=_name, cls=_group(_commands, _name), help=_help, no_args_is_help=True))
