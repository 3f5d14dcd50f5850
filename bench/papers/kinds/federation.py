"""Rows that are runs of one method, as ``shieldfl.run`` makes them; figures are means over the seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import fmean
from typing import Any

import numpy as np

from papers.kinds import Measured
from shieldfl.errors import DataError
from shieldfl.lab.simulation.compared_runs import FIGURES as OF_RUNS
from shieldfl.lab.simulation.compared_runs import Spread
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.lab.simulation.runner import run_seeds
from shieldfl.methods.registry import MethodSettings, checked_methods
from shieldfl.settings import read_settings, refuse_unknown

__all__ = ["FIGURES", "check", "measure"]

FIGURES = tuple(OF_RUNS)
_KEYS = ("method", "run", "settings", "seeds", "without_extremes", "against")


def check(settings: Mapping[str, Any]) -> None:
    """Raise ParameterError for an unknown method, or settings that a run or a method does not have."""
    refuse_unknown(settings, _KEYS, "federation")
    _read(settings)


def _read(settings: Mapping[str, Any]) -> tuple[RunConfig, tuple[str, ...], MethodSettings]:
    methods = checked_methods([settings.get("method", ""), *settings.get("against", [])])
    own = settings.get("settings", {})
    chosen = MethodSettings().changed(methods[0], own) if own else MethodSettings()
    return read_settings(RunConfig, settings.get("run", {}), "run"), methods, chosen


def measure(settings: Mapping[str, Any]) -> Measured:
    """Run the method once for each seed. Raises DataError for a run that ended before its last round.

    ``against`` is a list with another method, run on the same: then each figure is that method's over this one's, how
    many times less this one takes.
    """
    config, methods, chosen = _read(settings)
    seeds = settings.get("seeds", [0])
    compared = run_seeds(config, methods, seeds, chosen)
    for seed, result in (
        (seed, one) for seed, run in zip(seeds, compared.runs, strict=True) for one in run.methods
    ):
        if len(result.rounds) < config.rounds:
            raise DataError(
                f"with seed {seed} it broke down after {len(result.rounds)} rounds: {result.notes[-1]}"
            )
    figures = {}
    for name, figure in OF_RUNS.items():
        read = [[figure.read(result) for result in run.methods] for run in compared.runs]
        values = [one[0] if len(one) == 1 else one[1] / one[0] if one[0] else math.nan for one in read]
        drops = settings.get("without_extremes", False)
        figures[name] = Spread(np.array(values)).mean_without_extremes if drops else fmean(values)
        if len(values) > 1:
            figures[f"{name} deviation"] = Spread(np.array(values)).deviation
    return figures
