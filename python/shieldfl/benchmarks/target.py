"""A figure beside what it has to reach, where something is asked of it, and whether it does in this run."""

from __future__ import annotations

from dataclasses import asdict, dataclass

__all__ = ["Target", "at_least", "at_most"]


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
