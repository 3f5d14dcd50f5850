"""Which options go with ``--experiment``: a file that says everything, but for where and how it is run."""

from __future__ import annotations

from typing import Any

import typer

from shieldfl.cli.given_options import is_given

__all__ = ["overrides_of"]

_OVERRIDES = ("data_dir", "synthetic_data", "rounds", "seed", "threads")
_BESIDE = ("experiment", "json_file", "report")


def overrides_of(context: typer.Context) -> dict[str, Any]:
    """Return what the command line says instead of the file, by the name of the run's field.

    Raises typer.BadParameter for an option that the file alone decides.
    """
    given = [name for name in context.params if is_given(context, name)]
    for name in given:
        if name not in (*_OVERRIDES, *_BESIDE):
            option = next(one for one in context.command.params if one.name == name).opts[0]
            raise typer.BadParameter(
                f"the file decides what {option} would: leave it out, or change the file",
                param_hint="--experiment",
            )
    return {name: context.params[name] for name in given if name in _OVERRIDES}
