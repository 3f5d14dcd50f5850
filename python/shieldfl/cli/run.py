"""``shieldfl run``: train under one or several methods and compare what it cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import Meta

from shieldfl.build_info import require
from shieldfl.cli.console import JsonFile, is_stdout
from shieldfl.cli.failures import interruptible
from shieldfl.cli.options import given_settings, is_given, refuse_given, refused_as, with_options
from shieldfl.encryption.registry import encryptions
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.methods.registry import MethodSettings
from shieldfl.methods.selective_shield.method import SelectiveShieldSettings
from shieldfl.settings import Positive, Seed, Setting, Settings, Text, about, settings_of

if TYPE_CHECKING:
    from shieldfl.lab.simulation.compared_runs import PaperFigure

_BESIDE_FILE = tuple(setting.name for setting in settings_of(RunConfig).values() if setting.beside_file)


@dataclass(frozen=True)
class ComparedMethods(Settings):
    """What ``shieldfl run`` runs where no experiment file says it."""

    methods: Annotated[
        tuple[Text, ...],
        Meta(min_length=1),
        about(
            "Methods to run and compare, on the same data and from the same initial model. The end of "
            "this help lists them.",
            options=("--method",),
        ),
    ] = ("selective-shield",)
    scheme: Annotated[
        str | None,
        about(
            "Encryption scheme and packing of all methods with a choice; others keep theirs. A method "
            "that cannot use it is an error. Default: each method's own. For one method alone: "
            "--set METHOD.encryption=NAME.",
            choices=encryptions,
        ),
    ] = None
    sum_noise: Annotated[
        Positive | None,
        about(
            "Noise multiplier z of encrypted sums, for all methods. Each client adds a share before it "
            "encrypts. The shares of the fewest honest clients (min_clients less colluders) together "
            "have the standard deviation z x clip norm. A method without such noise is an error. "
            "Default: each method's own. For one method alone: --set METHOD.sum_noise_multiplier=Z, or "
            "ddp-fedavg.noise_multiplier=Z.",
        ),
    ] = None
    seeds: Annotated[
        tuple[Seed, ...],
        about(
            "Run once with each of these seeds, instead of --seed. Figures are then means ± the standard "
            "deviation over the seeds; methods are compared seed by seed.",
        ),
    ] = ()


Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="METHOD.NAME=VALUE",
        help="Setting of one method, such as sense-crypt.encryption=ckks. May be repeated. The pages in "
        "docs/reference/methods list all settings.",
        rich_help_panel="Other methods",
        show_default=False,
    ),
]

Report = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Folder for a report: index.html, result.json, tables and plots. With --seeds each seed's "
        "report is in seed-N, and the folder itself has only rounds.csv and runs.json.",
        file_okay=False,
        rich_help_panel="Output",
    ),
]


@with_options(
    (ComparedMethods, ""),
    (RunConfig, "Run"),
    (SelectiveShieldSettings, "SelectiveShield, without effect on other methods"),
    without=("encryption",),  # --scheme is for all methods
)
@interruptible()
def run(
    context: typer.Context,
    *,
    assignments: Assignments = None,
    experiment: Annotated[
        Path | None,
        typer.Option(
            "--experiment",
            metavar="FILE",
            help="Run what a TOML file says, and print what a paper measured beside it; of the other options "
            f"only --seeds, {', '.join('--' + name.replace('_', '-') for name in _BESIDE_FILE)} and those of "
            "the output go with it.",
            rich_help_panel="Experiments",
            show_default=False,
            dir_okay=False,
        ),
    ] = None,
    json_file: JsonFile = None,
    report: Report = None,
    all_figures: Annotated[
        bool,
        typer.Option(
            "--all-figures",
            help="Print every figure and note. Default: the figures that methods are compared by. Files "
            "always contain all. Not with --seeds.",
            rich_help_panel="Output",
        ),
    ] = False,
    audit: Annotated[
        bool,
        typer.Option(
            "--audit",
            help="After the run, attack what each method's aggregator receives, with iLRG (a count of "
            "labels). The attack uses separate federations of 4 clients with 8 samples and one step, "
            "a case that leaks much. Not with --seeds or --task. shieldfl audit has more attacks.",
            rich_help_panel="Output",
        ),
    ] = False,
    **settings: Any,
) -> None:
    """Train a federation with one or several protection methods; print accuracy, time, bytes and privacy.

    All methods use the same data, partition and initial model. The default data set, scikit-learn's digits,
    needs no download.
    """
    if experiment is not None:
        beside = (*_BESIDE_FILE, "experiment", "json_file", "report", "seeds", "all_figures", "audit")
        decided = context.params.keys() - set(beside)
        refuse_given(
            context, decided, "the experiment file sets it: leave the option out, or change the file"
        )
    compared = given_settings(ComparedMethods, settings)
    config = given_settings(RunConfig, settings) if experiment is None else RunConfig()
    shield = given_settings(SelectiveShieldSettings, settings)
    require_lab(report)
    methods: Sequence[str] = compared.methods
    papers: Sequence[PaperFigure] = ()
    if experiment is not None:
        from shieldfl.lab.simulation.compared_runs import load_experiment

        read = load_experiment(experiment)
        with refused_as(None):
            given = [name for name in _BESIDE_FILE if is_given(context, name)]
            config = replace(read.config, **{name: context.params[name] for name in given})
        methods, of_methods, papers = read.methods, read.settings, read.paper
        if read.title and not is_stdout(json_file):
            typer.echo(read.title)
    else:
        if config.dataset == "digits" and config.task is None:
            require("sklearn")
        of_methods = _settings_of_methods(MethodSettings(selective_shield=shield), compared, assignments)
    if audit and config.task is not None:
        raise typer.BadParameter("attacks are on data sets by name, and not on a task", param_hint="--audit")
    if compared.seeds:
        why = "it is for a run of one seed: leave it out, or --seeds"
        refuse_given(context, ("seed", "audit", "all_figures"), why)
    if config.task is not None:
        refuse_given(context, ("dataset",), "a task brings its own data: leave --dataset out")
    # torch takes seconds to load, and neither --help nor the other commands need it.
    from shieldfl.cli.run_session import Session

    Session(config, methods, of_methods, compared.seeds, papers, json_file, report, all_figures, audit).run()


def require_lab(report: Path | None) -> None:
    """Raise ModuleNotFoundError for what would be missed later, before anything that takes seconds."""
    for package in ("torch", "opacus", "dp_accounting", *(("matplotlib", "jinja2") if report else ())):
        require(package)


def _settings_of_methods(
    settings: MethodSettings, compared: ComparedMethods, assignments: Sequence[str] | None
) -> MethodSettings:
    """Return the settings with what ``--scheme``, ``--sum-noise`` and ``--set`` say.

    Raises typer.BadParameter.
    """
    if compared.scheme is not None:
        with refused_as("--scheme"):
            settings = settings.encrypted_by(compared.scheme, compared.methods)
    if compared.sum_noise is not None:
        with refused_as("--sum-noise"):
            settings = settings.with_sum_noise(compared.sum_noise, compared.methods)
    settings = apply_assignments(settings, assignments, compared.methods)
    for name in compared.methods if compared.sum_noise is not None else ():
        noise = settings.of(name).asked_noise
        if noise is None or noise.target_epsilon is not None:
            raise typer.BadParameter(
                f"{name} has other noise by --set: leave it out of one of both", param_hint="--sum-noise"
            )
    return settings


def apply_assignments(
    settings: MethodSettings, assignments: Sequence[str] | None, methods: Sequence[str]
) -> MethodSettings:
    for assignment in assignments or ():
        target, equals, text = assignment.partition("=")
        name, dot, field = target.strip().partition(".")
        if not (equals and dot):
            raise typer.BadParameter(f"{assignment!r} is no METHOD.NAME=VALUE", param_hint="--set")
        with refused_as("--set"):
            settings = settings.changed(name, {field: text.strip()}, read=Setting.read_text)
        if name not in methods:
            raise typer.BadParameter(f"{name} does not run: name it under --method too", param_hint="--set")
    return settings
