"""What ``shieldfl run`` takes beside the settings that have options of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec import Meta

from shieldfl.cli.setting_options import is_given
from shieldfl.encryption.registry import encryptions
from shieldfl.errors import ParameterError
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.methods.settings import MethodSettings
from shieldfl.settings import Positive, Seed, Setting, Settings, Text, about, settings_of

_OVERRIDES = tuple(setting.name for setting in settings_of(RunConfig).values() if setting.beside_file)
_BESIDE = ("experiment", "json_file", "report", "seeds", "all_figures", "audit")


@dataclass(frozen=True)
class ComparedMethods(Settings):
    """What ``shieldfl run`` runs where no experiment file says it."""

    methods: Annotated[
        tuple[Text, ...],
        Meta(min_length=1),
        about(
            "Methods to run on the same data and initial model, compared side by side; "
            "all are listed at the end.",
            options=("--method",),
        ),
    ] = ("selective-shield",)
    scheme: Annotated[
        str | None,
        about(
            "The scheme of all methods that have a choice of it, and its packing; by default each has its own. "
            "Otherwise for one method: --set METHOD.encryption=NAME.",
            choices=encryptions,
        ),
    ] = None
    sum_noise: Annotated[
        Positive | None,
        about(
            "Noise on the sums of all methods, each of which must be able to: every client adds a share before it "
            "encrypts. What is given is the noise of the fewest honest clients' sum, over the norm that what each "
            "encrypts is clipped to. For one method, and more of it: --set METHOD.sum_noise_multiplier=Z and the like.",
        ),
    ] = None
    seeds: Annotated[
        tuple[Seed, ...],
        about(
            "Run everything once with each of these seeds: figures are then means, ± the standard deviation over the "
            "seeds, and differences are taken seed by seed. In the place of --seed.",
        ),
    ] = ()


Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="METHOD.NAME=VALUE",
        help="A setting of another method, such as sense-crypt.encryption=ckks; may be repeated. "
        "The methods' pages under docs/methods list them.",
        rich_help_panel="Other methods",
        show_default=False,
    ),
]

ExperimentFile = Annotated[
    Path | None,
    typer.Option(
        "--experiment",
        metavar="FILE",
        help="Run what a TOML file says, and print what a paper measured beside it; of the other options only "
        f"{', '.join('--' + name.replace('_', '-') for name in _OVERRIDES)} and those of the output go with it.",
        rich_help_panel="Experiments",
        show_default=False,
        dir_okay=False,
    ),
]

AllFigures = Annotated[
    bool,
    typer.Option(
        "--all-figures",
        help="Print every figure and note. By default, what methods are compared by; files have all.",
        rich_help_panel="Output",
    ),
]

Audited = Annotated[
    bool,
    typer.Option(
        "--audit",
        help="Then attack, under each method, what the aggregator receives, by iLRG on labels: of other federations, "
        "of 4 clients with 8 samples and one step, which tell it most. shieldfl audit attacks more.",
        rich_help_panel="Output",
    ),
]

Report = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Write result.json, tables, plots and a page that holds everything (index.html) to this folder.",
        file_okay=False,
        rich_help_panel="Output",
    ),
]


def apply_to_all(settings: MethodSettings, compared: ComparedMethods) -> MethodSettings:
    """Return the settings with what ``--scheme`` and ``--sum-noise`` ask of all methods.

    Raises typer.BadParameter where one refuses it.
    """
    if compared.scheme is not None:
        with _refused_as("--scheme"):
            settings = settings.encrypted_by(compared.scheme, compared.methods)
    if compared.sum_noise is not None:
        with _refused_as("--sum-noise"):
            settings = settings.with_sum_noise(compared.sum_noise, compared.methods)
    return settings


@contextmanager
def _refused_as(option: str) -> Iterator[None]:
    try:
        yield
    except ParameterError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def check_sum_noise(settings: MethodSettings, compared: ComparedMethods) -> None:
    """Raise typer.BadParameter where a setting of one method takes the place of the noise that ``--sum-noise`` says."""
    for name in compared.methods if compared.sum_noise is not None else ():
        entry = settings.of(name)
        if entry.asked_noise is None or entry.asked_noise.target_epsilon is not None:
            raise typer.BadParameter(
                f"{name} has other noise by --set: leave it out of one of both", param_hint="--sum-noise"
            )


def apply_assignments(
    settings: MethodSettings, assignments: Sequence[str], methods: Sequence[str]
) -> MethodSettings:
    """Return the settings with what ``--set`` says, one by one.

    Raises typer.BadParameter for a wrong one, and for a method that is none of those that run.
    """
    for assignment in assignments:
        target, equals, text = assignment.partition("=")
        name, dot, field = target.strip().partition(".")
        if not (equals and dot):
            raise typer.BadParameter(f"{assignment!r} is no METHOD.NAME=VALUE", param_hint="--set")
        try:
            settings = settings.changed(name, {field: text.strip()}, read=Setting.read_text)
        except ParameterError as error:
            raise typer.BadParameter(str(error), param_hint="--set") from None
        if name not in methods:
            raise typer.BadParameter(f"{name} does not run: name it under --method too", param_hint="--set")
    return settings


def overrides_of(context: typer.Context) -> dict[str, Any]:
    """Return what the command line says instead of an experiment file, by the name of the run's setting.

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


def with_overrides(config: RunConfig, overrides: dict[str, Any]) -> RunConfig:
    """Return a file's run with what the command line says instead. Raises typer.BadParameter for what is refused."""
    try:
        return replace(config, **overrides)
    except ParameterError as error:
        raise typer.BadParameter(str(error)) from None
