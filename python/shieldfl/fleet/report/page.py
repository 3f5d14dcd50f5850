"""The report of a simulation: its figures as JSON, pictures as PNG, and one page that holds everything."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shieldfl.errors import ParameterError
from shieldfl.fleet.report.pictures import draw_gantt, draw_round_times, draw_straggler_index
from shieldfl.fleet.report.tables import (
    ReportTable,
    clients_table,
    costs_table,
    methods_table,
    reductions_table,
    remarks,
)
from shieldfl.fleet.simulate.fleet_simulation import FleetSimulation, SimulatedFleet, summarise
from shieldfl.fleet.simulate.round_simulation import FleetRounds
from shieldfl.reporting.output_files import write_whole
from shieldfl.reporting.report_page import Picture, draw_picture, render_page

__all__ = ["write_report"]

_PICTURE_NAME = re.compile(r"(round-times|gantt-fleet-\d+)-scheme-\d+\.png|straggler-index-fleet-\d+\.png")
_TEMPLATE = Path(__file__).with_name("page.html.j2")


@dataclass(frozen=True)
class _SchemePart:
    """A fleet under one scheme."""

    scheme: str
    tables: tuple[ReportTable, ...]
    remarks: list[str]
    gantt: Picture
    clients: list[ReportTable]
    """One for each method."""


@dataclass(frozen=True)
class _FleetPart:
    """A section of the page."""

    name: str
    facts: str
    schemes: list[_SchemePart]
    straggler_index: Picture


def write_report(simulation: FleetSimulation, directory: str | Path) -> list[Path]:
    """Write ``simulation.json``, the pictures and ``index.html`` to a folder, which is made where it does not exist.

    Pictures bear the numbers of their fleet and scheme, since names may be anything. Files of an earlier report are
    replaced, and its other pictures removed. The page needs no other file and nothing from a network. Raises
    ParameterError for a simulation without a fleet, scheme or method, OSError.
    """
    if not simulation.fleets or not simulation.schemes or not all(simulation.fleets[0].runs.values()):
        raise ParameterError("nothing was simulated: give a fleet, a scheme and a method")
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    figures = folder / "simulation.json"
    if figures.exists():
        _remove_pictures(folder)
    write_whole(figures, json.dumps(simulation.to_json(), indent=2, allow_nan=False) + "\n")
    written = [figures]
    several = len(simulation.fleets) > 1
    page = render_page(
        _TEMPLATE,
        headline=_describe(simulation),
        round_times=[
            _round_times(simulation, scheme, _add(written, f"round-times-scheme-{number}.png"))
            for number, scheme in enumerate(simulation.schemes if several else (), 1)
        ],
        fleets=[
            _fleet_part(simulation, one, number, written) for number, one in enumerate(simulation.fleets, 1)
        ],
        settings=_settings(simulation),
        source=simulation.costs.describe(),
        costs=costs_table(simulation.costs.models.values()),
        machine=simulation.costs.to_json()["machine"] or {},
        notes=simulation.notes,
    )
    write_whole(_add(written, "index.html"), page)
    return written


def _remove_pictures(folder: Path) -> None:
    """Remove what an earlier report has drawn, which may be of more fleets and schemes, and nothing else."""
    for path in folder.iterdir():
        if _PICTURE_NAME.fullmatch(path.name):
            path.unlink()


def _add(written: list[Path], name: str) -> Path:
    written.append(written[0].with_name(name))
    return written[-1]


def _describe(simulation: FleetSimulation) -> str:
    counts = {
        "fleet": len(simulation.fleets),
        "scheme": len(simulation.schemes),
        "method": len(simulation.fleets[0].runs[simulation.schemes[0]]),
        "round": max(one.rounds for one in simulation.fleets),
    }
    return ", ".join(f"{count:,} {noun}{'' if count == 1 else 's'}" for noun, count in counts.items())


def _round_times(simulation: FleetSimulation, scheme: str, path: Path) -> Picture:
    names = [one.fleet.name for one in simulation.fleets]
    seconds = simulation.round_seconds(scheme)
    return draw_picture(
        f"Round time over the fleets, {scheme}",
        "Mean seconds of a round, from its start until the last client has the new model.",
        lambda theme: draw_round_times(names, seconds, theme=theme),
        path,
    )


def _fleet_part(
    simulation: FleetSimulation, one: SimulatedFleet, number: int, written: list[Path]
) -> _FleetPart:
    schemes = [
        _scheme_part(scheme, runs, _add(written, f"gantt-fleet-{number}-scheme-{scheme_number}.png"))
        for scheme_number, (scheme, runs) in enumerate(one.runs.items(), 1)
    ]
    indices = simulation.straggler_indices(one.fleet)
    clusters = len(one.fleet.cluster_names)
    return _FleetPart(
        name=one.fleet.name,
        facts=f"{one.fleet.size:,} clients{f' in {clusters} clusters' if clusters > 1 else ''}, "
        f"{one.fleet.model.parameters:,} parameters",
        schemes=schemes,
        straggler_index=draw_picture(
            "Straggler index by budget",
            "How many times as long as the median client the slowest one takes when all encrypt the same share.",
            lambda theme: draw_straggler_index(indices, theme=theme),
            _add(written, f"straggler-index-fleet-{number}.png"),
        ),
    )


def _scheme_part(scheme: str, runs: list[FleetRounds], path: Path) -> _SchemePart:
    summaries = [summarise(rounds) for rounds in runs]
    compared = (reductions_table(summaries),) if len(runs) > 1 else ()
    return _SchemePart(
        scheme=scheme,
        tables=(methods_table(summaries), *compared),
        remarks=[f"{one.method}: {line}" for one in summaries for line in remarks(one)],
        gantt=draw_picture(
            f"First round, {scheme}",
            "A bar for each client, the slowest first; all panels have the same axis.",
            lambda theme: draw_gantt(runs, theme=theme),
            path,
        ),
        clients=[clients_table(rounds) for rounds in runs],
    )


def _settings(simulation: FleetSimulation) -> dict[str, Any]:
    chosen = simulation.settings
    return {
        "rounds": ", ".join(f"{one.rounds:,}" for one in simulation.fleets),
        "seed": chosen.seed,
        "uniform ratio": "the union of sense-crypt" if chosen.uniform_ratio is None else chosen.uniform_ratio,
        "mask overlap": chosen.mask_overlap,
        "exposed share (C)": chosen.exposed_share,
        "exposure decay (B)": chosen.exposure_decay,
    }
