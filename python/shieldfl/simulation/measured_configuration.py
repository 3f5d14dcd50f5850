"""What one configuration of a method came to in its runs, and how far attacks got: what a choice looks at."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shieldfl.errors import DataError, ParameterError

if TYPE_CHECKING:
    from shieldfl.simulation.compared_runs import ComparedRuns

__all__ = ["COSTS", "SHARES", "MeasuredConfiguration", "worst_success_rate"]

SHARES = ("attack_success_rate", "accuracy")
"""Figures that are shares of 1."""
COSTS = ("bytes_to_convergence", "seconds_to_convergence", "converged_round")
"""Figures that only a run that has converged has, in the order in which Alt-FL looks at them (section IX)."""


@dataclass(frozen=True, kw_only=True)
class MeasuredConfiguration:
    """One configuration: a method with its settings. A figure is None, or NaN, where there is none.

    Raises ParameterError for a share outside [0, 1], and for a cost that is negative or infinite.
    """

    name: str
    """What it is called in a choice, such as ``"PI, rho = 1/2"``."""
    attack_success_rate: float | None = None
    """A share of 1: the largest over the attacks, in Alt-FL of IIP. None where none was run."""
    accuracy: float | None = None
    """On the test set, a share of 1; in Alt-FL of the best round."""
    bytes_to_convergence: float | None = None
    """What a client sent and received until then. None, as both costs below, where it did not converge."""
    seconds_to_convergence: float | None = None
    """Of all rounds until then."""
    converged_round: float | None = None
    """Rounds until then."""

    def __post_init__(self) -> None:
        for name in (*SHARES, *COSTS):
            value = self.figure(name)
            if name in SHARES and not (math.isnan(value) or 0.0 <= value <= 1.0):
                raise ParameterError(f"{self.name}: {name} is a share from 0 to 1, not {value:g}")
            if name in COSTS and not (math.isnan(value) or 0.0 <= value < math.inf):
                raise ParameterError(
                    f"{self.name}: {name} is a number of at least 0, not {value:g}; None where it did not converge"
                )

    def figure(self, name: str) -> float:
        """Return one of :data:`SHARES` or :data:`COSTS` by its name, NaN where there is none."""
        value: float | None = getattr(self, name)
        return math.nan if value is None else float(value)

    @classmethod
    def of_runs(
        cls, name: str, runs: ComparedRuns, method: str, attack_success_rate: float | None = None
    ) -> MeasuredConfiguration:
        """Return the figures of a method's runs, one for each seed, as Alt-FL's section VII reports them.

        The accuracy is that of each run's best round. Of three runs or more each figure is the mean without the least
        and the largest, of fewer the mean. A run that did not converge costs more than any that did: of three or more,
        one of them is the largest that is left out, and with another one the configuration has no costs. Where a run
        ended before its last round there is no accuracy.

        Parameters
        ----------
        name : what the configuration is called.
        runs : what :func:`shieldfl.run` returned, or of what ``shieldfl run --json`` wrote
            :meth:`shieldfl.simulation.compared_runs.ComparedRuns.from_json`.
        method : one of its methods.
        attack_success_rate : in [0, 1], such as :func:`worst_success_rate` of an audit; None for none.

        Raises ParameterError for a method that was not run.
        """
        several = len(runs.seeds) > 2
        best = runs.figure(method, "best_accuracy")
        costs = {cost: runs.figure(method, cost) for cost in COSTS}
        return cls(
            name=name,
            attack_success_rate=attack_success_rate,
            # An accuracy that is not known may be any, so that no mean is without the extremes.
            accuracy=best.mean_without_extremes if several and not math.isnan(best.mean) else best.mean,
            # NaN is sorted behind all numbers, as the largest.
            **{cost: one.mean_without_extremes if several else one.mean for cost, one in costs.items()},
        )


def worst_success_rate(
    audit: Mapping[str, Any], method: str, party: str = "aggregator", measured_by: str = "IIP"
) -> float | None:
    """Return how far the strongest attack on a method got, by what ``shieldfl audit --json`` wrote.

    0 for an attack to which nothing came. An attack that does not apply to the method counts for nothing. The audit's
    figure of an attack is that of the round in which it gets most; Alt-FL attacks PI in rounds of both kinds, in
    proportion, and has the mean.

    Parameters
    ----------
    audit : the file, by ``json.loads``.
    method : one that was audited.
    party : who attacks, of those that were audited.
    measured_by : the figure of the attacks that count: ``"IIP"``, Alt-FL's, of images.

    Returns
    -------
    float or None
        A share of 1. None where one of these attacks was not come to, or none applies.

    Raises
    ------
    DataError
        For what no audit wrote.
    ParameterError
        For a method, party or figure that the audit does not have.
    """
    try:
        cells = [(one["method"], one["party"], one["attack"], one) for one in audit["cells"]]
        # A cell without a figure does not say what its attack is measured by; plain averaging's, which is there, does.
        counted = {attack for _, _, attack, one in cells if one["measured_by"] == measured_by}
        known = {(of, who) for of, who, _, _ in cells}
        found = [one for of, who, attack, one in cells if (of, who) == (method, party) and attack in counted]
        states = {one["status"] for one in found}
        figures = [
            0.0 if one["status"] == "nothing received" else float(one["figure"])
            for one in found
            if one["status"] in ("nothing received", "attacked")
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            "this is no audit: give what `shieldfl audit --json FILE` wrote, read by json"
        ) from error
    if (method, party) not in known:
        names = ", ".join(sorted({f"{of} for {who}" for of, who in known}))
        raise ParameterError(f"the audit has nothing of {method} for {party}: it has {names}")
    if not counted:
        raise ParameterError(
            f"no attack of the audit is measured by {measured_by}: audit with one that is, as --attack dlg for IIP"
        )
    return None if "not attacked" in states else max(figures, default=None)
