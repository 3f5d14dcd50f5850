"""``shieldfl profile calibrate``: what the steps of a round take on this machine."""

from __future__ import annotations

import time
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import typer

from shieldfl.cli.bench.command import progress_of
from shieldfl.cli.failures import failures_on_stderr
from shieldfl.cli.json_output import JsonFile, checked_output, is_stdout, write_json
from shieldfl.cli.setting_options import given_settings, where_not_given, with_options
from shieldfl.fleet.costs.calibration import CalibrationSettings
from shieldfl.fleet.costs.calibration import calibrate as measure
from shieldfl.reporting.quantities import seconds_text

__all__ = ["calibrate"]

_QUICK = {"values": 10_000, "slow_ciphertexts": 2, "seconds": 0.0, "other_sets": False}


@with_options((CalibrationSettings, ""))
def calibrate(
    context: typer.Context,
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel="Output",
            callback=checked_output,
            dir_okay=False,
            help="Write the device profile, the file that --profile of the other commands reads.",
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Few values and repetitions, and this processor's best instruction set alone, where no option says "
            "otherwise: shows that it works, not how fast.",
        ),
    ] = False,
    json_file: JsonFile = None,
    **settings: Any,
) -> None:
    """Measure what encrypting, adding, opening, scoring and selecting take on this machine.

    Takes some minutes, half of them for other instruction sets, and says how long it took: --seconds, of each figure,
    shortens it. Every opened sum is checked. --json writes the same profile as --output does.
    """
    few = where_not_given(context, _QUICK) if quick else {}
    chosen = given_settings(CalibrationSettings, settings | few)
    with failures_on_stderr():
        done, begin = count(), time.monotonic()
        steps = 1 + len(chosen.schemes) + chosen.other_sets + (chosen.model is not None)
        with progress_of(steps) as show:
            profile = measure(chosen, on_step=lambda step: show(next(done), step))
        if output is not None:
            profile.save(output)
        write_json(profile.to_json(), json_file)
        if not is_stdout(json_file):
            from shieldfl.cli.profile.table import print_profile
            from shieldfl.cli.result_console import result_console

            console = result_console()
            print_profile(profile, console)
            console.print(f"Measured in {seconds_text(time.monotonic() - begin)}.")
