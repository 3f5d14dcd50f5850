"""What ``distributed_noise_accuracy.py`` has found so far, and the table of it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from distributed_noise_task import Choice, Task
from shieldfl.lab.bench.comparison import describe_machine

EPSILONS = (8.0, 4.0, 2.0, 1.0)
METHODS = ("fedavg", "central-dp-fedavg", "dp-fedavg", "ddp-fedavg")


def commit() -> str:
    """Return the commit that runs, with a plus where the working tree differs from it."""
    found = subprocess.run(
        ["git", "describe", "--always", "--dirty=+", "--exclude=*"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent,
    )
    return found.stdout.strip() or "unknown"


class Results:
    """A JSON file of cells, written after each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        known = json.loads(path.read_text()) if path.exists() else {}
        self.tried: list[dict[str, Any]] = known.get("tried", [])
        self.cells: list[dict[str, Any]] = known.get("cells", [])
        self.machine: dict[str, Any] = known.get("machine", {}) or describe_machine()

    def write(self) -> None:
        """Write everything, in the place of the file at once."""
        whole = {"machine": self.machine, "tried": self.tried, "cells": self.cells}
        partial_file = self._path.with_suffix(".part")
        partial_file.write_text(json.dumps(whole, indent=1) + "\n")
        partial_file.replace(self._path)

    def chosen(self, task: Task, dataset: str) -> Choice | None:
        """Return what was best of what was tried; None before all was."""
        tried = {Choice(one["learning_rate"], one["clip_norm"]): one for one in self.tried_on(task, dataset)}
        if set(tried) < set(task.choices):
            return None
        return max(task.choices, key=lambda choice: tried[choice]["accuracy"])

    def tried_on(self, task: Task, dataset: str) -> list[dict[str, Any]]:
        """Return what was tried on a data set's held-out samples."""
        return _of(self.tried, task, dataset)

    def measured_on(self, task: Task, dataset: str) -> list[dict[str, Any]]:
        """Return what was measured on its test samples."""
        return _of(self.cells, task, dataset)


def _of(figures: list[dict[str, Any]], task: Task, dataset: str) -> list[dict[str, Any]]:
    # What names no task was measured before there was a second one.
    return [
        one for one in figures if one["dataset"] == dataset and one.get("task", "convolution") == task.name
    ]


def with_deviation(values: Sequence[float], sign: str = "") -> str:
    """Return mean and standard deviation of percentages; of one value alone, it."""
    spread = f" ± {100 * stdev(values):.2f}" if len(values) > 1 else ""
    return f"{100 * mean(values):{sign}.2f}{spread}"


def table(results: Results, task: Task, dataset_name: str, draws: str, seeds: Sequence[int]) -> str:
    """Return the Markdown table: means over seeds, and differences of the same seed."""
    by_cell = {
        (one["method"], one["epsilon"], one["seed"]): one["accuracy"]
        for one in results.measured_on(task, dataset_name)
        if one["draws"] == draws
    }
    heads = ["ε", *(f"`{name}`" for name in METHODS), "`ddp-fedavg` less `central-dp-fedavg`"]
    lines = [heads, ["---:"] * len(heads)]
    for epsilon in EPSILONS:
        row = [f"{epsilon:g}"]
        for name in METHODS:
            at = None if name == "fedavg" else epsilon
            found = [by_cell[name, at, seed] for seed in seeds if (name, at, seed) in by_cell]
            row.append(
                with_deviation(found)
                if len(found) == len(seeds)
                else f"missing ({len(found)} of {len(seeds)})"
            )
        pairs = [
            (by_cell.get(("ddp-fedavg", epsilon, seed)), by_cell.get(("central-dp-fedavg", epsilon, seed)))
            for seed in seeds
        ]
        whole = [own - other for own, other in pairs if own is not None and other is not None]
        row.append(with_deviation(whole, "+") if len(whole) == len(seeds) else "missing")
        lines.append(row)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
