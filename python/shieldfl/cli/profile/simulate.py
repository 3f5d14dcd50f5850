"""``shieldfl profile simulate``: rounds of fleets under several methods, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from shieldfl.cli.failures import failures_on_stderr
from shieldfl.cli.json_output import is_stdout, write_json
from shieldfl.cli.profile import options
from shieldfl.cli.profile.costs import check_costs, load_costs
from shieldfl.cli.profile.pictures import PictureFiles, picture_option
from shieldfl.cli.setting_options import given_settings, with_options
from shieldfl.fleet.fleet_file import load_fleet
from shieldfl.fleet.simulate.fleet_simulation import SimulationSettings, simulate_fleets

__all__ = ["simulate"]


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
    profile: options.ProfileFile = None,
    paper_costs: options.PaperCosts = False,
    scheme: options.Schemes = None,
    gantt: Annotated[
        Path | None,
        picture_option("Draw the first round, a bar for each client; for one fleet under one scheme."),
    ] = None,
    straggler_index: Annotated[
        Path | None,
        picture_option("Draw the straggler index over the share that all clients encrypt; for one fleet."),
    ] = None,
    round_times: Annotated[
        Path | None,
        picture_option(
            "Draw the round time of each method over the fleets, in their order; under one scheme."
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            file_okay=False,
            rich_help_panel="Output",
            help="Write simulation.json, all pictures and a page that holds everything (index.html) to this folder.",
        ),
    ] = None,
    clients_table: options.ClientsTable = False,
    json_file: options.JsonFile = None,
    **settings: Any,
) -> None:
    """Compute rounds of fleets from measured costs: who is waited for, for how long, and how much is sent.

    No training and no encryption takes place.
    """
    check_costs(profile, paper_costs, scheme)
    pictures = PictureFiles(gantt, straggler_index, round_times)
    chosen = given_settings(SimulationSettings, settings)
    with failures_on_stderr():
        fleets = [load_fleet(path) for path in fleet_files]
        costs = load_costs(profile, scheme, fleets)
        pictures.check(len(fleet_files), len(costs.models))
        if report is not None:
            # Before the rounds, so that a missing package or a folder that cannot be made is told at once.
            from shieldfl.fleet.report.page import write_report

            report.mkdir(parents=True, exist_ok=True)
        simulation = simulate_fleets(fleets, costs, chosen)
        pictures.draw(simulation)
        write_json(simulation.to_json(), json_file)
        if report is not None:
            write_report(simulation, report)
        if not is_stdout(json_file):
            from shieldfl.cli.profile.table import print_simulation
            from shieldfl.cli.result_console import result_console

            console = result_console()
            print_simulation([one.runs for one in simulation.fleets], clients_table, console)
            for line in (costs.describe(), *simulation.notes):
                console.print(line, soft_wrap=True)
