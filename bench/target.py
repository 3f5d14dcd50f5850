"""A figure that the library is held to: what it must reach, and whether it does in this run.

Sizes are those of the full run unless ``quick``
makes them small, which shows that everything works and says nothing about speed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Target:
    """One line: a figure beside what it has to reach."""

    figure: str
    measured: float | None
    """None where this machine or this installation cannot measure it; the note says why."""
    target: float
    stretch: float
    unit: str
    at_least: bool
    """Whether more is better."""
    note: str = ""

    @property
    def verdict(self) -> str:
        """``stretch``, ``met``, ``missed`` or ``not measured``."""
        if self.measured is None:
            return "not measured"
        sign = 1.0 if self.at_least else -1.0
        if sign * self.measured >= sign * self.stretch:
            return "stretch"
        return "met" if sign * self.measured >= sign * self.target else "missed"

    def to_json(self) -> dict[str, object]:
        """Return plain JSON types."""
        return asdict(self) | {"verdict": self.verdict}


def at_least(figure: str, measured: float | None, target: float, stretch: float, note: str = "") -> Target:
    """Make a line for a ratio that should be large."""
    return Target(figure, measured, target, stretch, "×", True, note)


def at_most(
    figure: str, measured: float | None, target: float, stretch: float, unit: str = "×", note: str = ""
) -> Target:
    """Make a line for a figure that should be small."""
    return Target(figure, measured, target, stretch, unit, False, note)


@dataclass(frozen=True)
class Sizes:
    """How many values and repetitions the figures are measured with."""

    dense: int = 1_000_000
    sparse: int = 25_000_000
    masks: int = 10_000_000
    noise: int = 10_000_000
    repetitions: int = 9
    seconds: float = 10.0
    baseline_values: int = 48 * 4096


QUICK = Sizes(
    dense=20_000,
    sparse=100_000,
    masks=100_000,
    noise=100_000,
    repetitions=1,
    seconds=0.0,
    baseline_values=4096,
)


def print_targets(targets: list[Target], console: Console) -> None:
    """Print one line for each figure, and the notes below."""
    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    table.add_column("figure", overflow="fold")
    for column in ("measured", "target", "stretch", ""):
        table.add_column(column, justify="right", no_wrap=True)
    for target in targets:
        sign = "≥" if target.at_least else "≤"
        measured = "–" if target.measured is None else _number(target.measured, target.unit, "#.3g")
        limits = [f"{sign} {_number(limit, target.unit)}" for limit in (target.target, target.stretch)]
        table.add_row(target.figure, measured, *limits, target.verdict)
    console.print(table)
    for target in targets:
        if target.note:
            console.print(f"{target.figure}: {target.note}", soft_wrap=True)


def _number(value: float, unit: str, form: str = ".3g") -> str:
    text = f"{value:,.0f}" if value >= 100 else f"{value:{form}}"
    return f"{text} {unit}"
