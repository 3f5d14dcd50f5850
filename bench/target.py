"""A figure beside what it has to reach, and timing functions against each other."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median

from shieldfl.cli.console import ResultConsole, result_table


@dataclass(frozen=True)
class Target:
    """One line: a figure beside what it has to reach."""

    figure: str
    measured: float | None
    """None where this machine or this installation cannot measure it; the note says why."""
    target: float | None
    """None for a figure of which nothing is asked."""
    stretch: float | None
    """More than is asked of it; None where nothing is."""
    unit: str
    at_least: bool
    """Whether more is better."""
    note: str = ""

    @property
    def verdict(self) -> str:
        """``stretch``, ``met``, ``missed`` or ``not measured``; nothing where nothing is asked."""
        if self.measured is None:
            return "not measured"
        if self.target is None:
            return ""
        sign = 1.0 if self.at_least else -1.0
        if self.stretch is not None and sign * self.measured >= sign * self.stretch:
            return "stretch"
        return "met" if sign * self.measured >= sign * self.target else "missed"

    def to_json(self) -> dict[str, object]:
        """Return plain JSON types."""
        return asdict(self) | {"verdict": self.verdict}


def at_least(
    figure: str, measured: float | None, target: float, stretch: float | None = None, note: str = ""
) -> Target:
    """Make a line for a ratio that should be large."""
    return Target(figure, measured, target, stretch, "×", True, note)


def at_most(
    figure: str,
    measured: float | None,
    target: float | None,
    stretch: float | None = None,
    unit: str = "×",
    note: str = "",
) -> Target:
    """Make a line for a figure that should be small."""
    return Target(figure, measured, target, stretch, unit, False, note)


def median_seconds_in_turns(
    functions: Mapping[str, Callable[[], object]],
    repetitions: int,
    before: Callable[[], object] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Return the median seconds of each function, after one call of each that is not counted.

    They take turns, so that a slow spell of the machine hits all alike.

    ``before`` is called before each of them and not timed. ``clock`` is ``time.process_time`` where other programs keep
    the processor busy, and what is timed has one thread.
    """
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for function in functions.values():
        function()
    for _ in range(repetitions):
        for name, function in functions.items():
            before()
            begin = clock()
            result = function()
            seconds[name].append(clock() - begin)
            del result  # before the next one is timed: giving memory back is nobody's time but its own
    return {name: median(times) for name, times in seconds.items()}


def print_targets(targets: Sequence[Target], console: ResultConsole) -> None:
    """Print one line for each figure, and the notes below; without columns that none of them fills."""
    rows = [
        (
            target.figure,
            "–" if target.measured is None else _number(target.measured, target.unit, "#.3g"),
            *(_limit(target, limit) for limit in (target.target, target.stretch)),
            target.verdict,
        )
        for target in targets
    ]
    heads = ("figure", "measured", "target", "stretch", "")
    filled = [column for column in range(len(heads)) if any(row[column] for row in rows)]
    console.print(
        result_table(
            [heads[column] for column in filled], [[row[column] for column in filled] for row in rows]
        )
    )
    console.say(*(f"{target.figure}: {target.note}" for target in targets if target.note))


def _limit(target: Target, limit: float | None) -> str:
    return "" if limit is None else f"{'≥' if target.at_least else '≤'} {_number(limit, target.unit)}"


def _number(value: float, unit: str, form: str = ".3g") -> str:
    text = f"{value:,.0f}" if value >= 100 else f"{value:{form}}"
    return f"{text} {unit}"
