"""Where simulations and plans take their costs from: a device profile, or the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import typer

from shieldfl.errors import ParameterError
from shieldfl.fleet.costs.cost_model import CostModel
from shieldfl.fleet.costs.device_profile import DeviceProfile, load_profile
from shieldfl.fleet.fleet import Fleet
from shieldfl.fleet.simulate.cost_source import CostSource
from shieldfl.fleet.simulate.paper_costs import paper_cost_model

__all__ = ["check_costs", "load_costs"]


def check_costs(profile: Path | None, paper: bool, schemes: Sequence[str] | None) -> None:
    """Refuse options that name no costs, or costs twice."""
    if (profile is not None) == paper:
        raise typer.BadParameter(
            "give either --profile FILE, which shieldfl profile calibrate writes, or --paper-costs"
        )
    if paper and schemes is not None:
        raise typer.BadParameter("--scheme is for --profile: the paper's costs are those of one scheme")


def load_costs(profile: Path | None, schemes: Sequence[str] | None, fleets: Sequence[Fleet]) -> CostSource:
    """Read the costs of some schemes, None for all, or take the paper's, and those of clients' own profiles.

    Raises DataError for a file that is no profile, ParameterError for fleets that these costs do not suit.
    """
    if profile is None:
        if any(kind.profile for fleet in fleets for kind in fleet.kinds):
            raise ParameterError("a client names a device profile, and the paper's costs have no use for one")
        model = paper_cost_model()
        source = CostSource({model.scheme.name: model}, None)
        source.check(fleets)
        return source
    measured = load_profile(profile)
    chosen = measured.scheme_names if schemes is None else schemes
    for name in chosen:
        if name not in measured.scheme_names:
            raise typer.BadParameter(
                f"{name!r} is not in the profile: choose from {', '.join(measured.scheme_names)}",
                param_hint="--scheme",
            )
    paths = dict.fromkeys(kind.profile for fleet in fleets for kind in fleet.kinds if kind.profile)
    own = {path: load_profile(path) for path in paths}
    models = {name: _with_clients(measured.cost_model(name), name, own) for name in chosen}
    source = CostSource(models, measured, own)
    source.check(fleets)
    return source


def _with_clients(base: CostModel, scheme: str, profiles: Mapping[str, DeviceProfile]) -> CostModel:
    clients = {}
    for path, profile in profiles.items():
        if scheme not in profile.scheme_names:
            raise ParameterError(
                f"the device profile {path}, which a client names, lacks {scheme}: calibrate it there, or leave it out "
                "by --scheme"
            )
        costs = profile.cost_model(scheme)
        sizes = (costs.scheme.values_per_ciphertext, costs.scheme.ciphertext_bytes)
        if sizes != (base.scheme.values_per_ciphertext, base.scheme.ciphertext_bytes):
            raise ParameterError(
                f"the device profile {path} has {scheme} with other parameters: calibrate both alike"
            )
        clients[path] = costs
    return replace(base, clients=clients)
