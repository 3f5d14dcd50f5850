"""``shieldfl audit``: attack what each party really gets, and print what the attacks got beside chance."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec import Meta

from shieldfl.build_info import require
from shieldfl.cli.failures import failures_on_stderr, interruptible, kind_of_interruption
from shieldfl.cli.json_output import JsonFile, is_stdout, write_json
from shieldfl.cli.run.options import Assignments, Report, apply_assignments
from shieldfl.cli.setting_options import given_settings, is_given, with_options
from shieldfl.errors import ParameterError, ShieldError
from shieldfl.lab.audit.audit_config import AuditConfig, EpsilonConfig
from shieldfl.lab.report.output_files import kept_folder
from shieldfl.methods.discovery import checked_methods, method_names, names_with_epsilon
from shieldfl.methods.settings import MethodSettings
from shieldfl.settings import Settings, Text, about, settings_of


@dataclass(frozen=True)
class Attacked(Settings):
    """What ``shieldfl audit`` attacks, with what, and for whom."""

    methods: Annotated[
        tuple[Text, ...],
        about(
            "Methods to attack; by default all. Plain averaging (fedavg) always goes along, as what defends nothing.",
            options=("--method",),
        ),
    ] = ()
    attacks: Annotated[
        tuple[Text, ...],
        Meta(min_length=1),
        about(
            "ilrg counts labels, in milliseconds. dlg, idlg and inverting search for images, which takes seconds for "
            "each. robbing-the-fed and curious-abandon-honesty are of a server that chooses the first model. "
            "label-distribution looks at what is clear beside updates, such as masks and sizes, and membership at the "
            "last model; both run federations of their own. lone-total, few-total, second-total, late-total, "
            "invented-clients and tampered-ciphertext are lies of an aggregator to the method's own roles.",
            options=("--attack",),
        ),
    ] = ("ilrg",)
    parties: Annotated[
        tuple[Text, ...],
        Meta(min_length=1),
        about(
            "Who looks: aggregator, client (one of the others), other-clients (all but the victim), authority, "
            "aggregator-and-client, network (there is no TLS), outsider (who gets the last model).",
            options=("--party",),
        ),
    ] = ("aggregator", "client", "other-clients", "authority", "aggregator-and-client", "network")
    epsilon: Annotated[
        bool,
        about(
            "In the place of attacks on data: measure what epsilon must at least be, beside what each method with an "
            "epsilon claims. Ends with exit code 1 where a claim is below."
        ),
    ] = False


@with_options((Attacked, "Attacks"), (EpsilonConfig, "Epsilon"), (AuditConfig, "Audit"))
def audit(
    context: typer.Context,
    *,
    assignments: Assignments = None,
    json_file: JsonFile = None,
    report: Report = None,
    **settings: Any,
) -> None:
    """Attack what each party of a federation really gets, and print what it learns of clients' data beside chance.

    Every method runs on real data with all messages recorded; attacks see what a party got, and nothing else. An attack
    that fails proves nothing: a better one may not. What was not attacked is said to be so, and never called safe.
    With --epsilon, methods run on canaries, and a bound that lies below a claim proves nothing either.
    """
    attacked = given_settings(Attacked, settings)
    config = given_settings(AuditConfig, settings)
    measurement = given_settings(EpsilonConfig, settings)
    _check_together(context, attacked)
    with interruptible(), failures_on_stderr():
        for package in ("torch", "opacus", "dp_accounting", "scipy"):
            require(package)
        if report is not None:
            require("matplotlib")
            require("jinja2")
        if attacked.epsilon:
            methods = _named(attacked.methods or names_with_epsilon(method_names()))
            given = apply_assignments(MethodSettings(), assignments or (), methods)
            _measure(config, measurement, methods, given, json_file)
            return
        methods = _named(attacked.methods or method_names())
        given = apply_assignments(MethodSettings(), assignments or (), methods)
        _run(config, attacked, methods, given, json_file, report)


_OF_ATTACKS = {
    **{"report": "--report", "attacks": "--attack", "parties": "--party"},
    **{
        name.replace("-", "_"): "--" + name
        for name in ("dataset", "data-dir", "model", "samples", "learning-rate", "trials", "folder", "resume")
    },
}
"""Parameters of attacks on data, and their options."""


def _check_together(context: typer.Context, attacked: Attacked) -> None:
    """Raise typer.BadParameter for options that the others leave without a use."""
    for name, option in _OF_ATTACKS.items():
        if attacked.epsilon and is_given(context, name):
            raise typer.BadParameter(
                "it goes with attacks on data, and not with --epsilon", param_hint=option
            )
    for setting in settings_of(EpsilonConfig).values():
        if not attacked.epsilon and is_given(context, setting.name):
            option = "--" + setting.name.replace("_", "-")
            raise typer.BadParameter("it goes with --epsilon", param_hint=option)


def _named(methods: Sequence[str]) -> tuple[str, ...]:
    try:
        return checked_methods(methods)
    except ParameterError as error:
        raise typer.BadParameter(str(error), param_hint="--method") from None


def _measure(
    config: AuditConfig,
    measurement: EpsilonConfig,
    methods: tuple[str, ...],
    settings: MethodSettings,
    json_file: Path | None,
) -> None:
    """Measure, print and write what came of it, also of a measurement that is interrupted.

    Raises DisprovedError, after that, where a claim is too low; KeyboardInterrupt.
    """
    from shieldfl.cli.audit.output import AuditProgress, print_epsilons
    from shieldfl.lab.audit.attack import AuditInterrupted
    from shieldfl.lab.audit.epsilon import check_claims, measure_epsilons

    stopped: AuditInterrupted | None = None
    try:
        with AuditProgress(config.budget_minutes) as progress:
            result = measure_epsilons(config, measurement, methods, settings, progress)
    except AuditInterrupted as error:
        stopped, result = error, error.result
    write_json(result.to_json(), json_file)
    if not is_stdout(json_file):
        print_epsilons(result)
    if stopped is not None:
        kind = kind_of_interruption(stopped)
        raise kind(f"{stopped}: what was measured by then is kept") from stopped
    check_claims(result)


def _run(
    config: AuditConfig,
    attacked: Attacked,
    methods: Sequence[str],
    settings: MethodSettings,
    json_file: Path | None,
    report: Path | None,
) -> None:
    # torch takes seconds to load, and --help does not need it.
    from shieldfl.cli.audit.output import AuditProgress, print_audit
    from shieldfl.lab.audit.attack import NOT_TRIED, AuditInterrupted, usable_attacks
    from shieldfl.lab.audit.session import run_audit
    from shieldfl.lab.audit.views.view import party_named

    for names, check, option in (
        (attacked.attacks, usable_attacks, "--attack"),
        (attacked.parties, lambda found: [party_named(one) for one in found], "--party"),
    ):
        try:
            check(names)
        except ParameterError as error:
            raise typer.BadParameter(str(error), param_hint=option) from None
    with nullcontext() if report is None else kept_folder(report):
        stopped: AuditInterrupted | None = None
        try:
            with AuditProgress(config.budget_minutes) as progress:
                result = run_audit(config, methods, attacked.attacks, attacked.parties, settings, progress)
        except AuditInterrupted as error:
            stopped, result = error, error.result
        write_json(result.to_json(), json_file)
        if report is not None:
            from shieldfl.lab.report.audit_report import write_report

            page = write_report(result, report)[-1]
            if sys.stderr.isatty():
                typer.echo(f"report: {page}", err=True)
    if not is_stdout(json_file):
        print_audit(result)
    if stopped is None and all(cell.status in NOT_TRIED for cell in result.cells):
        raise ShieldError(f"nothing was attacked: {(*result.notes, result.cells[0].reason)[0]}")
    if stopped is not None:
        kind = kind_of_interruption(stopped)
        how = "" if config.folder is None else "; the same command with --resume goes on from the folder"
        raise kind(f"{stopped}: what was attacked by then is kept{how}") from stopped
