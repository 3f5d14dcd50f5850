"""``shieldfl run``: train under one or several methods and compare what it cost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from shieldfl.cli.failures import failures_on_stderr, interruptible
from shieldfl.cli.json_output import JsonFile, is_stdout
from shieldfl.cli.run import options
from shieldfl.cli.run.output import Output
from shieldfl.cli.setting_options import given_settings, with_options
from shieldfl.installing import require
from shieldfl.methods.selective_shield.settings import SelectiveShieldSettings
from shieldfl.methods.settings import MethodSettings
from shieldfl.simulation.config import RunConfig

__all__ = ["run"]


@with_options(
    (options.ComparedMethods, ""),
    (RunConfig, "Run"),
    (SelectiveShieldSettings, "SelectiveShield"),
    without=("encryption",),  # --scheme is for all methods
)
def run(
    context: typer.Context,
    *,
    assignments: options.Assignments = None,
    experiment: options.ExperimentFile = None,
    json_file: JsonFile = None,
    report: options.Report = None,
    all_figures: options.AllFigures = False,
    audit: options.Audited = False,
    **settings: Any,
) -> None:
    """Train a federation of clients on real data, under protection, and print what it reached and cost.

    Several methods run on the same data, partition and initial model. The default data set, scikit-learn's
    digits, needs no download.
    """
    if experiment is not None:
        overrides = options.overrides_of(context)
        with interruptible(), failures_on_stderr():
            _require_packages(report)
            from shieldfl.simulation.experiment import load_experiment

            read = load_experiment(experiment)
            config = options.with_overrides(read.config, overrides)
            if read.title and not is_stdout(json_file):
                typer.echo(read.title)
            output = Output(json_file, report, all_figures, audit, read.paper)
            _run(context, settings["seeds"], config, read.methods, read.settings, output)
        return
    compared = given_settings(options.ComparedMethods, settings)
    config = given_settings(RunConfig, settings)
    shield = given_settings(SelectiveShieldSettings, settings)
    with interruptible(), failures_on_stderr():
        _require_packages(report)
        if config.dataset == "digits" and config.task is None:
            require("sklearn")
        given = options.apply_to_all(MethodSettings(selective_shield=shield), compared)
        of_methods = options.apply_assignments(given, assignments or (), compared.methods)
        options.check_sum_noise(of_methods, compared)
        output = Output(json_file, report, all_figures, audit)
        _run(context, compared.seeds, config, compared.methods, of_methods, output)


def _run(
    context: typer.Context,
    seeds: Sequence[int],
    config: RunConfig,
    methods: Sequence[str],
    settings: MethodSettings,
    output: Output,
) -> None:
    """Run once, or once for each seed."""
    if output.audit and config.task is not None:
        raise typer.BadParameter("attacks are on data sets by name, and not on a task", param_hint="--audit")
    # torch takes seconds to load, and neither --help nor the other commands need it.
    if seeds:
        options.check_one_seed(context)
        if output.audit or output.all_figures:
            raise typer.BadParameter("--audit and --all-figures are of one seed", param_hint="--seeds")
        from shieldfl.cli.run.seeded_session import run_seeded_session

        run_seeded_session(seeds, config, methods, settings, output.json_file, output.report, output.papers)
    else:
        from shieldfl.cli.run.session import run_session

        run_session(config, methods, settings, output)


def _require_packages(report: Path | None) -> None:
    """Raise ModuleNotFoundError for what a run would miss later, before anything that takes seconds."""
    require("torch")
    require("opacus")
    require("dp_accounting")
    if report is not None:
        require("matplotlib")
        require("jinja2")
