"""Which of many configurations to take: Alt-FL's thresholds, applied one after another.

Source: Alt-FL, sections VIII to X. What a configuration must reach is measured from the best that was observed: a
success rate of attacks of at most the least one plus t_asr, an accuracy of at least the largest less t_acc, costs of at
most 1 + t_sc times the least. The paper compares configurations of one privacy level and one non-IIDness: choose among
those of each such pair on their own.

The paper does not say among which configurations the best is looked for once some have fallen out. Here it is looked
for among those that are left: else the order of the thresholds, by which the paper prefers accuracy to costs, would
change nothing, and all could fall out though each threshold allows for some.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from shieldfl.errors import ParameterError
from shieldfl.reporting.quantities import MISSING, bytes_text, seconds_text
from shieldfl.simulation.measured_configuration import COSTS, SHARES, MeasuredConfiguration

__all__ = ["Choice", "FallenOut", "Step", "Threshold", "choose_configurations", "cost_thresholds"]

_ROUNDING = 1e-12
_TEXTS = {"bytes_to_convergence": bytes_text, "seconds_to_convergence": seconds_text}


@dataclass(frozen=True)
class Threshold:
    """How much worse than the best a configuration may be in one figure.

    Raises ParameterError for a figure that a configuration does not have, and a tolerance that is negative, infinite or
    NaN.
    """

    figure: str
    """One of ``attack_success_rate``, ``accuracy``, ``bytes_to_convergence``, ``seconds_to_convergence`` and
    ``converged_round``."""
    tolerance: float
    """Of a success rate or an accuracy as a share of 1, added to the least or taken from the largest: 0.01 is one
    point. Of a cost as a share of the least cost: 0.5 allows for half as much again."""

    def __post_init__(self) -> None:
        known = (*SHARES, *COSTS)
        if self.figure not in known:
            raise ParameterError(f"there is no figure {self.figure!r}: choose from {', '.join(known)}")
        if not 0.0 <= self.tolerance < math.inf:
            raise ParameterError(
                f"the threshold of {self.figure} must be a number of at least 0, got {self.tolerance}"
            )

    def best(self, figures: Sequence[float]) -> float:
        """Return the best of some figures, the largest accuracy or the least of another; NaN for none."""
        known = [one for one in figures if not math.isnan(one)]
        return (max if self.figure == "accuracy" else min)(known, default=math.nan)

    def limit(self, best: float) -> float:
        """Return what is just allowed beside the best."""
        if self.figure == "accuracy":
            return best - self.tolerance
        return best + self.tolerance if self.figure in SHARES else best * (1.0 + self.tolerance)

    def allows(self, figure: float, limit: float) -> bool:
        """Whether a figure keeps to a limit: one that equals it does, whatever way the limit was rounded. NaN never."""
        if math.isclose(figure, limit, rel_tol=_ROUNDING, abs_tol=_ROUNDING):
            return True
        return figure > limit if self.figure == "accuracy" else figure < limit


@dataclass(frozen=True)
class FallenOut:
    """Why a configuration was not taken: ``str`` says it in a line."""

    name: str
    threshold: Threshold
    """The first that it did not meet."""
    value: float
    """Its figure; NaN for a cost of a run that did not converge."""
    limit: float
    """The most, or of an accuracy the least, that was allowed; NaN where no configuration that was left converged."""

    def __str__(self) -> str:
        """Name the figure, what it is and what it had to be."""
        figure = self.threshold.figure
        if math.isnan(self.value):
            return f"{self.name}: no {figure}, since it did not converge"
        side = "below" if figure == "accuracy" else "above"
        return f"{self.name}: {figure} {_text(figure, self.value)} is {side} {_text(figure, self.limit)}"


@dataclass(frozen=True)
class Step:
    """One threshold applied to the configurations that those before it had left."""

    threshold: Threshold
    best: float
    """The best figure among these configurations; NaN where none has one."""
    limit: float
    """What it came to."""
    left: tuple[str, ...]
    """Names of those that keep to it, in the order in which they were given."""
    fallen: tuple[FallenOut, ...]
    """The others, in the same order."""


@dataclass(frozen=True)
class Choice:
    """What was chosen, step by step; ``print(choice)`` shows it."""

    steps: tuple[Step, ...]
    """In the order of the thresholds."""

    @property
    def chosen(self) -> tuple[str, ...]:
        """Names of those that meet all thresholds; none where at a cost no configuration had converged."""
        return self.steps[-1].left

    @property
    def fallen(self) -> dict[str, FallenOut]:
        """By name, why each of the others was not taken."""
        return {one.name: one for step in self.steps for one in step.fallen}

    def __str__(self) -> str:
        """Return a line for each step, each that fell out in it, and what is left in the end."""
        lines = []
        for step in self.steps:
            figure = step.threshold.figure
            side = "at least" if figure == "accuracy" else "at most"
            lines.append(
                f"{figure}: {side} {_text(figure, step.limit)}, the best is {_text(figure, step.best)}; "
                f"{len(step.left)} left"
            )
            lines += [f"  {one}" for one in step.fallen]
        return "\n".join([*lines, f"chosen: {', '.join(self.chosen) or 'none'}"])


def cost_thresholds(tolerance: float) -> tuple[Threshold, ...]:
    """Return Alt-FL's t_sc (section IX): of bytes, then seconds, then rounds until convergence.

    Raises ParameterError as :class:`Threshold` does.
    """
    return tuple(Threshold(cost, tolerance) for cost in COSTS)


def choose_configurations(
    configurations: Sequence[MeasuredConfiguration], thresholds: Sequence[Threshold]
) -> Choice:
    """Apply thresholds one after another, each to the configurations that those before it have left.

    Alt-FL's questions: table III is ``[Threshold("attack_success_rate", 0.005)]``; table IV
    ``[Threshold("attack_success_rate", 0.01), Threshold("accuracy", 0.04), *cost_thresholds(0.5)]``; table V
    ``[Threshold("accuracy", 0.1), Threshold("attack_success_rate", 0.005), *cost_thresholds(0.5)]``.

    A configuration that did not converge cannot meet a threshold of a cost, whatever the others cost: it has none, and
    falls out. So nothing is left where none has converged. A success rate or an accuracy that is missing says nothing
    of the configuration, and is refused; those that fell out before need none.

    Parameters
    ----------
    configurations : of one privacy level and one partition, each with a name of its own.
    thresholds : in their order, which decides where figures disagree.

    Raises
    ------
    ParameterError
        For no configurations or no thresholds, two configurations with one name, and a success rate or an accuracy that
        a threshold needs and a configuration that is left lacks.
    """
    if not configurations:
        raise ParameterError("there is nothing to choose from: give at least one configuration")
    if not thresholds:
        raise ParameterError("nothing says what to choose by: give at least one threshold")
    names = [one.name for one in configurations]
    for name in names:
        if names.count(name) > 1:
            raise ParameterError(f"two configurations are called {name!r}: give each a name of its own")
    steps, left = [], list(configurations)
    for threshold in thresholds:
        step = _apply(threshold, left)
        steps.append(step)
        left = [one for one in left if one.name in step.left]
    return Choice(tuple(steps))


def _apply(threshold: Threshold, configurations: Sequence[MeasuredConfiguration]) -> Step:
    figures = {one.name: one.figure(threshold.figure) for one in configurations}
    missing = [name for name, figure in figures.items() if math.isnan(figure)]
    if missing and threshold.figure in SHARES:
        raise ParameterError(
            f"the threshold of {threshold.figure} needs that of {', '.join(missing)}: measure it, leave these "
            "configurations out, or put a threshold before it that they do not meet"
        )
    best = threshold.best(list(figures.values()))
    limit = threshold.limit(best)
    left = tuple(name for name, figure in figures.items() if threshold.allows(figure, limit))
    fallen = (
        FallenOut(name, threshold, figure, limit) for name, figure in figures.items() if name not in left
    )
    return Step(threshold, best, limit, left, tuple(fallen))


def _text(figure: str, value: float) -> str:
    if math.isnan(value):
        return MISSING
    return _TEXTS[figure](value) if figure in _TEXTS else f"{value:.4g}"
