"""SenseCrypt, the key authority: opens the clusters' sums and keeps their models (its algorithm 3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shieldfl import ckks, paillier
from shieldfl.errors import RangeError, WireFormatError
from shieldfl.masks import Mask
from shieldfl.methods.global_model import GlobalModel
from shieldfl.methods.method import AuthoritySteps
from shieldfl.methods.replies import Replies
from shieldfl.methods.sense_crypt_client import cluster_round
from shieldfl.profiling.stages import StageClock
from shieldfl.roles.key_authority import KeyAuthority
from shieldfl.roles.message import Message

__all__ = ["SenseCryptAuthority"]


@dataclass(frozen=True)
class _Claim:
    """What the aggregator says of one cluster's round, looked at before anything is opened."""

    cluster: int
    total: ckks.Total | paillier.Total
    union: paillier.UnionOrder | Mask
    outside: Mask
    sums: NDArray[np.float64]
    weight: int


class SenseCryptAuthority(AuthoritySteps):
    """Opens one total for each cluster and moves that cluster's model.

    Parameters
    ----------
    initial : the model that every cluster starts from.
    keys : opens totals.
    clients : how many clients there are.
    server_learning_rate : 1 is FedAvg.
    clock : where the stages' time goes.
    notes : where a reader of the results is told which models stayed.
    """

    def __init__(
        self,
        initial: GlobalModel,
        keys: KeyAuthority,
        clients: int,
        server_learning_rate: float,
        clock: StageClock,
        notes: list[str],
    ) -> None:
        self._initial = initial
        self._models: dict[int, GlobalModel] = {}
        self._keys = keys
        self._clients = clients
        self._learning_rate = server_learning_rate
        self._clock = clock
        self._notes = notes
        self._replies = Replies()

    def answer(self, phase: str, message: Message) -> Message:
        """Answer the clusters' sums with their models.

        A cluster of too few clients keeps its model, which is noted. A repeated message gets its answer again, and no
        model moves twice. Raises PolicyError, WireFormatError, RangeError; then no model has moved.
        """
        with self._clock.stage("open"):
            round_number = message.number("round")
            return self._replies.reply(phase, round_number, message, lambda: self._open(message))

    def _open(self, message: Message) -> Message:
        clusters = message.vector("clusters", np.int64, self._clients)
        round_number = message.number("round")
        known = range(int(clusters.max(initial=-1)) + 1)
        claims = [
            self._read(message, round_number, cluster) for cluster in known if f"total {cluster}" in message
        ]
        moved = dict(self._models)
        for claim in claims:
            if claim.total.clients < self._keys.min_clients:
                self._notes.append(
                    f"round {round_number}: {claim.total.clients} client(s) of cluster {claim.cluster} sent an update, "
                    "too few to open: its model stays"
                )
                continue
            moved[claim.cluster] = self._move(claim)
        self._models = moved
        parts = {"clusters": message["clusters"]}
        for cluster in known:
            model = self._models.get(cluster, self._initial).to_message()
            parts |= {f"{name} {cluster}": part for name, part in model.items()}
        return Message(parts)

    def _read(self, message: Message, round_number: int, cluster: int) -> _Claim:
        size = self._initial.parameters.size + self._initial.buffers.size
        union: paillier.UnionOrder | Mask
        total: ckks.Total | paillier.Total
        if isinstance(self._keys.public_key, paillier.PublicKey):
            union = paillier.UnionOrder.from_bytes(message[f"order {cluster}"], size)
            total = paillier.Total.from_bytes(message[f"total {cluster}"])
            fits, outside = total.is_of(union), ~union.mask
        else:
            union = Mask.from_bytes(message[f"union {cluster}"], size)
            total = ckks.Total.from_bytes(message[f"total {cluster}"])
            fits, outside = total.is_of(union), ~union
        if not fits or total.round != cluster_round(round_number, cluster, self._clients):
            raise WireFormatError("the total is of another round, or of other positions than the union's")
        sums = message.vector(f"sums {cluster}", np.float64, outside.count)
        weight = message.number(f"weight {cluster}")
        weights_differ = isinstance(total, paillier.Total) and total.total_weight != weight
        if not np.isfinite(sums).all() or weight < total.clients or weights_differ:
            raise WireFormatError("the sums hold NaN or infinity, or their weight is not that of the total")
        return _Claim(cluster, total, union, outside, sums, weight)

    def _move(self, claim: _Claim) -> GlobalModel:
        mean = np.zeros(claim.outside.size)
        claim.union.scatter(self._keys.open_mean(claim.total), mean)
        claim.outside.scatter(claim.sums / claim.weight, mean)
        moved = self._models.get(claim.cluster, self._initial).moved(mean, self._learning_rate)
        if not np.isfinite(moved.parameters).all():
            raise RangeError("the new model is not finite: lower the server's learning rate")
        return moved
