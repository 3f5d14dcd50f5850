"""Markdown tables of what a run measured, for a page of the documentation.

    shieldfl run --experiment bench/experiments/FILE.toml --json run.json
    python bench/experiments/markdown_table.py run.json

The first table has a line for each method, the second one the figures of papers beside ours. Below them stands, for
each method whose encrypted share changes from round to round, that share by round, and what the run says of the
methods. Everything is read from the file: nothing is measured here.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from shieldfl.lab.simulation.compared_runs import ComparedFigure, PaperFigure
from shieldfl.quantities import accuracy_text, bytes_text, epsilon_text, seconds_text, share_text

CHANGED = 0.001


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; a cell's bars are escaped."""
    lines = [headers, ["---"] * len(headers), *rows]
    bar = "\\|"
    return "\n".join(f"| {' | '.join(cell.replace('|', bar) for cell in line)} |" for line in lines)


def method_row(method: dict[str, Any]) -> list[str]:
    rounds = method["rounds"]

    def mean(key: str) -> float:
        return float(sum(record[key] for record in rounds) / len(rounds))

    return [
        f"`{method['method']}`",
        accuracy_text(rounds[-1]["accuracy"]),
        accuracy_text(max(record["accuracy"] for record in rounds)),
        f"{method['parameters']:,}",
        share_text(sum(encrypted_shares(method)) / len(rounds)),
        bytes_text(mean("bytes_up")),
        bytes_text(mean("bytes_down")),
        seconds_text(method["seconds"] / len(rounds)),
        share_text(number(method["hidden_share"])),
        epsilon_text(number(rounds[-1]["epsilon"])),
    ]


def number(value: float | str | None) -> float:
    """Read what JSON has no number for: an infinity is text, what is undefined null."""
    return math.nan if value is None else float(value)


def encrypted_shares(method: dict[str, Any]) -> list[float]:
    return [record["zone_shares"].get("encrypted", 0.0) for record in method["rounds"]]


def compared(figure: dict[str, Any]) -> list[str]:
    stated = {key: value for key, value in figure.items() if key not in ("least", "most", "ours")}
    paper = PaperFigure(**stated, value=(figure["least"], figure["most"]))
    return list(ComparedFigure(paper, number(figure["ours"])).cells())


def report(run: dict[str, Any]) -> str:
    """Return all tables of a run that was written by ``--json``."""
    config, methods = run["config"], run["methods"]
    parts = [
        f"{run['dataset']}, {run['model']} with {run['parameters']:,} parameters, {config['clients']} clients, "
        f"{len(methods[0]['rounds'])} rounds, seed {config['seed']}. Seconds are of all clients one after the other; "
        "bytes of one client.",
        table(
            (
                "method",
                "accuracy",
                "best round",
                "trained",
                "encrypted",
                "up",
                "down",
                "round",
                "hidden from the aggregator",
                "ε",
            ),
            map(method_row, methods),
        ),
    ]
    if run.get("paper"):
        figures = ("method", "figure", "ours", "the paper's", "source")
        parts.append(table(figures, map(compared, run["paper"])))
    for method in methods:
        shares = encrypted_shares(method)
        if max(shares) - min(shares) > CHANGED:
            listed = ", ".join(f"{share:.0%}" for share in shares)
            parts.append(f"`{method['method']}` encrypted, by round, of what it trains: {listed}.")
    parts += [f"`{method['method']}`: {note}" for method in methods for note in method["notes"]]
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="a file that shieldfl run --json wrote")
    print(report(json.loads(parser.parse_args().run.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()
