"""Rounds of a fleet, computed: each client's timeline, and what the round waits for.

A client trains, scores, selects, encrypts and uploads, one after the other. The aggregator adds updates as
they arrive or, if the cost model says so, when the last is there. It waits for every client until that
client's update has arrived or its link is lost; then the key authority opens the total and the clients
download the model. Clusters run side by side on equal parts of the aggregator. Nothing is random but
dropouts.

A plan says what a fleet can encrypt within a target round time, under which scheme, and what limits it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from shieldfl.array_view import as_count, as_unsigned
from shieldfl.errors import ParameterError
from shieldfl.lab.fleet.cost_source import CostModel, EncryptionPlan, MaskSettings, plan_encryption
from shieldfl.lab.fleet.fleet import Fleet, FloatVector, IntVector
from shieldfl.settings import Positive, Probability, Settings, about

__all__ = [
    "STAGES",
    "FleetRounds",
    "Limit",
    "Recommendation",
    "RoundTarget",
    "SchemePlan",
    "plan_round",
    "simulate",
    "simulate_plan",
    "stage_seconds",
]


STAGES = ("train", "score", "select", "encrypt", "upload")
"""Stages of a client's work until the aggregator has its update, in order."""

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class FleetRounds:
    """R rounds of K clients in G clusters. Times are seconds from the start of the client's round.

    ``stages``, ``download`` and ``idle`` of a client add up to the round of its cluster; for one that drops
    out, ``stages`` add up to the time until then, which is wasted.
    """

    fleet: Fleet
    plan: EncryptionPlan
    scheme: str
    stages: dict[str, FloatVector]  # each of STAGES, (R, K)
    dropped: BoolArray
    aggregation: FloatVector  # from the last arrival, or loss, until the total is complete, (R, G)
    opening: FloatVector  # by the key authority, (R, G)
    download: FloatVector
    cluster_seconds: FloatVector  # until the last client has the model, or none is to come, (R, G)
    failed: BoolArray
    """Whether a cluster keeps its model because fewer clients survived than a total needs, (R, G)."""
    bytes_up: FloatVector  # (R, K); of a client that drops out, the part that had left
    bytes_down: FloatVector

    @property
    def round_seconds(self) -> FloatVector:
        slowest: FloatVector = self.cluster_seconds.max(axis=1)
        return slowest

    @property
    def total_seconds(self) -> float:
        """Seconds of all rounds for the slowest cluster: clusters do not wait for each other."""
        return float(self.cluster_seconds.sum(axis=0).max())

    @property
    def client_seconds(self) -> FloatVector:
        """Seconds (R, K) until the update arrives or the client is lost: the paper calls it training time."""
        until: FloatVector = np.sum([self.stages[name] for name in STAGES], axis=0)
        return until

    @property
    def idle(self) -> FloatVector:
        waiting = self.cluster_seconds[:, self.plan.groups] - self.client_seconds - self.download
        return np.where(self.dropped, 0.0, np.maximum(waiting, 0.0))

    @property
    def idle_share(self) -> FloatVector:
        """The idle share of each client's time in rounds that it stayed in, (K,); NaN without such rounds."""
        stayed = np.where(self.dropped, 0.0, self.cluster_seconds[:, self.plan.groups]).sum(axis=0)
        with np.errstate(invalid="ignore"):
            share: FloatVector = self.idle.sum(axis=0) / stayed
        return share

    @property
    def wasted_seconds(self) -> float:
        return float(self.client_seconds[self.dropped].sum())

    @property
    def straggler_index(self) -> FloatVector:
        """Slowest over median client time of each round's survivors, shape (R,); NaN without survivors."""
        rounds = zip(self.client_seconds, ~self.dropped, strict=True)
        of_survivors = [seconds[stayed] for seconds, stayed in rounds]
        return np.array([one.max() / np.median(one) if one.size else np.nan for one in of_survivors])

    @property
    def stragglers(self) -> list[str]:
        order = np.argsort(-self.client_seconds.mean(axis=0), kind="stable")
        _, first = np.unique(self.plan.groups[order], return_index=True)
        return [self.fleet.client_names[client] for client in order[np.sort(first)]]


