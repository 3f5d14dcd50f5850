"""Commands that are imported when they are asked for: importing all takes longer than most of them do."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import ClassVar

import click
import typer
from typer.core import TyperCommand, TyperGroup

__all__ = ["CommandsOnDemand"]


class CommandsOnDemand(TyperGroup):
    """A group whose commands stand in modules of their own; those that were added to it come after."""

    places: ClassVar[Mapping[str, str]] = {}
    """By a command's name: its module and its function, ``module:function``."""
    classes: ClassVar[Mapping[str, type[TyperCommand]]] = {}
    """Of the commands that are more than a ``TyperCommand``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names, without importing anything."""
        return [*self.places, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command. Raises ModuleNotFoundError for a package that it needs."""
        if cmd_name not in self.places:
            return super().get_command(ctx, cmd_name)
        module, function = self.places[cmd_name].split(":")
        alone = typer.Typer(add_completion=False)
        kind = self.classes.get(cmd_name, TyperCommand)
        alone.command(cmd_name, cls=kind)(getattr(import_module(module), function))
        return typer.main.get_command(alone)
