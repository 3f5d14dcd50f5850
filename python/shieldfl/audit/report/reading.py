"""How a report reads an audit's cells: in which tables they stand, and what each says in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from shieldfl.audit.result import NOT_TRIED, AuditResult, Cell, Verdict
from shieldfl.reporting.quantities import MISSING

__all__ = [
    "MEANINGS",
    "AttackTable",
    "above_chance",
    "attack_tables",
    "decimal",
    "figure_text",
    "interval_text",
    "notes_of",
    "others_text",
    "spoken",
    "word",
]

MEANINGS = {
    "LnAcc": "Label number accuracy: the share of the classes of which the attack says right how many samples there "
    "are, 0 to 1. Chance is the best that one number, the same for every class, comes to, in hindsight.",
    "IIP": "Image identification precision: the share of the recovered images whose nearest, in a pool of the client's "
    "images and public ones, is one of the client's, 0 to 1. Chance is the client's share of that pool.",
    "correlation": "Of the shares of the classes that are predicted of clients with the true ones, both without the "
    "mean of the clients that the attacker learned from, -1 to 1. Chance is 0.",
    "TPR at 1 % FPR": "The share of a model's training samples that are found where one in a hundred others is taken "
    "for one, 0 to 1. Chance is 1 %.",
    "values told": "The share of a client's encrypted values that a lie of the aggregator's tells, to a hundredth of "
    "their root mean square, 0 to 1. Chance is what the mean of all clients tells, as an honest round opens it.",
}
"""What figures are, by name, and chance beside them."""
_UNITS = {"PSNR": " dB"}
_CLASSES: dict[Verdict, str] = {
    "all": "all",
    "some": "some",
    "chance": "nothing",
    "too few trials": "unknown",
    "not attacked": "unknown",
}
"""How the page colours a cell."""


@dataclass(frozen=True)
class AttackTable:
    """The cells of one attack: methods by parties."""

    attack: str
    measured_by: str
    """The name of the figure; empty where there is none."""
    methods: tuple[str, ...]
    parties: tuple[str, ...]
    cells: Mapping[tuple[str, str], Cell]
    """By method and party, each pair of them."""
    colours: Mapping[tuple[str, str], str]
    """The class of each cell in the page."""

    def of_method(self, method: str) -> list[Cell]:
        """Return a method's cells, party by party."""
        return [self.cells[method, party] for party in self.parties]


def attack_tables(result: AuditResult) -> list[AttackTable]:
    """Return a table for each attack, in the result's order."""
    tables = []
    for attack in dict.fromkeys(cell.attack for cell in result.cells):
        cells = {(cell.method, cell.party): cell for cell in result.cells if cell.attack == attack}
        tables.append(
            AttackTable(
                attack,
                next((cell.measured_by for cell in cells.values() if cell.measured_by), ""),
                tuple(dict.fromkeys(method for method, _ in cells)),
                tuple(dict.fromkeys(party for _, party in cells)),
                cells,
                {place: _CLASSES[result.verdict(cell)] for place, cell in cells.items()},
            )
        )
    return tables


def notes_of(result: AuditResult) -> list[str]:
    """Return what the audit noted, and why there is no figure where an attack was not tried, methods together."""
    methods: dict[str, dict[str, None]] = {}
    for cell in result.cells:
        if cell.status in NOT_TRIED:
            methods.setdefault(f"{cell.attack}, {cell.status}: {cell.reason}", {})[cell.method] = None
    return [*result.notes, *(f"{', '.join(names)}: {reason}" for reason, names in methods.items())]


def word(result: AuditResult, cell: Cell) -> str:
    """Say what a cell comes to: its verdict where there is a figure, and else why there is none."""
    return result.verdict(cell) if cell.status == "attacked" else cell.status


def decimal(value: float) -> str:
    """Return a figure from 0 to 1 with the digits that a table has room for."""
    return f"{value:.2f}" if math.isfinite(value) else MISSING


def interval_text(cell: Cell) -> str:
    """Return between what a figure lies: ``"0.80 to 0.95"``."""
    return f"{decimal(cell.low)} to {decimal(cell.high)}" if math.isfinite(cell.low) else MISSING


def figure_text(cell: Cell) -> str:
    """Return the figure and chance of a cell that was attacked: ``"0.85 (0.55)"``."""
    return f"{decimal(cell.figure)} ({decimal(cell.chance)})"


def others_text(cell: Cell) -> str:
    """Return the further figures of a cell: ``"PSNR 12.3 dB"``."""
    return ", ".join(f"{name} {value:.3g}{_UNITS.get(name, '')}" for name, value in cell.others.items())


def above_chance(cell: Cell) -> float:
    """Return how much an attack got of what chance leaves, at most 1: 0 is chance, below it less than that.

    So cells of different chance are put in an order; a complete success comes before all others.
    """
    return (cell.figure - cell.chance) / (1.0 - cell.chance) if cell.chance < 1.0 else 0.0


def spoken(party: str) -> str:
    """Return a party within a sentence."""
    return f"the {party}"
