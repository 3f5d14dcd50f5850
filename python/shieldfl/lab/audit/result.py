"""What an audit found: a cell for each method, attack and party, and how it is to be read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import torch

UNDEFENDED = "fedavg"
"""Plain averaging: what every audit runs beside the methods that it is asked for."""

FEWEST_TRIES = 5
"""Below which no interval is believed: the bootstrap draws from nothing but the tries that there are."""

Status = Literal["attacked", "nothing received", "does not apply", "not attacked"]
NOT_TRIED = ("does not apply", "not attacked")
"""What a cell may be without anything being known."""

Verdict = Literal["chance", "some", "all", "too few trials", "not attacked"]


@dataclass(frozen=True)
class Example:
    """Images that an attack recovered, each beside the client's that it is paired with and its nearest other one.

    Three float32 tensors (k, *sample_shape) of one value range.
    """

    recovered: torch.Tensor
    true: torch.Tensor
    neighbour: torch.Tensor
    """Of the public images the nearest to the true one: what somebody may take for a success who does not know it."""
    value_range: tuple[float, float]


@dataclass(frozen=True)
class Outcome:
    """The figure that an attack is judged by, and others beside it."""

    figure: float
    """In [0, 1]."""
    chance: float
    """The same figure for who guesses without the update."""
    others: dict[str, float] = field(default_factory=dict)
    """By name."""
    example: Example | None = None
    """What there is to look at; None where no image was recovered."""
    remark: str = ""
    """The attack's own."""


@dataclass(frozen=True)
class Cell:
    """What one attack got of one method's clients for one party, at its strongest.

    An attack is tried on every round, message and sum, and with every guess for what is hidden; the form with the
    highest mean is the cell's. So its figure is a maximum, and lies above chance by chance as well.
    """

    method: str
    attack: str
    party: str
    status: Status
    reason: str = ""
    """Why there is no figure; empty where there is one."""
    measured_by: str = ""
    """The name of the figure."""
    figure: float = math.nan
    """Mean over the tries."""
    low: float = -math.inf
    high: float = math.inf
    """Of the mean, 95 %, by bootstrap over tries."""
    chance: float = math.nan
    """What a guess without the update has, mean over the same tries."""
    tries: int = 0
    form: str = ""
    """What the strongest attack was on: the round, the message or sum, the guess for hidden positions."""
    others: Mapping[str, float] = field(default_factory=dict)
    """Further figures of the same form, means."""
    example: Example | None = None
    """Images of the first try of that form, where there are any; they are not part of the JSON."""

    def verdict(self, undefended: Cell | None) -> Verdict:
        """Say what was got, beside the same attack on an undefended update; ``chance`` is never ``safe``.

        ``all``: no less than of the undefended one, by intervals that overlap. A status without a figure is read alike
        for whoever looks at colours: a party that received nothing has what chance has.
        """
        if self.status == "nothing received":
            return "chance"
        if self.status != "attacked":
            return "not attacked"
        if self.tries < FEWEST_TRIES:
            return "too few trials"
        if self.low <= self.chance:
            return "chance"
        if undefended is not None and self.high >= undefended.low:
            return "all"
        return "some"

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types: numbers that are none are null."""
        facts = asdict(replace(self, example=None))
        del facts["example"]
        return {name: _plain(one) for name, one in facts.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return {name: _plain(one) for name, one in value.items()} if isinstance(value, Mapping) else value


@dataclass
class AuditResult:
    """All cells of an audit, and what it was run on."""

    config: dict[str, Any]
    environment: dict[str, Any]
    dataset: str
    model: str
    cells: list[Cell] = field(default_factory=list)
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)
    """What a reader must know: methods of which no trial was had, and why."""

    def undefended(self, attack: str) -> Cell | None:
        """Return the cell of an attack on plain averaging for the aggregator; None where it was not tried."""
        for cell in self.cells:
            if (cell.method, cell.attack, cell.party) == (UNDEFENDED, attack, "aggregator"):
                return cell if cell.status == "attacked" else None
        return None

    def verdict(self, cell: Cell) -> Verdict:
        """Return what a cell says, beside the undefended one."""
        return cell.verdict(self.undefended(cell.attack))

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "config": self.config,
            "environment": self.environment,
            "dataset": self.dataset,
            "model": self.model,
            "seconds": self.seconds,
            "notes": self.notes,
            "cells": [cell.to_json() | {"verdict": self.verdict(cell)} for cell in self.cells],
        }


def in_words(cells: Sequence[Cell]) -> list[str]:
    """Say what attacks came to, what is the same of several methods once."""
    methods: dict[tuple[str, str, str], list[str]] = {}
    for cell in cells:
        if cell.status == "attacked":
            methods.setdefault((cell.attack, cell.form, cell.party), []).append(cell.method)
    parties: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for (attack, form, party), names in methods.items():
        parties.setdefault((attack, form, tuple(names)), []).append(party)
    return [
        f"{attack} on {', '.join(names)}, for {' and '.join(who)}: {form}"
        for (attack, form, names), who in parties.items()
    ]
