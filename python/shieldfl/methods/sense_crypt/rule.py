"""SenseCrypt: what the clusters' opened sums make of their models (its algorithm 3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from shieldfl.authority.message import Message, Part
from shieldfl.authority.round_key_check import digest_of_parts
from shieldfl.errors import PolicyError, WireFormatError
from shieldfl.methods.encrypted_update import MixedTotal, with_buffers_times
from shieldfl.methods.sense_crypt.roles import cluster_model, cluster_round
from shieldfl.rounds.global_model import GlobalModel
from shieldfl.rounds.opening_rule import OpeningRule, RoundSums
from shieldfl.rounds.public_setup import RoleContext
from shieldfl.stateful import refuse_unless


class SenseCryptRule(OpeningRule):
    """One total for each cluster moves that cluster's model.

    Parameters
    ----------
    initial : the model that every cluster starts from.
    context : what all roles of the federation know.
    """

    changes: ClassVar = {
        "_models": dict[int, GlobalModel],
        "_clusters": NDArray[np.int64],
    }

    def __init__(self, initial: GlobalModel, context: RoleContext) -> None:
        super().__init__(context)
        self._initial = initial
        self._models: dict[int, GlobalModel] = {}
        self._clusters: NDArray[np.int64] = np.full(context.plan.clients, -1)
        self._clients = context.plan.clients
        self._most_weight = context.most_weight
        self._learning_rate = context.plan.server_learning_rate

    def check_changed(self) -> None:
        """Raise WireFormatError for models of other sizes, and for clusters or clients that there are not."""
        refuse_unless(self._clusters.size == self._clients)
        refuse_unless(self._clusters.min() >= -1 and self._clusters.max() < self._clients)
        refuse_unless(all(0 <= cluster < self._clients for cluster in self._models))
        refuse_unless(all(model.is_like(self._initial) for model in self._models.values()))

    def first_model(self) -> Message:
        """Return the initial model, of every cluster."""
        return self._initial.to_message()

    def keeps(self, model: Message) -> bool:
        """Say whether a newest model is the clusters' as they are moved."""
        return model == (self._models_of_clusters() if "clusters" in model else self._initial.to_message())

    def digests(self, model: Message) -> Mapping[int | None, bytes]:
        """Return for each client the digest of its cluster's model, and that it is in none where it is."""
        if "clusters" not in model:
            return super().digests(model)
        digests = {
            int(cluster): digest_of_parts(cluster_model(model, int(cluster)))
            for cluster in np.unique(self._clusters)
        }
        return {client: digests[int(cluster)] for client, cluster in enumerate(self._clusters)}

    def answer(self, phase: str, message: Message, sums: RoundSums) -> Message:
        """Return the clusters' models; a cluster of too few clients keeps its own, which is noted."""
        clusters = message.vector("clusters", np.int64, self._clients)
        if clusters.min() < -1 or clusters.max() >= self._clients:
            raise WireFormatError("there is no cluster of this number")
        if ((self._clusters >= 0) & (clusters != self._clusters)).any():
            raise PolicyError(
                "a client has changed its cluster: totals of changing groups would single clients out"
            )
        round_number = message.number("round")
        known = range(int(clusters.max(initial=-1)) + 1)
        claims = {
            cluster: self._read(message, round_number, cluster)
            for cluster in known
            if f"total {cluster}" in message
        }
        if any(
            client >= self._clients or clusters[client] != cluster
            for cluster, claim in claims.items()
            for client in claim.total.named_clients
        ):
            raise PolicyError("the total of a cluster has an update of a client that is not in it")
        least = sums.min_clients
        notes = [
            f"round {round_number}: {claim.total.clients} client(s) of cluster {cluster} sent an update, too few to "
            "open: its model stays"
            for cluster, claim in claims.items()
            if claim.total.clients < least
        ]
        large = {cluster: one for cluster, one in claims.items() if one.total.clients >= least}
        # What came in the clear is looked at, of all clusters, before anything is opened.
        for cluster, claim in large.items():
            claim.check_weights(self._most_weight)
            if claim.sums.size:
                self._model_of(cluster).moved_finite(claim.clear_mean(), self._learning_rate)
        moved = {}
        for cluster, claim in large.items():
            mean = claim.open_mean(sums, self._most_weight)
            mean = with_buffers_times(mean, self._initial.buffers.size, 1.0 / self.context.buffer_factor)
            moved[cluster] = self._model_of(cluster).moved_finite(mean, self._learning_rate)
        self._models = self._models | moved
        for text in notes:
            sums.note(text)
        self._clusters = clusters
        return self._models_of_clusters()

    def _models_of_clusters(self) -> Message:
        parts: dict[str, Part] = {"clusters": self._clusters.tobytes()}
        for cluster in range(int(self._clusters.max(initial=-1)) + 1):
            model = self._model_of(cluster).to_message()
            parts |= {f"{name} {cluster}": part for name, part in model.items()}
        return Message(parts)

    def _read(self, message: Message, round_number: int, cluster: int) -> MixedTotal:
        size = self._initial.parameters.size + self._initial.buffers.size
        number = cluster_round(self.context, round_number, cluster)
        return MixedTotal.read(message, f" {cluster}", self.context.parameters, size, number)

    def _model_of(self, cluster: int) -> GlobalModel:
        return self._models.get(cluster, self._initial)
