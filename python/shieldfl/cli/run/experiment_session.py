"""What ``shieldfl run --experiment FILE`` does once its options are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from shieldfl.cli.json_output import is_stdout
from shieldfl.cli.run.session import run_session
from shieldfl.errors import ParameterError
from shieldfl.simulation.experiment import load_experiment

__all__ = ["run_experiment"]


def run_experiment(
    path: Path, overrides: Mapping[str, Any], json_file: Path | None, report_folder: Path | None
) -> None:
    """Run the file's methods and print ours beside the paper's. Raises ShieldError, OSError."""
    experiment = load_experiment(path)
    try:
        config = replace(experiment.config, **overrides)
    except ParameterError as error:
        raise typer.BadParameter(str(error)) from None
    if experiment.title and not is_stdout(json_file):
        typer.echo(experiment.title)
    run_session(config, experiment.methods, experiment.settings, json_file, report_folder, experiment.paper)
