"""The report of a simulation: its figures as JSON, pictures as PNG, and one page that holds everything."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from shieldfl.errors import ParameterError
from shieldfl.lab.fleet.cost_source import CostModel
from shieldfl.lab.fleet.fleet_simulation import (
    FleetSimulation,
    FleetSummary,
    SimulatedFleet,
    client_cells,
    remarks,
    short_seconds_text,
    summarise,
    summary_cells,
)
from shieldfl.lab.fleet.round_simulation import STAGES, FleetRounds
from shieldfl.lab.report.output_files import write_json, write_whole
from shieldfl.lab.report.page import (
    LINE_COLOURS,
    NARROW,
    WIDE,
    Section,
    Shape,
    Table,
    Terms,
    add_legend,
    draw_bars,
    inline_drawing,
    new_figure,
    render_png,
    set_title,
    write_page,
)
from shieldfl.quantities import bytes_text, seconds_text

MOST_CLIENT_ROWS = 200
"""Most clients in a table; a larger fleet shows its slowest clients."""
_PICTURE_NAME = re.compile(r"gantt-fleet-\d+-scheme-\d+\.png")
_MOST_BARS = 20
"""Most clients in a picture, which shows the slowest."""
_LONGEST_NAME = 24
"""Most characters of a name in a picture, which shortens longer names."""
_TERMS = {
    "Round and update": "Means over the rounds. A round goes from its start until the last client has the "
    "new model; “update” ends when the slowest client's update has arrived, before it is added up and "
    "opened.",
    "Index": "The straggler index: the slowest client's time until its update has arrived, divided by the "
    "median client's. “Slowest” names the client with the longest mean time.",
    "Idle and wait": "What clients spend waiting for others, for the aggregator and for the key authority.",
    "Up and down": "Bytes of all clients together in a round; in the tables of clients, of each.",
    "Encrypted and union": "The smallest and largest share of the parameters that a client encrypts, and the "
    "share in which the largest cluster's total is encrypted.",
    "Short of budget": "Clients whose budget is smaller than what security asks for; they encrypt what "
    "security asks for.",
}


def write_report(simulation: FleetSimulation, folder: Path) -> list[Path]:
    """Write JSON, pictures and page; return paths. Raises ParameterError for no fleet, OSError."""
    if not simulation.fleets or not simulation.schemes or not all(simulation.fleets[0].runs.values()):
        raise ParameterError("nothing was simulated: give a fleet, a scheme and a method")
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / "simulation.json"]
    if written[0].exists():
        # What an earlier report has drawn may be of more fleets and schemes.
        for path in folder.iterdir():
            if _PICTURE_NAME.fullmatch(path.name):
                path.unlink()
    write_json(written[0], simulation.to_json())
    sections = []
    if len(simulation.fleets) > 1:
        tables = [_round_times(simulation, scheme) for scheme in simulation.schemes]
        sections.append(Section("Seconds of a round", tables))
    sections += [_section(one, number, written) for number, one in enumerate(simulation.fleets, 1)]
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
    return write_page(
        written,
        " and ".join(names) if len(names) < 3 else f"{len(names)} fleets side by side",
        (),
        f"{size}. Computed from costs: nothing was trained and nothing encrypted.",
        [*sections, Section("Costs", costs), Section("How to read this", [Terms(_TERMS)])],
        beside=[
            Section("Settings", [_settings(simulation)]),
            *([Section("Machine of the costs", [machine])] if machine else []),
        ],
    )


def _round_times(simulation: FleetSimulation, scheme: str) -> Table:
    of_fleets = [one.runs[scheme] for one in simulation.fleets]
    rows = [
        [runs[0].plan.method, *(seconds_text(float(one.round_seconds.mean())) for one in runs)]
        for runs in zip(*of_fleets, strict=True)
    ]
    return Table(
        f"Seconds of a round, {scheme}", [scheme, *(one.fleet.name for one in simulation.fleets)], rows
    )


def _section(one: SimulatedFleet, number: int, written: list[Path]) -> Section:
    fleet, clusters = one.fleet, len(one.fleet.cluster_names)
    blocks: list[Any] = [
        f"{fleet.size:,} clients{f' in {clusters} clusters' if clusters > 1 else ''}, "
        f"{fleet.model.parameters:,} parameters"
    ]
    for at, (scheme, runs) in enumerate(one.runs.items(), 1):
        written.append(written[0].with_name(f"gantt-fleet-{number}-scheme-{at}.png"))
        of_scheme = _of_scheme(scheme, runs, written[-1])
        blocks += [Section(scheme, of_scheme, folded=at > 1)] if len(one.runs) > 1 else of_scheme
    return Section(fleet.name, blocks)


def _of_scheme(scheme: str, runs: list[FleetRounds], path: Path) -> list[Any]:
    summaries = [summarise(rounds) for rounds in runs]
    blocks: list[Any] = [Section("Methods", [methods_table(summaries)])]
    wide, narrow = draw_gantt(runs), draw_gantt(runs, NARROW)
    write_whole(path, render_png(wide))
    title = f"First round, {scheme}"
    explanation = "A bar for each client, the slowest first; all panels have the same axis."
    drawing = Section(title, [inline_drawing(path.stem, title, explanation, wide, narrow)])
    clients = [Section(one.plan.method, [clients_table(one)], folded=True) for one in runs]
    notes = [f"{one.method}: {line}" for one in summaries for line in remarks(one)]
    return [*blocks, *notes, drawing, Section("Clients", clients)]


def draw_gantt(runs: Sequence[FleetRounds], shape: Shape = WIDE) -> Figure:
    """Draw the first round: what each client does and waits for until it has the model, slowest first."""
    shown = [np.argsort(-rounds.client_seconds[0], kind="stable")[:_MOST_BARS] for rounds in runs]
    figure, panels = new_figure(shape, 110.0 + sum(56.0 + 16.0 * len(one) for one in shown), rows=len(runs))
    longest = 0.0
    for axes, rounds, order in zip(panels, runs, shown, strict=True):
        names = [_short(rounds.fleet.client_names[client], shape) for client in order]
        axes.set_yticks(range(len(names)), names, parse_math=False)
        axes.set_ylim(len(names) - 0.496, -0.6)
        parts = {name: rounds.stages[name] for name in STAGES}
        parts |= {"wait": rounds.idle, "download": rounds.download}
        ends = draw_bars(axes, {name: seconds[0, order] for name, seconds in parts.items()}, 0.72)
        if (lost := rounds.dropped[0, order]).any():
            places = np.flatnonzero(lost)
            axes.plot(ends[lost], places, "x", color=LINE_COLOURS[3], label="dropped out", clip_on=False)
        longest = max(longest, float(ends.max()))
        title = f"{rounds.plan.method}, {seconds_text(float(rounds.round_seconds[0]))}"
        if order.size < rounds.fleet.size:
            separator = ",\n" if shape.narrow else ", "
            title += f"{separator}the {order.size} slowest of {rounds.fleet.size:,} clients"
        set_title(axes, title, shape)
        axes.sharex(panels[-1])
        axes.tick_params(labelbottom=axes is panels[-1])
    panels[-1].set_xlim(0.0, 1.04 * longest or 1.0)
    panels[-1].xaxis.set_major_formatter("{x:,g}")
    panels[-1].set_xlabel("seconds from the start of the round")
    add_legend(figure, panels, shape, columns=3 if shape.narrow else 6)
    return figure


def _short(name: str, shape: Shape) -> str:
    longest = _LONGEST_NAME // 2 if shape.narrow else _LONGEST_NAME
    return name if len(name) <= longest else f"{name[: longest - 1]}…"


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
