"""``shieldfl doctor``: whether this installation works on this machine."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from shieldfl.cli.doctor.diagnosis import diagnose, print_diagnosis
from shieldfl.cli.failures import failures_on_stderr, interruptible
from shieldfl.cli.json_output import JsonFile, is_stdout, write_json
from shieldfl.errors import ShieldError


def doctor(json_file: JsonFile = None) -> None:
    """Say whether all of it works on this machine: versions, instruction sets, packages, and a short self-test.

    Packages that are missing are no failure; what installs them is said. Exit code 1 when the self-test fails.
    """
    with interruptible(), failures_on_stderr():
        found = diagnose()
        write_json(found.to_json(), json_file)
        if not is_stdout(json_file):
            print_diagnosis(found)
        if found.problems:
            first, *more = found.problems
            raise ShieldError(f"{first}{f' (and {len(more)} more)' if more else ''}")


def doctor_alone(arguments: Sequence[str]) -> None:
    """Run the command where packages are missing that the others need."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(doctor)
    app(list(arguments), prog_name="shieldfl doctor")
