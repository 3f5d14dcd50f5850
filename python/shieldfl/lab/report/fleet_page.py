"""The report of a simulation: its figures as JSON, pictures as PNG, and one page that holds everything."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from shieldfl.errors import ParameterError
from shieldfl.lab.fleet.cost_model import CostModel
from shieldfl.lab.fleet.fleet_simulation import FleetSimulation, FleetSummary, SimulatedFleet, summarise
from shieldfl.lab.fleet.round_simulation import FleetRounds
from shieldfl.lab.report.figures import NARROW, WIDE, render_png
from shieldfl.lab.report.fleet_pictures import draw_gantt, draw_round_times, draw_straggler_index
from shieldfl.lab.report.fleet_tables import client_cells, remarks, short_seconds_text, summary_cells
from shieldfl.lab.report.output_files import write_json, write_whole
from shieldfl.lab.report.page import Facts, Section, Table, Terms, inline_drawing, render_page
from shieldfl.quantities import bytes_text

MOST_CLIENT_ROWS = 200
"""Clients that a table shows; of larger fleets the slowest."""
_PICTURE_NAME = re.compile(r"(round-times|gantt-fleet-\d+)-scheme-\d+\.png|straggler-index-fleet-\d+\.png")
_TERMS = {
    "Round and update": "Means over the rounds. A round goes from its start until the last client has the new model; "
    "“update” ends when the slowest client's update has arrived, before it is added up and opened.",
    "Index": "The straggler index: the slowest client's time until its update has arrived, divided by the median "
    "client's. “Slowest” names the client with the longest mean time.",
    "Idle and wait": "What clients spend waiting for others, for the aggregator and for the key authority.",
    "Up and down": "Bytes of all clients together in a round; in the tables of clients, of each.",
    "Encrypted and union": "The smallest and largest share of the parameters that a client encrypts, and the share in "
    "which the largest cluster's total is encrypted.",
    "Short of budget": "Clients whose budget is smaller than what security asks for; they encrypt what security asks "
    "for.",
}


def write_report(simulation: FleetSimulation, directory: str | Path) -> list[Path]:
    """Write JSON, pictures and page; return paths. Raises ParameterError for no fleet, OSError."""
    if not simulation.fleets or not simulation.schemes or not all(simulation.fleets[0].runs.values()):
        raise ParameterError("nothing was simulated: give a fleet, a scheme and a method")
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / "simulation.json"]
    if written[0].exists():
        # What an earlier report has drawn may be of more fleets and schemes.
        for path in folder.iterdir():
            if _PICTURE_NAME.fullmatch(path.name):
                path.unlink()
    write_json(written[0], simulation.to_json())
    sections = []
    for number, scheme in enumerate(simulation.schemes if len(simulation.fleets) > 1 else (), 1):
        fleets, times = [one.fleet.name for one in simulation.fleets], simulation.round_seconds(scheme)
        drawing = _drawing(
            f"Round time over the fleets, {scheme}",
            "Mean seconds of a round, from its start until the last client has the new model.",
            [draw_round_times(fleets, times, shape) for shape in (WIDE, NARROW)],
            _add(written, f"round-times-scheme-{number}.png"),
        )
        sections.append(drawing)
    sections += [
        _section(simulation, one, number, written) for number, one in enumerate(simulation.fleets, 1)
    ]
    costs = [simulation.costs.describe(), costs_table(simulation.costs.models.values()), *simulation.notes]
    names = [one.fleet.name for one in simulation.fleets]
    machine = simulation.costs.to_json()["machine"] or {}
    counts = {
        "fleet": len(names),
        "scheme": len(simulation.schemes),
        "method": len(simulation.fleets[0].runs[simulation.schemes[0]]),
        "round": max(one.rounds for one in simulation.fleets),
    }
    size = ", ".join(f"{count:,} {noun}{'' if count == 1 else 's'}" for noun, count in counts.items())
    page = render_page(
        " and ".join(names) if len(names) < 3 else f"{len(names)} fleets side by side",
        (),
        f"{size}. Computed from costs: nothing was trained and nothing encrypted.",
        [*sections, Section("Costs", costs), Section("How to read this", [Terms(_TERMS)])],
        beside=[
            Section("Settings", [Facts(_settings(simulation))]),
            *([Section("Machine of the costs", [Facts(machine)])] if machine else []),
        ],
        files=written,
    )
    write_whole(_add(written, "index.html"), page)
    return written


def _add(written: list[Path], name: str) -> Path:
    written.append(written[0].with_name(name))
    return written[-1]


def _drawing(title: str, explanation: str, figures: Sequence[Figure], path: Path) -> Section:
    write_whole(path, render_png(figures[0]))
    shapes = dict(zip(("wide", "narrow"), figures, strict=True))
    return Section(title, [inline_drawing(path.stem, title, explanation, shapes)])


def _section(simulation: FleetSimulation, one: SimulatedFleet, number: int, written: list[Path]) -> Section:
    fleet, clusters = one.fleet, len(one.fleet.cluster_names)
    blocks: list[Any] = [
        f"{fleet.size:,} clients{f' in {clusters} clusters' if clusters > 1 else ''}, "
        f"{fleet.model.parameters:,} parameters"
    ]
    for at, (scheme, runs) in enumerate(one.runs.items(), 1):
        of_scheme = _of_scheme(scheme, runs, _add(written, f"gantt-fleet-{number}-scheme-{at}.png"))
        blocks += [Section(scheme, of_scheme, folded=at > 1)] if len(one.runs) > 1 else of_scheme
    indices = simulation.straggler_indices(fleet)
    drawing = _drawing(
        "Straggler index by budget",
        "How many times as long as the median client the slowest one takes when all encrypt the same share.",
        [draw_straggler_index(indices, shape=shape) for shape in (WIDE, NARROW)],
        _add(written, f"straggler-index-fleet-{number}.png"),
    )
    blocks.append(drawing)
    return Section(fleet.name, blocks)


def _of_scheme(scheme: str, runs: list[FleetRounds], path: Path) -> list[Any]:
    summaries = [summarise(rounds) for rounds in runs]
    blocks: list[Any] = [Section("Methods", [methods_table(summaries)])]
    drawing = _drawing(
        f"First round, {scheme}",
        "A bar for each client, the slowest first; all panels have the same axis.",
        [draw_gantt(runs, shape=shape) for shape in (WIDE, NARROW)],
        path,
    )
    clients = [Section(one.plan.method, [clients_table(one)], folded=True) for one in runs]
    notes = [f"{one.method}: {line}" for one in summaries for line in remarks(one)]
    return [*blocks, *notes, drawing, Section("Clients", clients)]


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


def methods_table(summaries: Sequence[FleetSummary]) -> Table:
    cells = [
        {
            "method": one.method,
            **summary_cells(one),
            "down": bytes_text(one.bytes_down),
            "short of budget": f"{one.clients_short_of_budget:,}",
        }
        for one in summaries
    ]
    return Table("Methods", list(cells[0]), [list(row.values()) for row in cells])


def clients_table(rounds: FleetRounds) -> Table:
    heads, rows = client_cells(rounds, MOST_CLIENT_ROWS)
    left_out = rounds.fleet.size - len(rows)
    note = f"The {len(rows)} slowest; simulation.json also has the other {left_out:,}." if left_out else ""
    return Table(f"Clients under {rounds.plan.method}", heads, rows, note)


def costs_table(models: Iterable[CostModel]) -> Table:
    rows = []
    for one in (model.scheme for model in models):
        times = (one.encrypt_seconds[1], one.add_seconds, one.open_seconds)
        sizes = (one.name, f"{one.values_per_ciphertext:,}", f"{one.ciphertext_bytes:,.0f}")
        rows.append([*sizes, *(short_seconds_text(seconds) for seconds in times), f"{one.serial_share:.1%}"])
    heads = ["scheme", "values", "bytes", "encrypt", "add", "open", "serial share"]
    note = "Of a ciphertext, on one core; serial share: what more cores do not shorten of encryption."
    return Table("Costs", heads, rows, note)
