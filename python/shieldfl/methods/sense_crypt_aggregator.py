"""SenseCrypt, the aggregator: clusters, budgets, unions of masks, sums of ciphertexts and plain numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shieldfl import ckks, paillier
from shieldfl.encryption_budgets import sense_crypt_budgets
from shieldfl.errors import DuplicateFrameError, ParameterError, PolicyError, RangeError, WireFormatError
from shieldfl.masks import Mask
from shieldfl.methods.cluster_registry import ClusterRegistry
from shieldfl.methods.encrypted_positions import encrypted_positions
from shieldfl.methods.method import AggregatorSteps
from shieldfl.methods.mixed_sum import MixedSum
from shieldfl.methods.sense_crypt_client import cluster_round
from shieldfl.profiling.stages import StageClock
from shieldfl.roles.message import Message

__all__ = ["SenseCryptAggregator"]


class SenseCryptAggregator(AggregatorSteps):
    """Holds the public key; sees sensitivities (noised, if so set), masks and what is not encrypted.

    Parameters
    ----------
    size : P, the number of parameters.
    buffers : how many buffer values are averaged, always encrypted.
    registry : which client is in which cluster.
    key : the public key.
    most_weight : the largest weight of a client.
    clock : where the stages' time goes.
    threads : for the core; None for all cores.
    """

    def __init__(
        self,
        size: int,
        buffers: int,
        registry: ClusterRegistry,
        key: ckks.PublicKey | paillier.PublicKey,
        most_weight: int,
        clock: StageClock,
        threads: int | None,
    ) -> None:
        self._size = size
        self._buffers = buffers
        self._registry = registry
        self._key = key
        self._most_weight = most_weight
        self._clock = clock
        self._threads = threads
        self._round = 0
        self._seen: set[int] = set()
        self._masks: dict[int, Mask] = {}
        self._sums: dict[int, MixedSum] = {}

    def begin_phase(self, phase: str, round_number: int, answer: Message | None) -> None:
        """Start to collect; who is in which cluster is kept from round to round, masks from phase to phase."""
        self._round = round_number
        self._seen = set()
        if phase == "cluster":
            self._masks = {}
            self._sums = {}

    def receive(self, phase: str, client: int, message: Message) -> None:
        """Add one client's message. What is refused changes nothing."""
        if client in self._seen:
            raise DuplicateFrameError(f"client {client} has sent its message already: it was not added again")
        if message.number("round") != self._round:
            raise PolicyError(f"client {client} sent a message of another round: it was not used")
        if phase == "cluster":
            with self._clock.stage("negotiate"):
                self._receive_introduction(client, message)
        elif phase == "mask":
            with self._clock.stage("negotiate"):
                self._receive_mask(client, message)
        else:
            self._receive_update(client, message)
        self._seen.add(client)

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
        with self._clock.stage("upload"):
            weight = message.number("weight")
            if not 1 <= weight <= self._most_weight:
                raise RangeError(f"client {client} sent a weight that is not between 1 and the largest one")
            total = self._sums[self._registry.cluster_of(client)]
            clear_positions = ~total.positions_of(self._masks[client])
            values = message.vector("values", np.float32, clear_positions.count)
            if not np.isfinite(values).all():
                raise WireFormatError(f"client {client} sent NaN or infinity: its update was not added")
        with self._clock.stage("aggregate"):
            dense: NDArray[np.float32] = np.zeros(self._size + self._buffers, dtype=np.float32)
            clear_positions.scatter(values, dense, self._threads)
            total.add(message["ciphertexts"], dense, weight)

    def close(self, phase: str) -> Message:
        """Return assignments and budgets; the clusters' unions; their totals."""
        if not self._seen:
            raise ParameterError("no message has arrived: wait for at least one client")
        if phase == "cluster":
            with self._clock.stage("negotiate"):
                return self._assign()
        if phase == "mask":
            with self._clock.stage("negotiate"):
                return self._unite()
        with self._clock.stage("aggregate"):
            parts = {
                "round": Message.from_number(self._round),
                "clusters": self._registry.assignments().tobytes(),
            }
            for cluster, total in self._sums.items():
                parts |= total.parts(f" {cluster}")
            return Message(parts)

    def _assign(self) -> Message:
        self._registry.assign()
        clusters = self._registry.assignments()
        known = np.flatnonzero(clusters >= 0)
        budgets = np.zeros(clusters.size)
        budgets[known] = sense_crypt_budgets(*self._registry.capabilities(known), clusters[known])
        return Message({"clusters": clusters.tobytes(), "budgets": budgets.tobytes()})

    def _unite(self) -> Message:
        clusters = self._registry.assignments()
        parts = {"clusters": clusters.tobytes()}
        self._sums = {}
        for cluster in sorted({int(clusters[client]) for client in self._masks}):
            masks = [mask for client, mask in self._masks.items() if clusters[client] == cluster]
            number = cluster_round(self._round, cluster, clusters.size)
            total = MixedSum(self._key, masks, number, self._most_weight > 1, self._threads)
            self._sums[cluster] = total
            parts |= total.union_parts(f" {cluster}")
        return Message(parts)
