"""Commands that are imported when they are asked for: importing all takes longer than most of them do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any, ClassVar

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

    def __init__(self, *, commands: dict[str, click.Command] | None = None, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Commands(self.places, self.classes, commands or {})


class _Commands(MutableMapping[str, click.Command]):
    """Names, which are all there; the command of a name is imported when it is read."""

    def __init__(
        self,
        places: Mapping[str, str],
        classes: Mapping[str, type[TyperCommand]],
        added: Mapping[str, click.Command],
    ) -> None:
        self._classes = classes
        self._known: dict[str, str | click.Command] = {**places, **added}

    def __getitem__(self, name: str) -> click.Command:
        known = self._known[name]
        if isinstance(known, str):
            module, function = known.split(":")
            # Of an application with one command and no options before it, typer makes that command alone.
            alone = typer.Typer(add_completion=False)
            alone.command(name, cls=self._classes.get(name, TyperCommand))(
                getattr(import_module(module), function)
            )
            known = self._known[name] = typer.main.get_command(alone)
        return known

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._known[name] = command

    def __delitem__(self, name: str) -> None:
        del self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)
