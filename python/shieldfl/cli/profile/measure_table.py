"""The tables of ``shieldfl profile measure``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple

from rich.console import Console

from shieldfl.cli.result_console import result_table
from shieldfl.fleet.fleet import Fleet
from shieldfl.fleet.measure.measured_comparison import STEPS, Deviation, MethodComparison
from shieldfl.fleet.measure.measured_fleet import trains_model
from shieldfl.reporting.quantities import MISSING, seconds_text

__all__ = ["print_measured"]

# Shares of the machine; below the first nothing is said of it.
_QUIET_LOAD = 0.05
# Of a client's time: an error in less says nothing.
_LEAST_SHARE = 0.01


def print_measured(fleet: Fleet, scheme: str, compared: Sequence[MethodComparison], console: Console) -> None:
    """Print a table for each method, with a line for each client and one for the round."""
    title = f"{fleet.name}: {fleet.size:,} clients, {fleet.model.parameters:,} parameters, {scheme}"
    console.print(title, style="bold cyan", soft_wrap=True)
    for one in compared:
        _print_method(one, console)
    console.print(
        "Medians over rounds, until a client's update has arrived; error: by how much the simulated time of a round is "
        "longer than the measured one; after it that of single steps which take a hundredth of the client's time or "
        "more.",
        soft_wrap=True,
    )
    stated = "" if trains_model(fleet) else " Training spends the processor time that the fleet file states."
    console.print(f"Clients were limited by {compared[0].fleet.limit}.{stated}", soft_wrap=True)


def _print_method(one: MethodComparison, console: Console) -> None:
    measured = one.fleet.measured
    rounds = measured.dropped.shape[0]
    noun = "round" if rounds == 1 else "rounds"
    console.print(f"{measured.plan.method}, {rounds} {noun}", style="bold", soft_wrap=True)
    table = result_table(("", "measured", "from", "to", "simulated", "error", *STEPS))
    for client in one.clients:
        whole = client.until_update
        errors = [_step_error(client.steps.get(step), whole) for step in STEPS]
        table.add_row(client.client, *_cells(whole), *errors)
    table.add_row("round", *_cells(one.round), *("" for _ in STEPS), style="bold")
    console.print(table)
    if one.mean_error is not None and one.largest_error is not None:
        console.print(
            f"error: {one.mean_error:.1%} at a client on average, {one.largest_error:+.1%} at most",
            soft_wrap=True,
        )
    factors = ", ".join(
        f"{name} {factor.min():.2f} to {factor.max():.2f}" for name, factor in one.fleet.slowdown.items()
    )
    console.print(f"slowed down by the other clients on this machine, times: {factors}", soft_wrap=True)
    if one.round_apart is not None:
        apart = one.round_apart
        console.print(
            f"on machines of their own the round is simulated to take {seconds_text(apart.simulated_seconds)} "
            f"({_error(apart)} of the measured one)",
            soft_wrap=True,
        )
    for line in _remarks(one):
        console.print(line, soft_wrap=True)


def _cells(deviation: Deviation | None) -> list[str]:
    if deviation is None:
        return [MISSING] * 5
    times = astuple(deviation)[:4]
    return [*(seconds_text(seconds) for seconds in times), _error(deviation)]


def _step_error(step: Deviation | None, whole: Deviation | None) -> str:
    if step is None or whole is None:
        return MISSING
    longest = max(step.measured_median_seconds, step.simulated_seconds)
    return MISSING if longest < _LEAST_SHARE * whole.measured_median_seconds else _error(step)


def _error(deviation: Deviation) -> str:
    return MISSING if deviation.error is None else f"{deviation.error:+.1%}"


def _remarks(one: MethodComparison) -> list[str]:
    measured = one.fleet.measured
    lines = []
    names = measured.fleet.client_names
    lost = [
        f"{name} ({count})" for name, count in zip(names, measured.dropped.sum(axis=0), strict=True) if count
    ]
    if lost:
        lines.append(f"dropped out, rounds in brackets: {', '.join(lost)}")
    if measured.failed.any():
        lines.append(f"totals of too few clients to be opened: {int(measured.failed.sum())}")
    load = float(one.fleet.load_of_others.max())
    if load > _QUIET_LOAD:
        lines.append(
            f"other processes used up to {load:.0%} of this machine's cores meanwhile: measure again when it is quiet"
        )
    return lines
