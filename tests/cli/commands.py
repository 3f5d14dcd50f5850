"""The command line's own commands, for tests that look at their options."""

from __future__ import annotations

import click
import typer

from shieldfl.cli.app import app


def commands_of(*groups: str) -> dict[str, click.Command]:
    """Return the commands of a group, or of none, by name."""
    group = typer.main.get_command(app)
    for name in groups:
        group = group.get_command(click.Context(group), name)
    context = click.Context(group)
    return {name: group.get_command(context, name) for name in group.list_commands(context)}
