"""What tables say of simulated fleets, for the terminal and for the report."""

from __future__ import annotations

from shieldfl.lab.fleet.fleet_simulation import FleetSummary, client_rows
from shieldfl.lab.fleet.round_simulation import STAGES, FleetRounds
from shieldfl.quantities import MISSING, bytes_text, seconds_text, share_text


def summary_cells(one: FleetSummary) -> dict[str, str]:
    least, most = (share_text(share) for share in (one.least_encrypted_share, one.most_encrypted_share))
    return {
        "round": seconds_text(one.round_seconds),
        "update": seconds_text(one.slowest_client_seconds),
        "index": MISSING if one.straggler_index is None else f"{one.straggler_index:.2f}",
        "idle": MISSING if one.idle_share is None else f"{one.idle_share:.0%}",
        "up": bytes_text(one.bytes_up),
        "encrypted": most if least == most else f"{least} – {most}",
        "union": share_text(one.union_share),
        "slowest": one.straggler,
    }


def remarks(one: FleetSummary) -> list[str]:
    lines, rounds = [], f"{one.rounds:,} round{'' if one.rounds == 1 else 's'}"
    if one.clients_short_of_budget:
        lines.append(
            f"budgets smaller than what security asks for: {one.clients_short_of_budget:,} of {one.clients:,} clients"
        )
    if one.dropouts:
        wasted = seconds_text(one.wasted_seconds)
        lines.append(f"dropouts: {one.dropouts:,} in {rounds}, {wasted} of clients wasted")
    if one.failed_rounds:
        lines.append(f"totals of too few clients to be opened: {one.failed_rounds:,} in {rounds}")
    return lines


def client_cells(rounds: FleetRounds, most: int | None = None) -> tuple[list[str], list[list[str]]]:
    """Return heads and rows of a table of clients, in the fleet's order, or the ``most`` slowest first."""
    clients = client_rows(rounds)
    if most is not None:
        mean = rounds.client_seconds.mean(axis=0)
        clients = [clients[client] for client in (-mean).argsort(kind="stable")[:most]]
    cells = {
        "client": [row["client"] for row in clients],
        "cluster": [row["cluster"] for row in clients],
        "values": [f"{row['encrypted_values']:,}" for row in clients],
    }
    for head, name in {
        **dict(zip(STAGES, STAGES, strict=True)),
        "wait": "idle",
        "download": "download",
    }.items():
        cells[head] = [seconds_text(row[f"{name}_seconds"]) for row in clients]
    cells["up"] = [bytes_text(row["bytes_up"]) for row in clients]
    cells["dropouts"] = [str(row["dropouts"]) for row in clients]
    if len(rounds.fleet.cluster_names) == 1:
        del cells["cluster"]
    if not rounds.dropped.any():
        del cells["dropouts"]
    return list(cells), [list(row) for row in zip(*cells.values(), strict=True)]


def short_seconds_text(seconds: float) -> str:
    if seconds >= 0.9995e-3:
        return seconds_text(seconds)
    return f"{seconds * 1e9:.3g} ns" if seconds < 0.9995e-6 else f"{seconds * 1e6:.3g} µs"
