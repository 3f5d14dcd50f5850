"""``shieldfl audit``: attack what each party really gets, and print what the attacks got beside chance."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import Meta
from rich.text import Text as Words

from shieldfl.cli.console import JsonFile, ResultConsole, audit_progress, is_stdout, result_table, write_json
from shieldfl.cli.failures import interruptible
from shieldfl.cli.options import given_settings, refuse_given, refused_as, with_options
from shieldfl.cli.run import Assignments, Report, apply_assignments, require_lab
from shieldfl.errors import ShieldError
from shieldfl.lab.audit.audit_config import AuditConfig, EpsilonConfig
from shieldfl.lab.report.output_files import kept_folder
from shieldfl.methods.registry import MethodSettings, checked_methods, method_names, names_with_epsilon
from shieldfl.settings import Settings, Text, about, settings_of

if TYPE_CHECKING:
    # torch takes seconds to load, and --help does not need it.
    from shieldfl.lab.audit.attack import AuditResult, Cell
    from shieldfl.lab.audit.epsilon import EpsilonResult

_COLOURS = {
    "all": "bold red",
    "some": "yellow",
    "chance": "blue",  # green would read as safe
    "too few trials": "dim",
    "not attacked": "dim",
}


@dataclass(frozen=True)
class Attacked(Settings):
    """What ``shieldfl audit`` attacks, with what, and for whom."""

    methods: Annotated[
        tuple[Text, ...],
        about(
            "Methods to attack; default: all. Plain averaging (fedavg) is always attacked too, for "
            "comparison.",
            options=("--method",),
        ),
    ] = ()
    attacks: Annotated[
        tuple[Text, ...],
        Meta(min_length=1),
        about(
            "Attacks to run. ilrg counts labels and takes milliseconds. dlg, idlg and inverting "
            "reconstruct images and take seconds an image. In robbing-the-fed and "
            "curious-abandon-honesty the server chooses the first model. label-distribution uses what is "
            "sent in the clear beside updates, such as masks and sizes. membership uses the last model. "
            "These two run federations of their own. In lone-total, few-total, second-total, late-total, "
            "invented-clients and tampered-ciphertext the aggregator lies to the other roles.",
            options=("--attack",),
        ),
    ] = ("ilrg",)
    parties: Annotated[
        tuple[Text, ...],
        Meta(min_length=1),
        about(
            "Attackers: aggregator, client (one client other than the victim), other-clients (all "
            "clients but the victim), authority (the key authority), aggregator-and-client, network "
            "(reads all traffic, without TLS), outsider (gets the last model).",
            options=("--party",),
        ),
    ] = ("aggregator", "client", "other-clients", "authority", "aggregator-and-client", "network")
    epsilon: Annotated[
        bool,
        about(
            "Instead of attacking data, measure a lower bound on epsilon and compare it with each "
            "method's claim. The exit code is 1 if a claim lies below its bound."
        ),
    ] = False


@with_options((Attacked, "Attacks"), (EpsilonConfig, "Epsilon"), (AuditConfig, "What is attacked"))
@interruptible()
def audit(
    context: typer.Context,
    *,
    assignments: Assignments = None,
    json_file: JsonFile = None,
    report: Report = None,
    **settings: Any,
) -> None:
    """Attack what each party of a federation receives; print what it learns about client data, beside chance.

    Every method runs on real data. All messages are recorded; an attack sees only what its party received.
    A failed attack proves nothing: a better one may succeed. The result names what was not attacked and never
    calls it safe. With --epsilon, methods run on canaries; a lower bound below a claim proves nothing either.
    """
    attacked = given_settings(Attacked, settings)
    config = given_settings(AuditConfig, settings)
    measurement = given_settings(EpsilonConfig, settings)
    if attacked.epsilon:
        refuse_given(context, _OF_ATTACKS, "it goes with attacks on data, and not with --epsilon")
    else:
        refuse_given(context, settings_of(EpsilonConfig), "it goes with --epsilon")
    require_lab(report)
    every = names_with_epsilon(method_names()) if attacked.epsilon else method_names()
    with refused_as("--method"):
        methods = checked_methods(attacked.methods or every)
    given = apply_assignments(MethodSettings(), assignments, methods)
    if not attacked.epsilon:
        _attack(config, attacked, methods, given, json_file, report)
        return
    from shieldfl.lab.audit.attack import AuditInterrupted
    from shieldfl.lab.audit.epsilon import check_claims, measure_epsilons

    stopped: AuditInterrupted | None = None
    with audit_progress(config.budget_minutes) as tell:
        try:
            result = measure_epsilons(config, measurement, methods, given, tell)
        except AuditInterrupted as error:
            stopped, result = error, error.result
    if write_json(result.to_json(), json_file):
        _print_epsilons(result)
    if stopped is not None:
        raise KeyboardInterrupt(f"{stopped}: what was measured by then is kept") from stopped
    check_claims(result)


_OF_ATTACKS = (
    *("report", "attacks", "parties", "dataset", "data_dir", "model", "samples", "learning_rate", "trials"),
    *("folder", "resume"),
)
"""Names of the parameters of attacks on data."""


def _attack(
    config: AuditConfig,
    attacked: Attacked,
    methods: Sequence[str],
    settings: MethodSettings,
    json_file: Path | None,
    report: Path | None,
) -> None:
    """Attack, then print and write the results, also of an audit that is interrupted."""
    from shieldfl.lab.audit.attack import NOT_TRIED, AuditInterrupted, usable_attacks
    from shieldfl.lab.audit.session import run_audit
    from shieldfl.lab.audit.views.view import party_named

    with refused_as("--attack"):
        usable_attacks(attacked.attacks)
    with refused_as("--party"):
        tuple(map(party_named, attacked.parties))
    with nullcontext() if report is None else kept_folder(report):
        stopped: AuditInterrupted | None = None
        with audit_progress(config.budget_minutes) as tell:
            try:
                result = run_audit(config, methods, attacked.attacks, attacked.parties, settings, tell)
            except AuditInterrupted as error:
                stopped, result = error, error.result
        write_json(result.to_json(), json_file)
        if report is not None:
            from shieldfl.lab.report.audit_report import write_report

            page = write_report(result, report)[-1]
            if sys.stderr.isatty():
                typer.echo(f"report: {page}", err=True)
    if not is_stdout(json_file):
        _print_audit(result)
    if stopped is not None:
        how = "" if config.folder is None else "; the same command with --resume continues from the folder"
        raise KeyboardInterrupt(f"{stopped}: what was attacked by then is kept{how}") from stopped
    if all(cell.status in NOT_TRIED for cell in result.cells):
        raise ShieldError(f"nothing was attacked: {(*result.notes, result.cells[0].reason)[0]}")


def _print_audit(result: AuditResult) -> None:
    from shieldfl.lab.report.audit_report import attack_tables, notes_of

    console = ResultConsole()
    console.print(f"{result.dataset}; {result.model}; {result.seconds:.0f} s")
    for attack in attack_tables(result):
        measured = attack.measured_by or "no figure"
        console.say(f"\n{attack.attack}: {measured} (what a guess without the update has), n tries")
        table = result_table(["method", *attack.parties])
        for method in attack.methods:
            table.add_row(method, *(_shown(result, cell) for cell in attack.of_method(method)))
        console.print(table)
    console.say(
        "all: as much as under plain averaging; some: above chance, by the 95 % interval; chance: this "
        "attack found no more than a guess, which proves nothing about other attacks; nothing received: "
        "this party got nothing of any update. A figure is that of the strongest of several forms, and so "
        "lies above chance by chance "
        "as well.",
        *(f"- {note}" for note in notes_of(result)),
    )


def _shown(result: AuditResult, cell: Cell) -> Words:
    from shieldfl.lab.report.audit_report import figure_text, word

    figure = f"{figure_text(cell)} n={cell.tries} " if cell.status == "attacked" else ""
    return Words(figure + word(result, cell), style=_COLOURS[result.verdict(cell)])


def _print_epsilons(result: EpsilonResult) -> None:
    console = ResultConsole()
    rounds, clients = result.federation["rounds"], result.federation["clients"]
    length = "1 round" if rounds == 1 else f"{rounds} rounds"
    console.print(f"federations of {clients} clients, {length}; {result.seconds:.0f} s")
    heads = ("method", "unit", "adversary", "claimed ε", "at δ", "measured ε ≥", "canaries")
    table = result_table(heads, words=("unit", "adversary"))
    for claim in result.claims:
        if (bound := claim.bound) is not None:
            figures = (f"{bound.claimed:.2f}", f"{bound.delta:g}", f"{bound.at_least:.2f}")
            table.add_row(claim.method, bound.unit, claim.adversary or "", *figures, f"{claim.canaries:,}")
    if table.rows:
        console.print(table)
        console.say(
            "measured: what ε must at least be, at 95 % confidence, by guesses of the aggregator, or of a "
            "client where that reads ciphertexts alone, which canaries were there. Where a claim is true, "
            "the chance of a figure above it is 5 % at most, for each method. A figure below a claim proves "
            "nothing: a better guess may lie above."
        )
    unmeasured = (claim for claim in result.claims if claim.bound is None)
    console.say(*(f"- {claim.method}: {claim.status}: {claim.reason}" for claim in unmeasured))