def stage_seconds(fleet: Fleet, costs: CostModel, plan: EncryptionPlan) -> dict[str, FloatVector]:
    """Return the seconds of each of ``STAGES`` for clients that stay, each of shape (K,)."""
    score, select = costs.selection_seconds(fleet)
    sent = costs.upload_bytes(fleet, plan.values, plan.fields, plan.sends_mask)
    return {
        "train": costs.train_seconds(fleet),
        "score": score * plan.scores,
        "select": select * plan.selects,
        "encrypt": costs.encrypt_seconds(fleet, plan.fields),
        "upload": fleet.latency_seconds + sent / fleet.upload_bytes_per_second,
    }


def simulate(
    method: str,
    fleet: Fleet,
    costs: CostModel,
    rounds: int = 1,
    seed: int = 0,
    settings: MaskSettings | None = None,
) -> FleetRounds:
    """Compute rounds of a fleet under a method; see :func:`simulate_plan`."""
    return simulate_plan(fleet, costs, plan_encryption(method, fleet, costs.scheme, settings), rounds, seed)


def simulate_plan(
    fleet: Fleet, costs: CostModel, plan: EncryptionPlan, rounds: int = 1, seed: int = 0
) -> FleetRounds:
    """Compute rounds of a fleet whose clients encrypt by a plan.

    ``seed`` decides who drops out and when: in each round independently, with the client's probability, at a
    moment that is uniform over its way to the complete upload. Raises ParameterError for settings out of
    range.
    """
    rounds = as_count(rounds, "rounds")
    generator = np.random.default_rng(as_unsigned(seed, "seed"))
    shape = (rounds, fleet.size)
    dropped = generator.random(shape) < fleet.dropout_probability
    moment = np.where(dropped, generator.random(shape), 1.0)

    whole = {
        name: np.broadcast_to(seconds, shape) for name, seconds in stage_seconds(fleet, costs, plan).items()
    }
    stages = _cut(whole, moment)
    finished = np.sum([stages[name] for name in STAGES], axis=0)
    sent = costs.upload_bytes(fleet, plan.values, plan.fields, plan.sends_mask)
    gone = np.maximum(stages["upload"] - fleet.latency_seconds, 0.0) * fleet.upload_bytes_per_second
    bytes_up = np.where(dropped, gone, sent)

    groups = plan.union_values.size
    survivors = _by_group((~dropped).astype(np.float64), plan, np.add)
    failed = survivors < fleet.training.min_clients
    barrier = _by_group(finished, plan, np.maximum)
    aggregation = np.zeros_like(barrier)
    # What a client adds covers the union: ciphertexts, and plain numbers where it sent no ciphertext.
    each = groups * costs.add_seconds(fleet, plan.union_values)
    for group in range(groups):
        members = plan.groups == group
        work = np.where(dropped[:, members], 0.0, each[group])
        if not costs.adds_on_arrival:
            aggregation[:, group] = work.sum(axis=1)
            continue
        # One queue: the total is complete when the last busy period that some arrival begins is over.
        order = np.argsort(finished[:, members], axis=1, kind="stable")
        arrivals = np.take_along_axis(finished[:, members], order, axis=1)
        waiting = np.cumsum(np.take_along_axis(work, order, axis=1)[:, ::-1], axis=1)[:, ::-1]
        aggregation[:, group] = (arrivals + waiting).max(axis=1) - barrier[:, group]
    aggregation[failed] = 0.0
    opening = np.where(failed, 0.0, groups * costs.open_seconds(fleet, plan.union_values, survivors))
    unions = plan.union_values[plan.groups]
    bytes_down = np.where(dropped | failed[:, plan.groups], 0.0, costs.download_bytes(fleet, unions))
    latency = np.where(bytes_down > 0.0, fleet.latency_seconds, 0.0)
    opened = np.where(bytes_down > 0.0, costs.client_open_seconds(fleet, unions), 0.0)
    download = latency + bytes_down / fleet.download_bytes_per_second + opened
    return FleetRounds(
        fleet=fleet,
        plan=plan,
        scheme=costs.scheme.name,
        stages=stages,
        dropped=dropped,
        aggregation=aggregation,
        opening=opening,
        download=download,
        cluster_seconds=barrier + aggregation + opening + _by_group(download, plan, np.maximum),
        failed=failed,
        bytes_up=bytes_up,
        bytes_down=bytes_down,
    )


