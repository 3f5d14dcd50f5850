"""What a fleet can encrypt within a target round time, under which scheme, and what limits it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np

from shieldfl.errors import ParameterError
from shieldfl.lab.fleet.cost_model import CostModel
from shieldfl.lab.fleet.encryption_plan import EncryptionPlan
from shieldfl.lab.fleet.fleet import Fleet, IntVector
from shieldfl.lab.fleet.round_simulation import STAGES, FleetRounds, simulate_plan, stage_seconds
from shieldfl.settings import Positive, Probability, Settings, about

__all__ = ["Limit", "Recommendation", "RoundTarget", "SchemePlan", "plan_round"]


@dataclass(frozen=True)
class Limit:
    """What would have to be faster."""

    step: str
    """One of ``STAGES``, ``aggregate``, ``open`` or ``download``; ``nothing`` where everything is encrypted in time."""
    client: str | None  # None for the aggregator's and the key authority's
    seconds: float

    def describe(self) -> str:
        if self.step == "nothing":
            return "nothing: every client encrypts all parameters in time"
        whose = "" if self.client is None else f" of {self.client}"
        return f"{self.step}{whose}, {self.seconds:.3g} s"


@dataclass(frozen=True)
class SchemePlan:
    """The best that one scheme can do."""

    scheme: str
    feasible: bool  # every client encrypts the least ratio, and the round is over in time
    mask_ratio: float  # the most that any client encrypts: the size of the union
    budgets: tuple[float, ...]
    longest_steps: tuple[Limit, ...]  # of each client, before its update has arrived
    update_seconds: tuple[float, ...]  # of each client, until its update has arrived
    round_seconds: float
    least_round_seconds: float
    """The shortest that was found; with all values where a ciphertext has fewer bytes than they have in the clear."""
    limit: Limit
    bytes_up: float
    pool_seconds: float = 0.0  # the longest that a client makes randomisers for a round, idle or not

    @property
    def least_budget(self) -> float:
        return min(self.budgets)


@dataclass(frozen=True)
class RoundTarget(Settings):
    """What a plan has to reach."""

    target_seconds: Annotated[Positive, about("Seconds that a round may take, from start to new model.")]
    least_ratio: Annotated[Probability, about("Share of the parameters that every client must encrypt.")] = (
        0.01
    )


@dataclass(frozen=True)
class Recommendation:
    """The best scheme for a target, and the others beside it."""

    target: RoundTarget
    best: SchemePlan
    others: tuple[SchemePlan, ...]

    def describe(self) -> str:
        best = self.best
        if not best.feasible:
            seconds, ratio = self.target.target_seconds, self.target.least_ratio
            return (
                f"no scheme meets {seconds:g} s with {ratio:.2%} of the parameters encrypted: "
                f"the least possible is {best.least_round_seconds:.3g} s with {best.scheme}\n"
                f"limited by {best.limit.describe()}"
            )
        return (
            f"{best.scheme}: clients encrypt {best.least_budget:.2%} to {best.mask_ratio:.2%} of the parameters, "
            f"{best.round_seconds:.3g} s a round\n"
            f"limited by {best.limit.describe()}"
        )


def plan_round(
    fleet: Fleet,
    costs: Mapping[str, CostModel],
    target_seconds: float,
    least_ratio: float = RoundTarget.least_ratio,
) -> Recommendation:
    """Recommend a scheme and each client's budget for a target round time.

    For each scheme, every client gets the largest mask with which the whole round is over in time, under a cap that is
    equal for all. Masks are taken to be nested, so that the largest one is the union, and dropouts are left out. The
    best scheme is the one whose slowest client encrypts most, then the one with the largest mask, then the one with the
    shortest round; where none meets the target, the one that comes closest. Raises ParameterError for no schemes.
    """
    if not costs:
        raise ParameterError("a plan needs the costs of at least one scheme")
    target = RoundTarget(target_seconds, least_ratio)
    plans = [_largest_masks(fleet, name, one, target_seconds, least_ratio) for name, one in costs.items()]
    plans.sort(key=_rank)
    return Recommendation(target, plans[0], tuple(plans[1:]))


def _rank(plan: SchemePlan) -> tuple[Any, ...]:
    if not plan.feasible:
        return (True, plan.least_round_seconds)
    return (False, -plan.least_budget, -plan.mask_ratio, plan.round_seconds)


def _largest_masks(
    fleet: Fleet, name: str, costs: CostModel, target: float, least_ratio: float
) -> SchemePlan:
    """Find them of one scheme by bisections, since times rise with the number of values where all do not fit."""
    # Nobody drops out of a plan, and a fleet of one client is planned like any other.
    kinds = tuple(replace(kind, dropout_probability=0.0) for kind in fleet.kinds)
    fleet = replace(fleet, kinds=kinds, training=replace(fleet.training, min_clients=1))
    parameters = fleet.model.parameters
    least = math.ceil(least_ratio * parameters - 1e-6)

    def uniform(values: int) -> IntVector:
        return np.full(fleet.size, values)

    def simulated(values: IntVector) -> FleetRounds:
        return simulate_plan(fleet, costs, _encryption(values))

    def masks_up_to(cap: int) -> IntVector:
        """Return the largest masks from the least one to ``cap`` whose updates arrive in time."""
        if not costs.scheme.adds_clear_values:
            return uniform(cap)  # all encrypt the union
        # Masks fitted to a target let updates arrive together: the aggregator then has all of them before it.
        latest = target - fleet.size * float(costs.add_seconds(fleet, cap))
        latest -= float(costs.open_seconds(fleet, cap, fleet.size))
        latest -= float(simulated(uniform(cap)).download.max())
        low, high = uniform(least), uniform(cap)
        while (low < high).any():
            middle = (low + high + 1) // 2
            stages = stage_seconds(fleet, costs, _encryption(middle))
            in_time = np.sum(list(stages.values()), axis=0) <= latest
            low = np.where(in_time, middle, low)
            high = np.where(in_time, high, np.maximum(middle - 1, low))
        return low

    smallest, everything = (simulated(uniform(values)) for values in (least, parameters))
    # Where the least is not in time, and all is neither, the one that comes closer.
    rounds = min(smallest, everything, key=lambda one: one.total_seconds)
    least_seconds = rounds.total_seconds
    feasible = least_seconds <= target
    if everything.total_seconds <= target:
        rounds = everything
    elif smallest.total_seconds <= target:
        low, high = least, parameters
        while low < high:
            middle = (low + high + 1) // 2
            masks = masks_up_to(middle)
            if int(masks.max()) == middle and simulated(masks).total_seconds <= target:
                low = middle
            else:
                high = middle - 1
        rounds = simulated(masks_up_to(low))
    values = rounds.plan.values
    all_in_time = feasible and int(values.min()) == parameters
    return SchemePlan(
        scheme=name,
        feasible=feasible,
        mask_ratio=float(values.max()) / parameters,
        budgets=tuple((values / parameters).tolist()),
        longest_steps=tuple(_longest_step(rounds, client) for client in range(fleet.size)),
        update_seconds=tuple(rounds.client_seconds[0].tolist()),
        round_seconds=rounds.total_seconds,
        # Values that fill up a ciphertext that is sent anyway can shorten a round.
        least_round_seconds=min(least_seconds, rounds.total_seconds),
        limit=Limit("nothing", None, 0.0) if all_in_time else _limit(rounds),
        bytes_up=float(rounds.bytes_up.sum()),
        pool_seconds=float(costs.pool_seconds(fleet, values).max()),
    )


def _encryption(values: IntVector) -> EncryptionPlan:
    """Say that clients encrypt so much, all of them in one total, whose union is the largest mask."""
    some, none = int(values.max()) > 0, np.zeros(values.size)
    groups, union = none.astype(np.int64), np.array([values.max()])
    return EncryptionPlan("plan", values, values, groups, union, some, some, some, none)


def _limit(rounds: FleetRounds) -> Limit:
    """Return the longest step on the way that decides the round's time, through its slowest client."""
    names = rounds.fleet.client_names
    fetching = int(rounds.download[0].argmax())
    steps = [
        _longest_step(rounds, _slowest(rounds)),
        Limit("aggregate", None, float(rounds.aggregation[0, 0])),
        Limit("open", None, float(rounds.opening[0, 0])),
        Limit("download", names[fetching], float(rounds.download[0, fetching])),
    ]
    return max(steps, key=lambda step: step.seconds)


def _longest_step(rounds: FleetRounds, client: int) -> Limit:
    name = rounds.fleet.client_names[client]
    steps = (Limit(stage, name, float(rounds.stages[stage][0, client])) for stage in STAGES)
    return max(steps, key=lambda step: step.seconds)


def _slowest(rounds: FleetRounds) -> int:
    """Return the client with the smallest mask, of these the one whose update comes last."""
    values: Sequence[int] = rounds.plan.values.tolist()
    seconds = rounds.client_seconds[0].tolist()
    return min(range(len(values)), key=lambda client: (values[client], -seconds[client]))
