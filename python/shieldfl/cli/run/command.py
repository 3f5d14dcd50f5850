"""``shieldfl run``: train under one or several methods and compare what it cost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from shieldfl.build_info import require
from shieldfl.cli.failures import failures_on_stderr, interruptible
from shieldfl.cli.json_output import JsonFile, is_stdout
from shieldfl.cli.run import options
from shieldfl.cli.setting_options import given_settings, is_given, with_options
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.methods.selective_shield.settings import SelectiveShieldSettings
from shieldfl.methods.settings import MethodSettings

if TYPE_CHECKING:
    from shieldfl.lab.simulation.papers import PaperFigure


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
            from shieldfl.lab.simulation.papers import load_experiment

            read = load_experiment(experiment)
            config = options.with_overrides(read.config, overrides)
            if read.title and not is_stdout(json_file):
                typer.echo(read.title)
            what = config, read.methods, read.settings, settings["seeds"], read.paper
            _run(context, *what, json_file, report, all_figures, audit)
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
        asked = config, compared.methods, of_methods, compared.seeds, ()
        _run(context, *asked, json_file, report, all_figures, audit)


def _run(
    context: typer.Context,
    config: RunConfig,
    methods: Sequence[str],
    settings: MethodSettings,
    seeds: Sequence[int],
    papers: Sequence[PaperFigure],
    json_file: Path | None,
    report: Path | None,
    all_figures: bool,
    audit: bool,
) -> None:
    if audit and config.task is not None:
        raise typer.BadParameter("attacks are on data sets by name, and not on a task", param_hint="--audit")
    if seeds and is_given(context, "seed"):
        raise typer.BadParameter("give --seed or --seeds, and not both", param_hint="--seeds")
    if seeds and (audit or all_figures):
        raise typer.BadParameter("--audit and --all-figures are of one seed", param_hint="--seeds")
    # torch takes seconds to load, and neither --help nor the other commands need it.
    from shieldfl.cli.run.session import Session

    Session(config, methods, settings, seeds, papers, json_file, report, all_figures, audit).run()


def _require_packages(report: Path | None) -> None:
    """Raise ModuleNotFoundError for what a run would miss later, before anything that takes seconds."""
    for package in ("torch", "opacus", "dp_accounting", *(("matplotlib", "jinja2") if report else ())):
        require(package)
