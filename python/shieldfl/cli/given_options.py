"""Whether somebody has given an option, or it has its default."""

from __future__ import annotations

import typer

__all__ = ["is_given"]


def is_given(context: typer.Context, name: str) -> bool:
    """Say whether the parameter of this name was given, be it with the value that it has by default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"
