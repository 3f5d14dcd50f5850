"""Tasks by import path: how command lines and files name a user's own."""

from __future__ import annotations

import os
import sys
from importlib import import_module

from shieldfl.errors import ParameterError
from shieldfl.simulation.task import Task

__all__ = ["load_task"]


def load_task(path: str) -> Task:
    """Return the task that ``module:name`` names, or what the function of that name returns.

    The module is looked for in the folder that the process is in, too. Errors of the module itself pass through.
    Raises ParameterError for a path that leads to nothing, or to no task.
    """
    module_name, colon, name = path.partition(":")
    if not (colon and module_name and name):
        raise ParameterError(f"{path!r} is no MODULE:NAME: write my_app:task for what my_app.py calls task")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        # Not of what the module itself imports.
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise ParameterError(f"there is no module {module_name!r}, neither installed nor in {here}") from None
    if not hasattr(module, name):
        raise ParameterError(f"the module {module_name!r} has no {name!r}")
    found = getattr(module, name)
    task = found() if callable(found) else found
    if not isinstance(task, Task):
        raise ParameterError(
            f"{path} is no task, but {type(task).__name__}: make a shieldfl.Task, or a function that returns one"
        )
    return task