def _cut(whole: dict[str, FloatVector], moment: FloatVector) -> dict[str, FloatVector]:
    """Shorten the stages so that together they end at ``moment``, a share of the whole; shape (R, K)."""
    remaining = moment * np.sum(list(whole.values()), axis=0)
    cut = {}
    for name in STAGES:
        # Where nothing is cut the stage is taken as it is: a difference of sums would be off by rounding.
        spent = np.where(moment < 1.0, np.clip(remaining, 0.0, whole[name]), whole[name])
        cut[name] = spent
        remaining = remaining - spent
    return cut


def _by_group(values: FloatVector, plan: EncryptionPlan, combine: np.ufunc) -> FloatVector:
    """Combine the entries of each cluster's clients: (R, K) to (R, G)."""
    combined = np.zeros((plan.union_values.size, values.shape[0]))
    combine.at(combined, plan.groups, values.T)
    return combined.T


@dataclass(frozen=True)
class Limit:
    """What would have to be faster."""

    step: str
    """Name of the step: one of ``STAGES``, ``aggregate``, ``open`` or ``download``.

    It is ``nothing`` if everything is encrypted in time.
    """
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
    """Seconds of the shortest round that was found.

    It may encrypt all values if a ciphertext has fewer bytes than its values in the clear.
    """
    limit: Limit
    bytes_up: float
    pool_seconds: float = 0.0  # the longest that a client makes randomisers for a round, idle or not

    @property
    def least_budget(self) -> float:
        return min(self.budgets)


@dataclass(frozen=True)
class RoundTarget(Settings):
    """What a plan has to reach."""

    target_seconds: Annotated[
        Positive, about("Most seconds that a round may take, from its start to the new model.")
    ]
    least_ratio: Annotated[Probability, about("Smallest share of the parameters that a client encrypts.")] = (
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
            f"{best.scheme}: clients encrypt {best.least_budget:.2%} to {best.mask_ratio:.2%} "
            f"of the parameters, {best.round_seconds:.3g} s a round\n"
            f"limited by {best.limit.describe()}"
        )


def plan_round(
    fleet: Fleet,
    costs: Mapping[str, CostModel],
    target_seconds: float,
    least_ratio: float = RoundTarget.least_ratio,
) -> Recommendation:
    """Recommend a scheme and each client's budget for a target round time.

    For each scheme, every client gets the largest mask with which the whole round is over in time, under a
    cap that is equal for all. Masks are taken to be nested, so that the largest one is the union, and
    dropouts are left out. The best scheme is the one whose slowest client encrypts most, then the one with
    the largest mask, then the one with the shortest round; where none meets the target, the one that comes
    closest. Raises ParameterError for no schemes.
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
    """Find one scheme's largest masks by bisections: times rise with the number of values if not all fit."""
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
    # If neither the least nor everything is in time, the one that comes closer.
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
    """Return a plan in which clients encrypt ``values`` in one total, whose union is the largest mask."""
    some, none = int(values.max()) > 0, np.zeros(values.size)
    groups, union = none.astype(np.int64), np.array([values.max()])
    return EncryptionPlan("plan", values, values, groups, union, some, some, some, none)


def _limit(rounds: FleetRounds) -> Limit:
    """Return the longest step on the way that decides the round's time, through its slowest client."""
    names = rounds.fleet.client_names
    # Of those with the smallest mask, the one whose update comes last.
    slowest = int(np.lexsort((-rounds.client_seconds[0], rounds.plan.values))[0])
    fetching = int(rounds.download[0].argmax())
    steps = [
        _longest_step(rounds, slowest),
        Limit("aggregate", None, float(rounds.aggregation[0, 0])),
        Limit("open", None, float(rounds.opening[0, 0])),
        Limit("download", names[fetching], float(rounds.download[0, fetching])),
    ]
    return max(steps, key=lambda step: step.seconds)


def _longest_step(rounds: FleetRounds, client: int) -> Limit:
    name = rounds.fleet.client_names[client]
    steps = (Limit(stage, name, float(rounds.stages[stage][0, client])) for stage in STAGES)
    return max(steps, key=lambda step: step.seconds)
