"""The tables of ``shieldfl profile``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from shieldfl.cli.result_console import result_table
from shieldfl.lab.fleet.cost_model import DeviceProfile
from shieldfl.lab.fleet.fleet_simulation import summarise
from shieldfl.lab.fleet.planner import Recommendation
from shieldfl.lab.fleet.round_simulation import FleetRounds
from shieldfl.lab.report.fleet_tables import client_cells, remarks, short_seconds_text, summary_cells
from shieldfl.quantities import bytes_text, seconds_text, share_text

_WORDS = ("slowest", "limited by", "cluster")
"""Columns of text."""


def print_profile(profile: DeviceProfile, console: Console) -> None:
    """Print what was measured: encryption by number of threads, the rest with one."""
    machine = profile.machine
    console.print(
        f"{machine['processor']}, {machine['cores']} cores, instruction set {machine['instruction_set']}",
        f"shieldfl {machine['shieldfl']}, numpy {machine['numpy']}, python {machine['python']}, {machine['date']}",
        sep="\n",
        soft_wrap=True,
    )
    threads = list(profile.schemes[0].encrypt_seconds)
    table = result_table(["scheme", *(f"encrypt, {count}" for count in threads), "add", "open", "bytes"])
    for scheme in profile.schemes:
        times = [
            *(scheme.encrypt_seconds[count] for count in threads),
            scheme.add_seconds,
            scheme.open_seconds,
        ]
        cells = [short_seconds_text(seconds / scheme.values_per_ciphertext) for seconds in times]
        table.add_row(scheme.name, *cells, f"{scheme.ciphertext_bytes / scheme.values_per_ciphertext:,.2f}")
    console.print(table)
    console.print(
        "Medians for each value; encryption by number of threads, the rest with one.", soft_wrap=True
    )
    rest = {
        "score": profile.score_seconds_per_value,
        "select": profile.select_seconds_per_value,
        "add in the clear": profile.add_clear_seconds_per_value,
    }
    figures = ", ".join(f"{name} {short_seconds_text(seconds)}" for name, seconds in rest.items())
    console.print(f"For each parameter: {figures}.", soft_wrap=True)
    if profile.model is not None:
        by_threads = profile.model.train_seconds_per_sample
        times_text = ", ".join(
            f"{seconds_text(seconds)} with {count}" for count, seconds in by_threads.items()
        )
        console.print(
            f"Training {profile.model.name} ({profile.model.parameters:,} parameters), a sample, by threads: "
            f"{times_text}.",
            soft_wrap=True,
        )
    for note in profile.notes:
        console.print(f"Warning: {note}", soft_wrap=True)


def print_simulation(
    fleets: Sequence[Mapping[str, Sequence[FleetRounds]]], clients: bool, console: Console
) -> None:
    """Print a table for each fleet and scheme, with a line for each method."""
    counts = {int(runs[0].dropped.shape[0]) for of_fleet in fleets for runs in of_fleet.values()}
    for runs_by_scheme in fleets:
        for scheme, runs in runs_by_scheme.items():
            _print_runs(scheme, runs, clients, console)
    console.print(
        f"{_over(counts)} update: until the slowest client's update has arrived; index: slowest over median "
        "client; idle: share of a round that clients wait; up: bytes of all clients; union: encrypted positions "
        "of the largest total.",
        soft_wrap=True,
    )


def _over(counts: set[int]) -> str:
    """Say what the figures are of."""
    if counts == {1}:
        return "Of one round."
    return f"Means over {' or '.join(f'{count:,}' for count in sorted(counts))} rounds."


def _print_runs(scheme: str, runs: Sequence[FleetRounds], clients: bool, console: Console) -> None:
    fleet = runs[0].fleet
    title = f"{fleet.name}: {fleet.size:,} clients, {fleet.model.parameters:,} parameters, {scheme}"
    console.print(title, style="bold cyan", soft_wrap=True)
    summaries = [summarise(rounds) for rounds in runs]
    rows = ([one.method, *summary_cells(one).values()] for one in summaries)
    console.print(result_table(["", *summary_cells(summaries[0])], rows, _WORDS))
    for one in summaries:
        for line in remarks(one):
            console.print(f"{one.method}: {line}", soft_wrap=True)
    for rounds in runs if clients else ():
        console.print(f"{rounds.plan.method}, each client", style="bold", soft_wrap=True)
        console.print(result_table(*client_cells(rounds), _WORDS))


def print_plan(found: Recommendation, clients: Sequence[str], console: Console) -> None:
    """Print what is recommended, the schemes beside it, and the budgets of ``clients`` where some are given."""
    console.print(found.describe(), soft_wrap=True)
    table = result_table(
        ("scheme", "least", "most", "round", "shortest", "pool", "up", "limited by"), words=_WORDS
    )
    for one in (found.best, *found.others):
        cells: list[Any] = [share_text(one.least_budget), share_text(one.mask_ratio)]
        cells += [seconds_text(one.round_seconds), seconds_text(one.least_round_seconds)]
        cells.append(seconds_text(one.pool_seconds) if one.pool_seconds else "–")
        limit = one.limit.describe() if one.feasible else f"{one.limit.describe()}; not in time"
        table.add_row(one.scheme, *cells, bytes_text(one.bytes_up), limit)
    console.print(table)
    console.print(
        "least and most: what clients encrypt; shortest: the round when all encrypt as little as they may; pool: "
        "making randomisers ahead, of which the round counts what a client is not idle for.",
        soft_wrap=True,
    )
    if clients:
        best = found.best
        each = zip(clients, best.budgets, best.update_seconds, best.longest_steps, strict=True)
        rows = (
            [
                name,
                share_text(budget),
                seconds_text(seconds),
                f"{longest.step}, {seconds_text(longest.seconds)}",
            ]
            for name, budget, seconds, longest in each
        )
        heads = ("client", "encrypts", "update after", "of that most in")
        console.print(result_table(heads, rows, words=(heads[-1],)))
