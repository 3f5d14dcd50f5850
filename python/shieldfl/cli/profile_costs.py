"""Where simulations and plans take their costs from: a device profile, or the paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from shieldfl.fleet.cost_source import CostSource
from shieldfl.fleet.device_profile import load_profile
from shieldfl.fleet.paper_fleet import paper_cost_model

__all__ = ["check_costs", "load_costs"]


def check_costs(profile: Path | None, paper: bool, schemes: Sequence[str] | None) -> None:
    """Refuse options that name no costs, or costs twice."""
    if (profile is not None) == paper:
        raise typer.BadParameter(
            "give either --profile FILE, which shieldfl profile calibrate writes, or --paper-costs"
        )
    if paper and schemes is not None:
        raise typer.BadParameter("--scheme is for --profile: the paper's costs are those of one scheme")


def load_costs(profile: Path | None, schemes: Sequence[str] | None) -> CostSource:
    """Read the costs of some schemes, None for all, or take the paper's; DataError for a file that is no profile."""
    if profile is None:
        model = paper_cost_model()
        return CostSource({model.scheme.name: model}, None)
    measured = load_profile(profile)
    chosen = measured.scheme_names if schemes is None else schemes
    for name in chosen:
        if name not in measured.scheme_names:
            raise typer.BadParameter(
                f"{name!r} is not in the profile: choose from {', '.join(measured.scheme_names)}",
                param_hint="--scheme",
            )
    return CostSource({name: measured.cost_model(name) for name in chosen}, measured)
