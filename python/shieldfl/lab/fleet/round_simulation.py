"""Rounds of a fleet, computed: each client's timeline, and what the round waits for.

A client trains, scores, selects, encrypts and uploads, one after the other. The aggregator adds updates as they arrive
or, if the cost model says so, when the last is there. It waits for every client until that client's update has arrived
or its link is lost; then the key authority opens the total and the clients download the model. Clusters run side by
side on equal parts of the aggregator. Nothing is random but dropouts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shieldfl.array_view import as_count, as_unsigned
from shieldfl.lab.fleet.cost_model import CostModel
from shieldfl.lab.fleet.encryption_plan import EncryptionPlan, MaskSettings, plan_encryption
from shieldfl.lab.fleet.fleet import Fleet, FloatVector

__all__ = ["STAGES", "FleetRounds", "simulate", "simulate_plan", "stage_seconds"]


STAGES = ("train", "score", "select", "encrypt", "upload")
"""What a client does before the aggregator has its update, in order."""

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class FleetRounds:
    """R rounds of K clients in G clusters. Times are seconds from the start of the client's round.

    ``stages``, ``download`` and ``idle`` of a client add up to the round of its cluster; for one that drops out,
    ``stages`` add up to the time until then, which is wasted.
    """

    fleet: Fleet
    plan: EncryptionPlan
    scheme: str
    stages: dict[str, FloatArray]  # each of STAGES, (R, K)
    dropped: BoolArray
    aggregation: FloatArray  # from the last arrival, or loss, until the total is complete, (R, G)
    opening: FloatArray  # by the key authority, (R, G)
    download: FloatArray
    cluster_seconds: FloatArray  # until the last client has the model, or none is to come, (R, G)
    failed: BoolArray
    """Fewer clients survived than the key authority opens totals of: the cluster's model stays; (R, G)."""
    bytes_up: FloatArray  # (R, K); of a client that drops out, the part that had left
    bytes_down: FloatArray

    @property
    def round_seconds(self) -> FloatVector:
        slowest: FloatVector = self.cluster_seconds.max(axis=1)
        return slowest

    @property
    def total_seconds(self) -> float:
        """Of all rounds. Clusters do not wait for each other, so that of the cluster that takes longest."""
        return float(self.cluster_seconds.sum(axis=0).max())

    @property
    def client_seconds(self) -> FloatArray:
        """Until the update has arrived or the client is lost, shape (R, K): what the paper calls training time."""
        until: FloatArray = np.sum([self.stages[name] for name in STAGES], axis=0)
        return until

    @property
    def idle(self) -> FloatArray:
        waiting = self.cluster_seconds[:, self.plan.groups] - self.client_seconds - self.download
        staying: FloatArray = np.where(self.dropped, 0.0, np.maximum(waiting, 0.0))
        return staying

    @property
    def idle_share(self) -> FloatVector:
        """Of the time that each client spent in rounds that it stayed in, shape (K,); NaN for one that never did."""
        stayed = np.where(self.dropped, 0.0, self.cluster_seconds[:, self.plan.groups]).sum(axis=0)
        share: FloatVector = np.full(stayed.size, np.nan)
        np.divide(self.idle.sum(axis=0), stayed, out=share, where=stayed > 0.0)
        return share

    @property
    def wasted_seconds(self) -> float:
        return float(np.where(self.dropped, self.client_seconds, 0.0).sum())

    @property
    def straggler_index(self) -> FloatVector:
        """Slowest over median client time of each round's survivors, shape (R,); NaN where nobody survived."""
        index = np.full(self.dropped.shape[0], np.nan)
        for number, (seconds, dropped) in enumerate(zip(self.client_seconds, self.dropped, strict=True)):
            if not dropped.all():
                stayed = seconds[~dropped]
                index[number] = stayed.max() / np.median(stayed)
        return index

    @property
    def stragglers(self) -> list[str]:
        mean = self.client_seconds.mean(axis=0)
        slowest = [
            max(np.flatnonzero(self.plan.groups == group), key=lambda client: float(mean[client]))
            for group in range(self.plan.union_values.size)
        ]
        return [self.fleet.client_names[client] for client in sorted(slowest, key=lambda one: -mean[one])]


def stage_seconds(fleet: Fleet, costs: CostModel, plan: EncryptionPlan) -> dict[str, FloatVector]:
    """Return the seconds of each of ``STAGES`` for clients that stay, each of shape (K,)."""
    nothing = np.zeros(fleet.size)
    sent = costs.upload_bytes(fleet, plan.values, plan.fields, plan.sends_mask)
    return {
        "train": costs.train_seconds(fleet),
        "score": costs.score_seconds(fleet) if plan.scores else nothing,
        "select": costs.select_seconds(fleet) if plan.selects else nothing,
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

    ``seed`` decides who drops out and when: in each round independently, with the client's probability, at a moment
    that is uniform over its way to the complete upload. Raises ParameterError for settings out of range.
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
    transfer = whole["upload"] - fleet.latency_seconds
    left = np.maximum(stages["upload"] - fleet.latency_seconds, 0.0)
    gone = np.divide(left, transfer, out=np.zeros_like(left), where=transfer > 0.0)
    bytes_up = np.where(dropped, sent * gone, sent)

    groups = plan.union_values.size
    survivors = _by_group((~dropped).astype(np.float64), plan, np.add)
    failed = survivors < fleet.training.min_clients
    barrier = _by_group(finished, plan, np.maximum)
    complete = _complete(finished, dropped, barrier, costs, fleet, plan)
    aggregation = np.where(failed, 0.0, complete - barrier)
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


def _cut(whole: dict[str, FloatArray], moment: FloatArray) -> dict[str, FloatArray]:
    """Shorten the stages so that together they end at ``moment``, a share of the whole; shape (R, K)."""
    remaining = moment * np.sum(list(whole.values()), axis=0)
    cut = {}
    for name in STAGES:
        # Where nothing is cut the stage is taken as it is: a difference of sums would be off by rounding.
        spent = np.where(moment < 1.0, np.clip(remaining, 0.0, whole[name]), whole[name])
        cut[name] = spent
        remaining = remaining - spent
    return cut


def _complete(
    finished: FloatArray,
    dropped: BoolArray,
    barrier: FloatArray,
    costs: CostModel,
    fleet: Fleet,
    plan: EncryptionPlan,
) -> FloatArray:
    """Return when each cluster's total is complete, shape (R, G)."""
    groups = plan.union_values.size
    complete = np.empty_like(barrier)
    # What a client adds covers the union: ciphertexts, and plain numbers where it sent no ciphertext.
    each = groups * costs.add_seconds(fleet, plan.union_values)
    for group in range(groups):
        members = plan.groups == group
        work = np.where(dropped[:, members], 0.0, each[group])
        if not costs.adds_on_arrival:
            complete[:, group] = barrier[:, group] + work.sum(axis=1)
            continue
        # One queue: the total is complete when the last busy period that some arrival begins is over.
        order = np.argsort(finished[:, members], axis=1, kind="stable")
        arrivals = np.take_along_axis(finished[:, members], order, axis=1)
        waiting = np.cumsum(np.take_along_axis(work, order, axis=1)[:, ::-1], axis=1)[:, ::-1]
        complete[:, group] = (arrivals + waiting).max(axis=1)
    return complete


def _by_group(values: FloatArray, plan: EncryptionPlan, combine: np.ufunc) -> FloatArray:
    """Combine the entries of each cluster's clients: (R, K) to (R, G)."""
    combined = np.zeros((plan.union_values.size, values.shape[0]))
    combine.at(combined, plan.groups, values.T)
    return combined.T
