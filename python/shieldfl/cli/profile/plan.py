"""``shieldfl profile plan``: what a fleet can encrypt within a target round time."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from shieldfl.cli.failures import failures_on_stderr
from shieldfl.cli.json_output import is_stdout, write_json
from shieldfl.cli.profile import options
from shieldfl.cli.profile.costs import check_costs, load_costs
from shieldfl.cli.setting_options import given_settings, with_options
from shieldfl.errors import ParameterError
from shieldfl.fleet.fleet import Fleet
from shieldfl.fleet.fleet_file import load_fleet
from shieldfl.fleet.simulate.planner import Recommendation, RoundTarget, SchemePlan, plan_round

__all__ = ["plan"]


@with_options((RoundTarget, ""))
def plan(
    *,
    fleet_file: options.FleetFile,
    profile: options.ProfileFile = None,
    paper_costs: options.PaperCosts = False,
    scheme: options.Schemes = None,
    clients_table: options.ClientsTable = False,
    json_file: options.JsonFile = None,
    **settings: Any,
) -> None:
    """Recommend a scheme and the share that each client encrypts so that a round takes a given time.

    Exit code 1 when no scheme meets the target.
    """
    target = given_settings(RoundTarget, settings)
    check_costs(profile, paper_costs, scheme)
    with failures_on_stderr():
        fleet = load_fleet(fleet_file)
        costs = load_costs(profile, scheme, [fleet])
        found = plan_round(fleet, costs.models, target.target_seconds, target.least_ratio)
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
                f"no scheme meets {target.target_seconds:g} s: allow {found.best.least_round_seconds:.3g} s or more, "
                "encrypt less, or speed up what limits the round"
            )


def _to_json(found: Recommendation, fleet: Fleet) -> dict[str, Any]:
    return {
        "fleet": fleet.name,
        "target_seconds": found.target.target_seconds,
        "least_ratio": found.target.least_ratio,
        "feasible": found.feasible,
        "clients": list(fleet.client_names),
        "schemes": [_scheme_facts(one) for one in (found.best, *found.others)],
    }


def _scheme_facts(one: SchemePlan) -> dict[str, Any]:
    return asdict(one) | {"budgets": list(one.budgets), "least_budget": one.least_budget}
