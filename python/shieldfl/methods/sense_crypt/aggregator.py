"""SenseCrypt, the aggregator: clusters, budgets, unions of masks, sums of ciphertexts and plain numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from shieldfl.errors import PolicyError
from shieldfl.masks import Mask
from shieldfl.methods.encrypted_sum.mixed_sum import MixedSum
from shieldfl.methods.encrypted_sum.mixed_upload import encrypted_positions
from shieldfl.methods.protocol.collecting_aggregator import CollectingAggregator
from shieldfl.methods.protocol.reports import Note
from shieldfl.methods.protocol.role_context import RoleContext
from shieldfl.methods.sense_crypt.client import cluster_round
from shieldfl.methods.sense_crypt.cluster_registry import ClusterRegistry
from shieldfl.roles.message import Message
from shieldfl.selection import sense_crypt_budgets
from shieldfl.stateful import refuse_unless

__all__ = ["SenseCryptAggregator"]


class SenseCryptAggregator(CollectingAggregator):
    """Holds the round's public key; sees sensitivities (noised, if so set), masks and what is not encrypted.

    Parameters
    ----------
    context : what all roles of the federation know.
    weights : how much each client counts.
    registry : which client is in which cluster.
    """

    changes: ClassVar = {
        "_registry": ClusterRegistry,
        "_masks": dict[int, Mask],
        "_masks_of": int | None,
        "_sums": dict[int, MixedSum],
    }
    sums = ("_sums",)

    def __init__(self, context: RoleContext, weights: tuple[int, ...], registry: ClusterRegistry) -> None:
        super().__init__(context)
        self._size = context.plan.parameters
        self._buffers = context.plan.buffers
        self._registry = registry
        self._weights = weights
        self._weighted = context.most_weight > 1
        self._threads = context.threads
        self._masks: dict[int, Mask] = {}
        self._masks_of: int | None = None
        """The round of these masks."""
        self._sums: dict[int, MixedSum] = {}
        self._united: dict[int, MixedSum] = {}
        """Sums of nothing yet, over the unions that the mask phase came to: for the update phase."""

    def check_changed(self) -> None:
        """Raise WireFormatError for masks of another model or round, or of clients that are in no cluster."""
        super().check_changed()
        known = {client for client in range(self._clients) if self._registry.knows(client)}
        refuse_unless(self._masks.keys() <= known and self._registry.is_of(self._size))
        refuse_unless(all(mask.size == self._size + self._buffers for mask in self._masks.values()))
        refuse_unless(0 <= (self._masks_of or 0) <= self.round)

    def take_changed(self, record: Mapping[str, Any]) -> None:
        """Take what has changed; unions that were formed before are of other masks."""
        self._united = {}
        super().take_changed(record)

    def check_sums(self) -> None:
        """Raise WireFormatError for sums of other clusters than have masks, or of other clients than were heard."""
        super().check_sums()
        if self._phase != "update":
            refuse_unless(not self._sums)
            return
        refuse_unless(self._seen <= self._masks.keys())
        heard = Counter(map(self._registry.cluster_of, self._seen))
        refuse_unless(self._sums.keys() == {self._registry.cluster_of(client) for client in self._masks})
        refuse_unless(all(one.is_of(one.union, heard[cluster]) for cluster, one in self._sums.items()))

    def _begin_phase(self, phase: str, round_number: int, answer: Message | None) -> None:
        """Start to collect; who is in which cluster is kept from round to round, masks for the update phase."""
        if phase == "update":
            if self._masks_of != round_number:
                raise PolicyError(f"nobody has sent a mask for the update phase of round {round_number}")
            with self.clock.stage("negotiate"):
                self._sums, self._united = self._united or self._new_sums(round_number), {}
        else:
            self._masks, self._masks_of = {}, round_number
            self._sums, self._united = {}, {}

    def _collect(self, phase: str, client: int, message: Message) -> None:
        if phase == "cluster":
            with self.clock.stage("negotiate"):
                self._receive_introduction(client, message)
        elif phase == "mask":
            with self.clock.stage("negotiate"):
                self._receive_mask(client, message)
        else:
            self._receive_update(client, message)

    def _receive_introduction(self, client: int, message: Message) -> None:
        if self._registry.knows(client) and "capability" not in message:
            return
        vector = None
        if self._registry.by_sensitivity:
            vector = message.vector("sensitivity", np.float32, self._size)
        bandwidth, speed = message.vector("capability", np.float64, 2)
        self._registry.introduce(client, vector, float(bandwidth), float(speed))

    def _receive_mask(self, client: int, message: Message) -> None:
        if not self._registry.knows(client):
            raise PolicyError(f"client {client} sent a mask without being in a cluster")
        mask = Mask.from_bytes(message["mask"], expected_size=self._size)
        self._masks[client] = encrypted_positions(mask, self._buffers)

    def _receive_update(self, client: int, message: Message) -> None:
        if client not in self._masks:
            raise PolicyError(f"client {client} sent an update without a mask in this round")
        own = self._masks[client]
        self._sums[self._registry.cluster_of(client)].add(client, message, own)

    def _result(self, phase: str) -> Message:
        """Return assignments and budgets; the clusters' unions; their totals."""
        if phase == "cluster":
            with self.clock.stage("negotiate"):
                return self._assign()
        if phase == "mask":
            with self.clock.stage("negotiate"):
                return self._unite()
        with self.clock.stage("aggregate"):
            parts = {
                "round": Message.from_number(self.round),
                "clusters": self._registry.assignments().tobytes(),
            }
            for cluster, total in self._sums.items():
                parts |= total.parts(f" {cluster}")
            return Message(parts)

    def _assign(self) -> Message:
        for text in self._registry.assign():
            self.note(Note(text))
        clusters = self._registry.assignments()
        known = np.flatnonzero(clusters >= 0)
        budgets = np.zeros(clusters.size)
        budgets[known] = sense_crypt_budgets(*self._registry.capabilities(known), clusters[known])
        return Message({"clusters": clusters.tobytes(), "budgets": budgets.tobytes()})

    def _unite(self) -> Message:
        parts = {"clusters": self._registry.assignments().tobytes()}
        self._united = self._new_sums(self.round)
        for cluster, total in self._united.items():
            parts |= total.union_parts(f" {cluster}")
        return Message(parts)

    def _new_sums(self, round_number: int) -> dict[int, MixedSum]:
        """Return a sum for each cluster that has a mask, of nothing yet."""
        clusters = self._registry.assignments()
        key = self._round_key(round_number, "update")
        sums = {}
        for cluster in sorted({int(clusters[client]) for client in self._masks}):
            masks = [mask for client, mask in self._masks.items() if clusters[client] == cluster]
            number = cluster_round(self.context, round_number, cluster)
            sums[cluster] = MixedSum(
                key, masks, number, self._weights, self.clock, self._threads, weighted=self._weighted
            )
        return sums
