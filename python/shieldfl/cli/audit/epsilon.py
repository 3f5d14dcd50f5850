"""``shieldfl audit --epsilon``: what each method's epsilon must at least be, beside what it claims."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from shieldfl.audit.audit_config import AuditConfig, EpsilonConfig
from shieldfl.cli.audit.progress import AuditProgress
from shieldfl.cli.failures import kind_of_interruption
from shieldfl.cli.json_output import is_stdout, write_json
from shieldfl.cli.result_console import result_console, result_table
from shieldfl.methods.settings import MethodSettings

if TYPE_CHECKING:
    from shieldfl.audit.epsilon.claims import ClaimedEpsilon, EpsilonResult

__all__ = ["measure"]

_HEADS = ("method", "unit", "adversary", "claimed ε", "at δ", "measured ε ≥", "canaries")


def measure(
    config: AuditConfig,
    measurement: EpsilonConfig,
    methods: tuple[str, ...],
    settings: MethodSettings,
    json_file: Path | None,
) -> None:
    """Measure, print and write what came of it, also of a measurement that is interrupted.

    Raises DisprovedError, after that, where a claim is too low; KeyboardInterrupt.
    """
    # torch takes seconds to load
    from shieldfl.audit.epsilon.claims import EpsilonInterrupted, check_claims, measure_epsilons

    stopped: EpsilonInterrupted | None = None
    try:
        with AuditProgress(config.budget_minutes) as progress:
            result = measure_epsilons(config, measurement, methods, settings, progress)
    except EpsilonInterrupted as error:
        stopped, result = error, error.result
    write_json(result.to_json(), json_file)
    if not is_stdout(json_file):
        _print(result)
    if stopped is not None:
        kind = kind_of_interruption(stopped)
        raise kind(f"{stopped}: what was measured by then is kept") from stopped
    check_claims(result)


def _print(result: EpsilonResult) -> None:
    console = result_console()
    rounds, clients = result.federation["rounds"], result.federation["clients"]
    length = "1 round" if rounds == 1 else f"{rounds} rounds"
    console.print(f"federations of {clients} clients, {length}; {result.seconds:.0f} s")
    measured = [claim for claim in result.claims if claim.bound is not None]
    if measured:
        console.print(result_table(_HEADS, map(_row, measured), words=("unit", "adversary")))
        console.print(
            "measured: what ε must at least be, at 95 % confidence, by guesses of the aggregator, or of a "
            "client where that reads ciphertexts alone, which canaries were "
            "there. Where a claim is true, the chance of a figure above it is 5 % at most, for each method. A figure "
            "below a claim proves nothing: a better guess may lie above.",
            soft_wrap=True,
        )
    for claim in result.claims:
        if claim.bound is None:
            console.print(f"- {claim.method}: {claim.status}: {claim.reason}", soft_wrap=True)


def _row(claim: ClaimedEpsilon) -> tuple[str, ...]:
    bound = claim.bound
    assert bound is not None
    figures = (f"{bound.claimed:.2f}", f"{bound.delta:g}", f"{bound.at_least:.2f}", f"{claim.canaries:,}")
    return (claim.method, bound.unit, claim.adversary or "", *figures)
