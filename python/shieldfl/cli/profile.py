"""``shieldfl profile``: what a round takes on this machine, on a fleet, and within a target."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import typer

from shieldfl.cli.bench import print_machine
from shieldfl.cli.console import (
    JsonFile,
    ResultConsole,
    checked_output,
    progress_of,
    result_table,
    write_json,
)
from shieldfl.cli.options import given_settings, where_not_given, with_options
from shieldfl.errors import ParameterError
from shieldfl.lab.fleet.calibration import CalibrationSettings
from shieldfl.lab.fleet.calibration import calibrate as measure
from shieldfl.lab.fleet.cost_source import CostSource, DeviceProfile, load_profile
from shieldfl.lab.fleet.fleet import Fleet, load_fleet
from shieldfl.lab.fleet.fleet_simulation import (
    SimulationSettings,
    client_cells,
    remarks,
    short_seconds_text,
    simulate_fleets,
    summarise,
    summary_cells,
)
from shieldfl.lab.fleet.round_simulation import FleetRounds, Recommendation, RoundTarget, plan_round
from shieldfl.quantities import bytes_text, seconds_text, share_text
from shieldfl.settings import Settings, Text, about

_QUICK = {"values": 10_000, "slow_ciphertexts": 2, "seconds": 0.0}
_WORDS = ("slowest", "limited by", "cluster")  # columns of text


@dataclass(frozen=True)
class Costs(Settings):
    """Where costs of a simulation or a plan come from."""

    profile: Annotated[
        Text | None,
        about("Device profile to take costs from, as written by shieldfl profile calibrate.", metavar="FILE"),
    ] = None
    paper_costs: Annotated[
        bool, about("Take the costs that the SenseCrypt paper reports for its own library and machines.")
    ] = False
    schemes: Annotated[
        tuple[Text, ...] | None,
        about(
            "Schemes to take from the device profile. Default: all.",
            options=("--scheme",),
            metavar="NAME,...",
        ),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.profile is not None) == self.paper_costs:
            raise ParameterError(
                "give either --profile FILE, which shieldfl profile calibrate writes, or --paper-costs"
            )
        if self.paper_costs and self.schemes is not None:
            raise ParameterError("--scheme is for --profile: the paper's costs are those of one scheme")

    def of(self, fleets: Sequence[Fleet]) -> CostSource:
        if self.profile is None:
            return CostSource.of_paper(fleets)
        measured = load_profile(Path(self.profile))
        chosen = tuple(dict.fromkeys(measured.scheme_names if self.schemes is None else self.schemes))
        for name in chosen:
            if name not in measured.scheme_names:
                raise typer.BadParameter(
                    f"{name!r} is not in the profile: choose from {', '.join(measured.scheme_names)}",
                    param_hint="--scheme",
                )
        return CostSource.of_profile(measured, chosen, fleets)


_ClientsTable = Annotated[
    bool, typer.Option("--clients-table", rich_help_panel="Output", help="Also print a line for each client.")
]


@with_options((CalibrationSettings, ""))
def calibrate(
    context: typer.Context,
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel="Output",
            callback=checked_output,
            dir_okay=False,
            help="File to write the device profile to. Other commands read it by --profile.",
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Use few values and repetitions unless an option sets them. This shows that everything "
            "works, not how fast.",
        ),
    ] = False,
    json_file: JsonFile = None,
    **settings: Any,
) -> None:
    """Measure the time that encrypting, adding, opening, scoring and selecting take on this machine.

    The command takes some minutes and prints how many; a smaller --seconds shortens it. It checks every
    opened sum. --json writes the same profile as --output.
    """
    few = where_not_given(context, _QUICK) if quick else {}
    chosen = given_settings(CalibrationSettings, settings | few)
    done, begin = count(), time.monotonic()
    with progress_of(1 + len(chosen.schemes) + (chosen.model is not None)) as show:
        profile = measure(chosen, on_step=lambda step: show(next(done), step))
    if output is not None:
        profile.save(output)
    if write_json(profile.to_json(), json_file):
        console = ResultConsole()
        _print_profile(profile, console)
        console.say(f"Measured in {seconds_text(time.monotonic() - begin)}.")


@with_options((Costs, "Costs"), (SimulationSettings, "Masks"))
def simulate(
    *,
    fleet_files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FLEET.toml...",
            exists=True,
            dir_okay=False,
            help="Fleet files (docs/how-to/fleet.md). Several are simulated one after the other.",
        ),
    ],
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            file_okay=False,
            rich_help_panel="Output",
            help="Folder to write a report to: index.html with all results, pictures, simulation.json.",
        ),
    ] = None,
    clients_table: _ClientsTable = False,
    json_file: JsonFile = None,
    **settings: Any,
) -> None:
    """Simulate rounds of fleets from measured costs: who the round waits for, how long, and what is sent.

    The simulation neither trains nor encrypts.
    """
    chosen, given = given_settings(SimulationSettings, settings), given_settings(Costs, settings)
    fleets = [load_fleet(path) for path in fleet_files]
    costs = given.of(fleets)
    if report is not None:
        # Before the rounds, so that a missing package or a folder that cannot be made is told at once.
        from shieldfl.lab.report.fleet_page import write_report

        report.mkdir(parents=True, exist_ok=True)
    simulation = simulate_fleets(fleets, costs, chosen)
    if report is not None:
        write_report(simulation, report)
    if write_json(simulation.to_json(), json_file):
        console = ResultConsole()
        _print_simulation([one.runs for one in simulation.fleets], clients_table, console)
        console.say(costs.describe(), *simulation.notes)


@with_options((Costs, "Costs"), (RoundTarget, ""))
def plan(
    *,
    fleet_file: Annotated[
        Path,
        typer.Argument(
            metavar="FLEET.toml", exists=True, dir_okay=False, help="Fleet file (docs/how-to/fleet.md)."
        ),
    ],
    clients_table: _ClientsTable = False,
    json_file: JsonFile = None,
    **settings: Any,
) -> None:
    """Recommend a scheme and each client's encrypted share, so that a round takes at most a given time.

    The exit code is 1 if no scheme meets the target.
    """
    target, given = given_settings(RoundTarget, settings), given_settings(Costs, settings)
    fleet = load_fleet(fleet_file)
    costs = given.of([fleet])
    found = plan_round(fleet, costs.models, target.target_seconds, target.least_ratio)
    notes = costs.notes([fleet])
    facts = {
        "fleet": fleet.name,
        **asdict(found.target),
        "feasible": found.best.feasible,
        "clients": list(fleet.client_names),
        "schemes": [
            asdict(one) | {"budgets": list(one.budgets), "least_budget": one.least_budget}
            for one in (found.best, *found.others)
        ],
        "costs": costs.to_json(),
        "notes": notes,
    }
    if write_json(facts, json_file):
        console = ResultConsole()
        _print_plan(found, fleet.client_names if clients_table else (), console)
        console.say(costs.describe(), *notes)
    if not found.best.feasible:
        raise ParameterError(
            f"no scheme meets {target.target_seconds:g} s: allow {found.best.least_round_seconds:.3g} s or "
            "more, encrypt less, or speed up what limits the round"
        )


def _print_profile(profile: DeviceProfile, console: ResultConsole) -> None:
    print_machine(profile.machine, console)
    threads = list(profile.schemes[0].encrypt_seconds)
    table = result_table(["scheme", *(f"encrypt, {count}" for count in threads), "add", "open", "bytes"])
    for scheme in profile.schemes:
        of_threads = [scheme.encrypt_seconds[count] for count in threads]
        cells = [
            short_seconds_text(seconds / scheme.values_per_ciphertext)
            for seconds in (*of_threads, scheme.add_seconds, scheme.open_seconds)
        ]
        table.add_row(scheme.name, *cells, f"{scheme.ciphertext_bytes / scheme.values_per_ciphertext:,.2f}")
    console.print(table)
    console.say(
        "Medians for each value; encryption by number of threads, the rest with one.",
        *(f"Warning: {note}" for note in profile.notes),
    )


def _print_simulation(
    fleets: Sequence[Mapping[str, Sequence[FleetRounds]]], clients: bool, console: ResultConsole
) -> None:
    every = [one for of_fleet in fleets for one in of_fleet.items()]
    for scheme, runs in every:
        fleet = runs[0].fleet
        title = f"{fleet.name}: {fleet.size:,} clients, {fleet.model.parameters:,} parameters, {scheme}"
        console.print(title, style="bold cyan", soft_wrap=True)
        rows, lines = [], list[str]()
        for one in map(summarise, runs):
            cells = summary_cells(one)
            rows.append([one.method, *cells.values()])
            lines += [f"{one.method}: {line}" for line in remarks(one)]
        console.print(result_table(["", *cells], rows, _WORDS))
        console.say(*lines)
        for rounds in runs if clients else ():
            console.print(f"{rounds.plan.method}, each client", style="bold", soft_wrap=True)
            console.print(result_table(*client_cells(rounds), _WORDS))
    counts = sorted({runs[0].dropped.shape[0] for _, runs in every})
    many = f"Means over {' or '.join(map('{:,}'.format, counts))} rounds."
    over = "Of one round." if counts == [1] else many
    console.say(
        f"{over} update: until the slowest client's update has arrived; index: slowest over median client; "
        "idle: share of a round that clients wait; up: bytes of all clients; union: encrypted positions of "
        "the largest total."
    )


def _print_plan(found: Recommendation, clients: Sequence[str], console: ResultConsole) -> None:
    console.say(found.describe())
    table = result_table(
        ("scheme", "least", "most", "round", "shortest", "pool", "up", "limited by"), words=_WORDS
    )
    for one in (found.best, *found.others):
        times = (one.round_seconds, one.least_round_seconds, one.pool_seconds)
        table.add_row(
            one.scheme,
            share_text(one.least_budget),
            share_text(one.mask_ratio),
            *map(seconds_text, times),
            bytes_text(one.bytes_up),
            one.limit.describe() if one.feasible else f"{one.limit.describe()}; not in time",
        )
    console.print(table)
    console.say(
        "least and most: smallest and largest share that a client encrypts; shortest: the round if all "
        "encrypt as little as allowed; pool: time to prepare randomisers; a round counts the part that does "
        "not fit into idle time."
    )
    if clients:
        best = found.best
        rows = [
            [name, share_text(budget), seconds_text(after), f"{step.step}, {seconds_text(step.seconds)}"]
            for name, budget, after, step in zip(
                clients, best.budgets, best.update_seconds, best.longest_steps, strict=True
            )
        ]
        heads = ("client", "encrypts", "update after", "of that most in")
        console.print(result_table(heads, rows, words=(heads[-1],)))
