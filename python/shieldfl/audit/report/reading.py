"""How a report reads an audit's cells: in which tables they stand, and what they say in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from shieldfl.audit.result import NOT_TRIED, UNDEFENDED, AuditResult, Cell
from shieldfl.reporting.quantities import MISSING
from shieldfl.simulation.report.summary import joined

__all__ = [
    "LIMITS",
    "MEANINGS",
    "AttackTable",
    "above_chance",
    "attack_tables",
    "decimal",
    "figure_text",
    "findings",
    "interval_text",
    "notes_of",
    "others_text",
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
LIMITS = "An attack that fails proves nothing: a better one may not. What was not attacked is not safe."
_FEW = 10
"""Tries, below which an interval that is bootstrapped is far too narrow."""
_UNITS = {"PSNR": " dB"}


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


def findings(result: AuditResult) -> list[str]:
    """Say what each attack got at most and of plain averaging, what was not tried, and what all of it does not say."""
    found = [f"{_most(result, table)} {_undefended(result, table)}" for table in attack_tables(result)]
    verdicts = [result.verdict(cell) for cell in result.cells]
    untried, few = verdicts.count("not attacked"), verdicts.count("too few trials")
    if untried or few:
        found.append(
            f"Of {len(verdicts)} cells {untried} were not attacked and {few} too few times to tell anything."
        )
    most = max(cell.tries for cell in result.cells)
    if 0 < most < _FEW:
        found.append(f"No cell has more tries than {most}: intervals of so few are too narrow.")
    return [*found, LIMITS]


def _most(result: AuditResult, table: AttackTable) -> str:
    """Say of whom the most was recovered."""
    protected = [cell for cell in table.cells.values() if cell.method != UNDEFENDED]
    above = [cell for cell in protected if result.verdict(cell) in ("some", "all")]
    if not above:
        if "chance" in [result.verdict(cell) for cell in protected if cell.status == "attacked"]:
            return f"{table.attack} got nothing above chance of any protected method."
        return f"{table.attack} was tried on no protected update often enough to tell."
    top = max(above, key=above_chance)
    parties = [
        f"the {cell.party}"
        for cell in above
        if cell.method == top.method and figure_text(cell) == figure_text(top)
    ]
    return (
        f"{table.attack} recovered most for {joined(parties)} under {top.method}: {top.measured_by} "
        f"{top.figure:.2f} where chance has {top.chance:.2f}."
    )


def _undefended(result: AuditResult, table: AttackTable) -> str:
    """Say what the attack is worth, by what it gets of plain averaging."""
    cell = result.undefended(table.attack)
    if cell is None:
        return "There is no figure of it of plain averaging, so nothing says how good it is."
    got = f"Of plain averaging, which protects nothing, the aggregator gets {cell.figure:.2f}"
    weak = "; so weak an attack tells nothing of a method" if result.verdict(cell) == "chance" else ""
    return f"{got} (chance {cell.chance:.2f}){weak}."
