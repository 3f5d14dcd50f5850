"""``shieldfl profile simulate``: rounds of fleets under several methods, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from shieldfl.cli import profile_options as options
from shieldfl.cli.failures import failures_on_stderr
from shieldfl.cli.json_output import is_stdout, write_json
from shieldfl.cli.profile_costs import CostSource, check_costs, load_costs
from shieldfl.errors import ParameterError
from shieldfl.fleet.encryption_plan import METHODS, MaskSettings
from shieldfl.fleet.fleet import Fleet
from shieldfl.fleet.fleet_file import load_fleet
from shieldfl.fleet.round_simulation import FleetRounds
from shieldfl.fleet.round_simulation import simulate as simulate_rounds
from shieldfl.fleet.sensitivity_curve import SecurityFloor
from shieldfl.fleet.summary import client_rows, summarise

__all__ = ["SimulatedFleet", "simulate"]

_ALL_METHODS = ",".join(METHODS)
_MASKS = "Masks"
_PICTURES = "Pictures"


@dataclass(frozen=True)
class SimulatedFleet:
    """One fleet under every scheme and method."""

    fleet: Fleet
    runs: dict[str, list[FleetRounds]]
    """By scheme; one for each method."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "name": self.fleet.name,
            "clients": self.fleet.size,
            "parameters": self.fleet.model.parameters,
            "runs": [
                summarise(rounds).to_json() | {"timelines": client_rows(rounds)}
                for runs in self.runs.values()
                for rounds in runs
            ],
        }


def _parse_methods(text: str) -> tuple[str, ...]:
    names = options.parse_names(text)
    for name in names:
        if name not in METHODS:
            raise typer.BadParameter(f"unknown method {name!r}: choose from {', '.join(METHODS)}")
    return names


def simulate(
    fleet_files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FLEET.toml...",
            exists=True,
            dir_okay=False,
            help="Fleet files: see docs/fleet.md. Several are simulated one after the other.",
        ),
    ],
    method: Annotated[
        Any, typer.Option(metavar="NAME,...", parser=_parse_methods, help="Methods, compared side by side.")
    ] = _ALL_METHODS,
    rounds: Annotated[int, typer.Option(min=1, help="Number of rounds.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Decides who drops out, and when.")] = 0,
    profile: options.ProfileFile = None,
    paper_costs: options.PaperCosts = False,
    scheme: options.Schemes = None,
    uniform_ratio: Annotated[
        float | None,
        typer.Option(
            help="Share of the parameters that mask-crypt and fedml-he encrypt; default: sense-crypt's union.",
            rich_help_panel=_MASKS,
            show_default=False,
        ),
    ] = None,
    mask_overlap: Annotated[
        float,
        typer.Option(
            help="Of sense-crypt's masks: 1 for nested, 0 for independent ones.", rich_help_panel=_MASKS
        ),
    ] = MaskSettings.mask_overlap,
    exposed_share: Annotated[
        float, typer.Option(help="C of sense-crypt's security constraint.", rich_help_panel=_MASKS)
    ] = SecurityFloor.exposed_share,
    exposure_decay: Annotated[
        float, typer.Option(help="B of sense-crypt's security constraint.", rich_help_panel=_MASKS)
    ] = SecurityFloor.exposure_decay,
    gantt: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.png",
            callback=options.checked_picture,
            rich_help_panel=_PICTURES,
            help="Draw the first round, a bar for each client; for one fleet under one scheme.",
        ),
    ] = None,
    straggler_index: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.png",
            callback=options.checked_picture,
            rich_help_panel=_PICTURES,
            help="Draw the straggler index over the share that all clients encrypt; for one fleet.",
        ),
    ] = None,
    round_times: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.png",
            callback=options.checked_picture,
            rich_help_panel=_PICTURES,
            help="Draw the round time of each method over the fleets, in their order; under one scheme.",
        ),
    ] = None,
    clients_table: options.ClientsTable = False,
    json_file: options.JsonFile = None,
) -> None:
    """Compute rounds of fleets from measured costs: who is waited for, for how long, and how much is sent.

    No training and no encryption takes place.
    """
    check_costs(profile, paper_costs, scheme)
    if len(fleet_files) > 1 and (gantt or straggler_index):
        raise typer.BadParameter("--gantt and --straggler-index draw one fleet: give one file")
    try:
        floor = SecurityFloor(exposed_share, exposure_decay)
        settings = MaskSettings(uniform_ratio=uniform_ratio, mask_overlap=mask_overlap, floor=floor)
    except ParameterError as error:
        raise typer.BadParameter(str(error)) from None
    with failures_on_stderr():
        costs = load_costs(profile, scheme)
        if len(costs.models) > 1 and (gantt or round_times):
            raise typer.BadParameter("--gantt and --round-times draw one scheme: give --scheme NAME")
        fleets = [
            _simulate_fleet(load_fleet(path), method, costs, rounds, seed, settings) for path in fleet_files
        ]
        _draw(fleets, costs, settings, gantt, straggler_index, round_times)
        notes = costs.notes([one.fleet for one in fleets])
        document = {
            "costs": costs.to_json(),
            "rounds": rounds,
            "seed": seed,
            "fleets": [one.to_json() for one in fleets],
            "notes": notes,
        }
        write_json(document, json_file)
        if not is_stdout(json_file):
            from shieldfl.cli.bench_table import result_console
            from shieldfl.cli.profile_table import print_simulation

            print_simulation([one.runs for one in fleets], clients_table, result_console())
            for line in (costs.describe(), *notes):
                typer.echo(line)


def _simulate_fleet(
    fleet: Fleet, methods: Sequence[str], costs: CostSource, rounds: int, seed: int, settings: MaskSettings
) -> SimulatedFleet:
    return SimulatedFleet(
        fleet,
        {
            scheme: [
                simulate_rounds(method, fleet, costs.for_method(method, scheme), rounds, seed, settings)
                for method in methods
            ]
            for scheme in costs.models
        },
    )


def _draw(
    fleets: Sequence[SimulatedFleet],
    costs: CostSource,
    settings: MaskSettings,
    gantt: Path | None,
    straggler_index: Path | None,
    round_times: Path | None,
) -> None:
    from shieldfl.fleet import pictures

    first = fleets[0]
    if gantt is not None:
        (runs,) = first.runs.values()
        pictures.write_png(pictures.draw_gantt(runs), gantt)
    if straggler_index is not None:
        indices = {
            name: pictures.straggler_index_by_budget(
                first.fleet, costs.for_method("mask-crypt", name), settings
            )
            for name in costs.models
        }
        pictures.write_png(pictures.draw_straggler_index(indices), straggler_index)
    if round_times is not None:
        seconds: dict[str, list[float]] = {}
        for one in fleets:
            for rounds in next(iter(one.runs.values())):
                seconds.setdefault(rounds.plan.method, []).append(float(rounds.round_seconds.mean()))
        names = [one.fleet.name for one in fleets]
        pictures.write_png(pictures.draw_round_times(names, seconds), round_times)
