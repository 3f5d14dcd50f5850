"""``shieldfl profile plan``: what a fleet can encrypt within a target round time."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Annotated, Any

import typer

from shieldfl.cli.failures import failures_on_stderr
from shieldfl.cli.json_output import is_stdout, write_json
from shieldfl.cli.profile import options
from shieldfl.cli.profile.costs import check_costs, load_costs
from shieldfl.errors import ParameterError
from shieldfl.fleet.fleet import Fleet
from shieldfl.fleet.fleet_file import load_fleet
from shieldfl.fleet.simulate.planner import Recommendation, SchemePlan, plan_round

__all__ = ["plan"]


def _positive(seconds: float) -> float:
    if not (math.isfinite(seconds) and seconds > 0.0):
        raise typer.BadParameter("must be above zero and finite")
    return seconds


def _share(share: float) -> float:
    if not 0.0 <= share <= 1.0:
        raise typer.BadParameter("must lie in [0, 1]")
    return share


def plan(
    fleet_file: options.FleetFile,
    target_seconds: Annotated[
        float,
        typer.Option(callback=_positive, help="Seconds that a round may take, from start to new model."),
    ],
    least_ratio: Annotated[
        float, typer.Option(callback=_share, help="Share of the parameters that every client must encrypt.")
    ] = 0.01,
    profile: options.ProfileFile = None,
    paper_costs: options.PaperCosts = False,
    scheme: options.Schemes = None,
    clients_table: options.ClientsTable = False,
    json_file: options.JsonFile = None,
) -> None:
    """Recommend a scheme and the share that each client encrypts so that a round takes a given time.

    Exit code 1 when no scheme meets the target.
    """
    check_costs(profile, paper_costs, scheme)
    with failures_on_stderr():
        fleet = load_fleet(fleet_file)
        costs = load_costs(profile, scheme, [fleet])
        found = plan_round(fleet, costs.models, target_seconds, least_ratio)
        notes = costs.notes([fleet])
        write_json(_to_json(found, fleet) | {"costs": costs.to_json(), "notes": notes}, json_file)
        if not is_stdout(json_file):
            from shieldfl.cli.profile.table import print_plan
            from shieldfl.cli.result_console import result_console

            console = result_console()
            print_plan(found, fleet.client_names if clients_table else (), console)
            for line in (costs.describe(), *notes):
                console.print(line, soft_wrap=True)
        if not found.feasible:
            raise ParameterError(
                f"no scheme meets {target_seconds:g} s: allow {found.best.least_round_seconds:.3g} s or more, "
                "encrypt less, or speed up what limits the round"
            )


def _to_json(found: Recommendation, fleet: Fleet) -> dict[str, Any]:
    return {
        "fleet": fleet.name,
        "target_seconds": found.target_seconds,
        "least_ratio": found.least_ratio,
        "feasible": found.feasible,
        "clients": list(fleet.client_names),
        "schemes": [_scheme_facts(one) for one in (found.best, *found.others)],
    }


def _scheme_facts(one: SchemePlan) -> dict[str, Any]:
    return asdict(one) | {"budgets": list(one.budgets), "least_budget": one.least_budget}
