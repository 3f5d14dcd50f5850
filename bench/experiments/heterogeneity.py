"""SenseCrypt, MaskCrypt and plain HE on the paper's heterogeneous fleets (its figures 2a, 3a, 4a and 5).

    SHIELDFL_DATA=... python bench/experiments/heterogeneity.py --json heterogeneity.json

Masks are those of clients that train on real data here (measured_masks.py), scaled to the paper's AlexNet; times
follow from the paper's cost model (shieldfl.lab.fleet.cost_source) and, beside it, from this machine's calibrated
schemes, for both sides alike, with the paper's training time and, as there, encryption spread perfectly over a client's
CPUs.

"For fairness, the union of masks in SenseCrypt has the same size as that in MaskCrypt" (section 4.2): MaskCrypt's
clients all encrypt as many positions as SenseCrypt's union has, of the largest cluster where there are several. A
client's time is until its update has arrived, which is what the paper calls training time; a round also has
aggregation, one opening by the key authority and the way down.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from measured_masks import RULES, Rule, ScoredClient, measured_plan, score_clients, select_masks

from shieldfl.lab.fleet.calibration import CalibrationSettings, calibrate
from shieldfl.lab.fleet.cost_source import (
    CostModel,
    CostSource,
    DeviceProfile,
    EncryptionPlan,
    MaskSettings,
    load_profile,
    paper_costs,
    plan_encryption,
)
from shieldfl.lab.fleet.fleet import Fleet, load_fleet
from shieldfl.lab.fleet.round_simulation import FleetRounds, simulate_plan
from shieldfl.lab.simulation.data import load_dataset

HERE = Path(__file__).parent
SCENARIOS = ("statistical", "system", "statistical-system")
DEGREES = (1, 2, 3, 4)
# The paper's C and B for the data set (section 4.1); MNIST stands for FMNIST.
FLOORS = {"cifar10": MaskSettings(0.5, 2.0), "mnist": MaskSettings(0.7, 1.3)}
FAST_SCHEMES = ("paillier-single", "paillier-dense", "paillier-dense-pooled", "ckks")
# Seconds of table 2 a value, scaled from keys of 3,072 bits to 2,048.
ENCRYPT_CORE_SECONDS_BY_TABLE_2 = 3925.9769 / 10_000 * (2048 / 3072) ** 3


@dataclass(frozen=True)
class Case:
    """One data set, rule, fleet and scheme: seconds of one iteration."""

    dataset: str
    rule: str
    fleet: str
    scheme: str
    least_mask: float
    largest_mask: float
    union: float
    client_seconds: dict[str, tuple[float, float, float]]
    """Least, mean and most over clients, by method."""
    round_seconds: dict[str, float]

    def reduction(self, other: str, whole_round: bool) -> float:
        if whole_round:
            return 1.0 - self.round_seconds["sense-crypt"] / self.round_seconds[other]
        return 1.0 - self.client_seconds["sense-crypt"][2] / self.client_seconds[other][2]


def load_scenario(name: str) -> Fleet:
    return load_fleet(HERE / f"fleet-{name}.toml")


def simulate_case(
    names: tuple[str, str], fleet: Fleet, plan: EncryptionPlan, costs: CostModel, paper: bool
) -> Case:
    union = float(plan.union_values.max()) / fleet.model.parameters
    rounds: dict[str, FleetRounds] = {}
    settings = MaskSettings(uniform_ratio=union)
    for method in ("sense-crypt", "mask-crypt", "full-he", "fedavg"):
        own = plan if method == "sense-crypt" else plan_encryption(method, fleet, costs.scheme, settings)
        if method == "sense-crypt" and not costs.scheme.adds_clear_values:
            unions = plan.union_values[plan.groups]
            own = replace(plan, values=unions, fields=unions)
        model = (
            CostSource({costs.scheme.name: costs}, None).for_method(method, costs.scheme.name)
            if paper
            else costs
        )
        rounds[method] = simulate_plan(fleet, model, own)
    seconds = {method: one.client_seconds[0] for method, one in rounds.items()}
    return Case(
        dataset=names[0],
        rule=names[1],
        fleet=fleet.name,
        scheme=costs.scheme.name,
        least_mask=float(plan.values.min()) / fleet.model.parameters,
        largest_mask=float(plan.values.max()) / fleet.model.parameters,
        union=union,
        client_seconds={m: (float(s.min()), float(s.mean()), float(s.max())) for m, s in seconds.items()},
        round_seconds={method: one.total_seconds for method, one in rounds.items()},
    )


def with_paper_training(profile: DeviceProfile, scheme: str, paper: CostModel) -> CostModel:
    costs = profile.cost_model(scheme)
    return replace(
        costs,
        scheme=replace(costs.scheme, serial_share=0.0),
        train_seconds_per_sample=paper.train_seconds_per_sample,
        trains_on_accelerator=paper.trains_on_accelerator,
    )


def run_rule(
    dataset: str,
    rule: Rule,
    fleets: dict[str, Fleet],
    clients: dict[str, list[ScoredClient]],
    profile: DeviceProfile,
) -> list[Case]:
    floor = FLOORS[dataset]
    masks = {name: select_masks(fleet, clients[name], floor, rule) for name, fleet in fleets.items()}
    # Table 3 is taken to be of the system heterogeneity scenario, which has its widest spread of seconds.
    paper = paper_costs(fleets["system"], measured_plan(fleets["system"], masks["system"], 1))
    print(
        f"\n== {dataset}, C = {floor.exposed_share}, B = {floor.exposure_decay}, {rule.name}\n"
        f"   a value then takes {paper.scheme.encrypt_seconds[1]:.4f} core seconds to encrypt "
        f"(by the paper's table 2: {ENCRYPT_CORE_SECONDS_BY_TABLE_2:.4f})"
    )
    cases = []
    for name, fleet in fleets.items():
        for scheme in ("python-paillier-2048", *FAST_SCHEMES):
            ours = scheme in FAST_SCHEMES
            costs = with_paper_training(profile, scheme, paper) if ours else paper
            plan = measured_plan(fleet, masks[name], costs.scheme.values_per_ciphertext)
            cases.append(simulate_case((dataset, rule.name), fleet, plan, costs, not ours))
    print_scenarios([case for case in cases if "degree" not in case.fleet])
    print_degrees([case for case in cases if "degree" in case.fleet and case.scheme == paper.scheme.name])
    return cases


def print_scenarios(cases: list[Case]) -> None:
    print(
        f"{'fleet':<26} {'scheme':<22} {'masks':>15} {'union':>7} | {'Sense':>7} {'Mask':>7} {'HE':>7} {'clear':>6} "
        f"| {'-Mask':>6} {'-HE':>6} | {'round':>7} {'-Mask':>6} {'-HE':>6}"
    )
    for case in cases:
        most = {method: seconds[2] for method, seconds in case.client_seconds.items()}
        print(
            f"{case.fleet:<26} {case.scheme:<22} {case.least_mask:6.1%} - {case.largest_mask:6.1%} {case.union:7.1%} | "
            f"{most['sense-crypt']:7.2f} {most['mask-crypt']:7.2f} {most['full-he']:7.2f} {most['fedavg']:6.2f} | "
            f"{case.reduction('mask-crypt', False):6.1%} {case.reduction('full-he', False):6.1%} | "
            f"{case.round_seconds['sense-crypt']:7.2f} "
            f"{case.reduction('mask-crypt', True):6.1%} {case.reduction('full-he', True):6.1%}"
        )


def print_degrees(cases: list[Case]) -> None:
    print(f"{'figure 5':<26} {'SenseCrypt least/mean/most':>30} {'MaskCrypt least/mean/most':>30}")
    for case in cases:
        cells = [
            "/".join(f"{seconds:.1f}" for seconds in case.client_seconds[method])
            for method in ("sense-crypt", "mask-crypt")
        ]
        print(f"{case.fleet:<26} {cells[0]:>30} {cells[1]:>30}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="+", choices=sorted(FLOORS), default=["cifar10", "mnist"])
    parser.add_argument("--rounds", type=int, default=2, help="that clients train before they score")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--profile", type=Path, help="a device profile; without one this machine is calibrated"
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    profile = load_profile(options.profile) if options.profile else calibrate(CalibrationSettings())
    fleets = {name: load_scenario(name) for name in (*SCENARIOS, *(f"degree-{degree}" for degree in DEGREES))}
    cases: list[Case] = []
    for name in options.datasets:
        dataset = load_dataset(name)
        clients = {
            one: score_clients(dataset, fleets[one], options.rounds, options.seed) for one in SCENARIOS
        }
        # The fleets of figure 5 differ in their processors alone, so their clients train alike.
        clients |= dict.fromkeys(
            (one for one in fleets if one not in SCENARIOS),
            score_clients(dataset, fleets["degree-1"], options.rounds, options.seed),
        )
        for rule in RULES:
            cases += run_rule(name, rule, fleets, clients, profile)
    if options.json:
        options.json.write_text(json.dumps([asdict(case) for case in cases], indent=1) + "\n")


if __name__ == "__main__":
    main()
