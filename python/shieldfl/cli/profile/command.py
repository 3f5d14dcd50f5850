"""``shieldfl profile``: what a round takes on this machine, on a fleet, and within a target."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from shieldfl.cli.bench.command import progress_of
from shieldfl.cli.failures import failures_on_stderr
from shieldfl.cli.json_output import JsonFile, checked_output, is_stdout, write_json
from shieldfl.cli.profile.table import print_plan, print_profile, print_simulation
from shieldfl.cli.result_console import result_console
from shieldfl.cli.setting_options import given_settings, where_not_given, with_options
from shieldfl.errors import ParameterError
from shieldfl.lab.fleet.calibration import CalibrationSettings
from shieldfl.lab.fleet.calibration import calibrate as measure
from shieldfl.lab.fleet.cost_model import load_profile
from shieldfl.lab.fleet.cost_source import CostSource
from shieldfl.lab.fleet.fleet import Fleet, load_fleet
from shieldfl.lab.fleet.fleet_simulation import SimulationSettings, simulate_fleets
from shieldfl.lab.fleet.planner import RoundTarget, plan_round
from shieldfl.quantities import seconds_text

_QUICK = {"values": 10_000, "slow_ciphertexts": 2, "seconds": 0.0}


def _parse_names(text: str) -> tuple[str, ...]:
    """Read names with commas between; each counts once."""
    names = tuple(dict.fromkeys(name for part in str(text).split(",") if (name := part.strip())))
    if not names:
        raise typer.BadParameter("give at least one name")
    return names


_ProfileFile = Annotated[
    Path | None,
    typer.Option(
        "--profile",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        rich_help_panel="Costs",
        help="Take costs from a device profile, which shieldfl profile calibrate writes.",
    ),
]
_PaperCosts = Annotated[
    bool,
    typer.Option(
        "--paper-costs",
        rich_help_panel="Costs",
        help="Take the costs that the SenseCrypt paper reports, of its own library and machines.",
    ),
]
# typer takes no tuples of any length, so what has a parser is typed Any.
_Schemes = Annotated[
    Any,
    typer.Option(
        "--scheme",
        metavar="NAME,...",
        parser=_parse_names,
        rich_help_panel="Costs",
        help="Schemes of the device profile; by default all of them.",
        show_default=False,
    ),
]
_ClientsTable = Annotated[
    bool, typer.Option("--clients-table", rich_help_panel="Output", help="Print a line for each client too.")
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
            help="Write the device profile, the file that --profile of the other commands reads.",
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Few values and repetitions where no option says otherwise: shows that it works, not how fast.",
        ),
    ] = False,
    json_file: JsonFile = None,
    **settings: Any,
) -> None:
    """Measure what encrypting, adding, opening, scoring and selecting take on this machine.

    Takes some minutes, and says how long it took: --seconds, of each figure, shortens it. Every opened sum is checked.
    --json writes the same profile as --output does.
    """
    few = where_not_given(context, _QUICK) if quick else {}
    chosen = given_settings(CalibrationSettings, settings | few)
    with failures_on_stderr():
        done, begin = count(), time.monotonic()
        with progress_of(1 + len(chosen.schemes) + (chosen.model is not None)) as show:
            profile = measure(chosen, on_step=lambda step: show(next(done), step))
        if output is not None:
            profile.save(output)
        took = f"Measured in {seconds_text(time.monotonic() - begin)}."
        _print(profile.to_json(), json_file, lambda console: print_profile(profile, console), [took])


@with_options((SimulationSettings, "Masks"))
def simulate(
    *,
    fleet_files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FLEET.toml...",
            exists=True,
            dir_okay=False,
            help="Fleet files: see docs/fleet.md. Several are simulated one after the other.",
        ),
    ],
    profile: _ProfileFile = None,
    paper_costs: _PaperCosts = False,
    scheme: _Schemes = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            file_okay=False,
            rich_help_panel="Output",
            help="Write simulation.json, pictures and a page that holds everything (index.html) to this folder.",
        ),
    ] = None,
    clients_table: _ClientsTable = False,
    json_file: JsonFile = None,
    **settings: Any,
) -> None:
    """Compute rounds of fleets from measured costs: who is waited for, for how long, and how much is sent.

    No training and no encryption takes place.
    """
    _check_costs(profile, paper_costs, scheme)
    chosen = given_settings(SimulationSettings, settings)
    with failures_on_stderr():
        fleets = [load_fleet(path) for path in fleet_files]
        costs = _load_costs(profile, scheme, fleets)
        if report is not None:
            # Before the rounds, so that a missing package or a folder that cannot be made is told at once.
            from shieldfl.lab.report.fleet_page import write_report

            report.mkdir(parents=True, exist_ok=True)
        simulation = simulate_fleets(fleets, costs, chosen)
        if report is not None:
            write_report(simulation, report)
        runs = [one.runs for one in simulation.fleets]
        _print(
            simulation.to_json(),
            json_file,
            lambda console: print_simulation(runs, clients_table, console),
            (costs.describe(), *simulation.notes),
        )


@with_options((RoundTarget, ""))
def plan(
    *,
    fleet_file: Annotated[
        Path,
        typer.Argument(
            metavar="FLEET.toml", exists=True, dir_okay=False, help="A fleet file: see docs/fleet.md."
        ),
    ],
    profile: _ProfileFile = None,
    paper_costs: _PaperCosts = False,
    scheme: _Schemes = None,
    clients_table: _ClientsTable = False,
    json_file: JsonFile = None,
    **settings: Any,
) -> None:
    """Recommend a scheme and the share that each client encrypts so that a round takes a given time.

    Exit code 1 when no scheme meets the target.
    """
    target = given_settings(RoundTarget, settings)
    _check_costs(profile, paper_costs, scheme)
    with failures_on_stderr():
        fleet = load_fleet(fleet_file)
        costs = _load_costs(profile, scheme, [fleet])
        found = plan_round(fleet, costs.models, target.target_seconds, target.least_ratio)
        notes = costs.notes([fleet])
        facts = {
            "fleet": fleet.name,
            **asdict(found.target),
            "feasible": found.feasible,
            "clients": list(fleet.client_names),
            "schemes": [
                asdict(one) | {"budgets": list(one.budgets), "least_budget": one.least_budget}
                for one in (found.best, *found.others)
            ],
            "costs": costs.to_json(),
            "notes": notes,
        }
        names = fleet.client_names if clients_table else ()
        _print(
            facts,
            json_file,
            lambda console: print_plan(found, names, console),
            (costs.describe(), *notes),
        )
        if not found.feasible:
            raise ParameterError(
                f"no scheme meets {target.target_seconds:g} s: allow {found.best.least_round_seconds:.3g} s or more, "
                "encrypt less, or speed up what limits the round"
            )


def _check_costs(profile: Path | None, paper: bool, schemes: tuple[str, ...] | None) -> None:
    """Refuse options that name no costs, or costs twice."""
    if (profile is not None) == paper:
        raise typer.BadParameter(
            "give either --profile FILE, which shieldfl profile calibrate writes, or --paper-costs"
        )
    if paper and schemes is not None:
        raise typer.BadParameter("--scheme is for --profile: the paper's costs are those of one scheme")


def _load_costs(profile: Path | None, schemes: tuple[str, ...] | None, fleets: Sequence[Fleet]) -> CostSource:
    if profile is None:
        return CostSource.of_paper(fleets)
    measured = load_profile(profile)
    chosen = measured.scheme_names if schemes is None else schemes
    for name in chosen:
        if name not in measured.scheme_names:
            raise typer.BadParameter(
                f"{name!r} is not in the profile: choose from {', '.join(measured.scheme_names)}",
                param_hint="--scheme",
            )
    return CostSource.of_profile(measured, chosen, fleets)


def _print(
    facts: dict[str, Any], json_file: Path | None, tables: Callable[[Console], None], lines: Iterable[str]
) -> None:
    """Write the figures to where ``--json`` says, and print tables and lines unless that is standard output."""
    write_json(facts, json_file)
    if not is_stdout(json_file):
        console = result_console()
        tables(console)
        for line in lines:
            console.print(line, soft_wrap=True)
