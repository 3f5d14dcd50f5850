"""``shieldfl profile calibrate``: what the steps of a round take on this machine."""

from __future__ import annotations

from functools import partial
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import typer

from shieldfl.cli.bench.command import Threads, parse_counts, progress_of
from shieldfl.cli.failures import failures_on_stderr
from shieldfl.cli.json_output import JsonFile, checked_output, is_stdout, write_json
from shieldfl.cli.profile.options import parse_names
from shieldfl.errors import ParameterError
from shieldfl.fleet.costs.calibration import CalibrationSettings
from shieldfl.fleet.costs.calibration import calibrate as measure
from shieldfl.scheme.registry import KEY_SIZES, calibrations

__all__ = ["calibrate"]

_QUICK = {"values": 10_000, "slow_ciphertexts": 2, "seconds": 0.0}
_ALL_SCHEMES = ",".join(calibrations())
_SAMPLE_SHAPE = ",".join(map(str, CalibrationSettings.sample_shape))
_of_training = partial(typer.Option, rich_help_panel="Training step")


def _checked_size(key_bits: int) -> int:
    if key_bits not in KEY_SIZES:
        raise typer.BadParameter(f"choose one of {', '.join(map(str, KEY_SIZES))}")
    return key_bits


def calibrate(
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
    scheme: Annotated[
        Any,
        typer.Option(metavar="NAME,...", parser=parse_names, help="Schemes to measure."),
    ] = _ALL_SCHEMES,
    threads: Threads = None,
    values: Annotated[int, typer.Option(help="Values of an update.")] = CalibrationSettings.values,
    key_bits: Annotated[
        int,
        typer.Option(callback=_checked_size, help=f"Paillier's key size: {', '.join(map(str, KEY_SIZES))}."),
    ] = CalibrationSettings.key_bits,
    model: Annotated[
        str | None,
        _of_training(help="Measure a training step of mlp, simple-cnn or linear too; needs torch."),
    ] = None,
    sample_shape: Annotated[
        Any, _of_training(metavar="INT,...", parser=parse_counts, help="Shape of one sample.")
    ] = _SAMPLE_SHAPE,
    classes: Annotated[int, _of_training(help="Classes of the model.")] = CalibrationSettings.classes,
    batch_size: Annotated[
        int, _of_training(help="Samples of a training step.")
    ] = CalibrationSettings.batch_size,
    other_sets: Annotated[
        bool,
        typer.Option(
            help="Measure encryption with the instruction sets below this processor's best too, for clients that "
            "state theirs."
        ),
    ] = True,
    quick: Annotated[
        bool, typer.Option("--quick", help="Few values and repetitions: shows that it works, not how fast.")
    ] = False,
    json_file: JsonFile = None,
) -> None:
    """Measure what encrypting, adding, opening, scoring and selecting take on this machine.

    Takes some minutes, half of them for other instruction sets. Every opened sum is checked. --json writes the
    same profile as --output does.
    """
    chosen = {
        "schemes": scheme,
        "threads": threads,
        "values": values,
        "key_bits": key_bits,
        "model": model,
        "sample_shape": sample_shape,
        "classes": classes,
        "batch_size": batch_size,
        "other_sets": other_sets and not quick,
    }
    try:
        settings = CalibrationSettings(**(chosen | (_QUICK if quick else {})))
        settings.thread_counts()
    except ParameterError as error:
        raise typer.BadParameter(str(error)) from None
    with failures_on_stderr():
        done = count()
        with progress_of(1 + len(settings.schemes) + settings.other_sets + (model is not None)) as show:
            profile = measure(settings, on_step=lambda step: show(next(done), step))
        if output is not None:
            profile.save(output)
        write_json(profile.to_json(), json_file)
        if not is_stdout(json_file):
            from shieldfl.cli.profile.table import print_profile
            from shieldfl.cli.result_console import result_console

            print_profile(profile, result_console())
