"""``--set METHOD.FIELD=VALUE``: the settings of methods that have no options of their own."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from typing import Any

import typer

from shieldfl.errors import ParameterError
from shieldfl.methods.settings import MethodSettings

__all__ = ["apply_assignments"]


def apply_assignments(
    settings: MethodSettings, assignments: Sequence[str], methods: Sequence[str]
) -> MethodSettings:
    """Return the settings with the assignments made one by one.

    Raises typer.BadParameter for a wrong one, and for a method that is none of those that run.
    """
    for assignment in assignments:
        target, equals, text = assignment.partition("=")
        name, dot, field = target.strip().partition(".")
        if not (equals and dot):
            raise typer.BadParameter(f"{assignment!r} is no METHOD.FIELD=VALUE", param_hint="--set")
        try:
            settings = settings.changed(name, {field: _value_of(text.strip())})
        except ParameterError as error:
            raise typer.BadParameter(str(error), param_hint="--set") from None
        if name not in methods:
            raise typer.BadParameter(f"{name} does not run: name it under --method too", param_hint="--set")
    return settings


def _value_of(text: str) -> Any:
    """Read a number, a list, true or false as TOML does, and anything else as a text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
