"""What the steps of a round take: seconds and bytes, for any number of values and cores."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Concatenate, ParamSpec

import numpy as np

from shieldfl.errors import ParameterError
from shieldfl.fleet.fleet import Fleet, FloatVector

__all__ = ["CostModel", "SchemeCosts", "serial_share", "speedup"]

Arguments = ParamSpec("Arguments")

BYTES_PER_CLEAR_VALUE = 4
"""float32, as updates are sent where they are not encrypted."""
BITS_PER_BYTE = 8


@dataclass(frozen=True)
class SchemeCosts:
    """One scheme on one core of the reference machine. Work is done in whole ciphertexts, so costs rise in steps."""

    name: str
    values_per_ciphertext: int
    ciphertext_bytes: float
    encrypt_seconds: float
    """Of a ciphertext, like the two below."""
    add_seconds: float
    open_seconds: float
    answer_seconds: float = 0.0
    """Of a ciphertext of a total: of asking the key authority, and of its answer, where that opens nothing itself."""
    answer_seconds_per_client: float = 0.0
    """Beside these, for each client in the total."""
    clients_open: bool = False
    """Whether each client opens the total, with that answer."""
    serial_share: float = 0.0
    """Of encryption, and of opening at clients: what more threads do not shorten (Amdahl)."""
    pool_seconds: float = 0.0
    """Of making a ciphertext's randomiser ahead, which a round pays for as far as the client was not idle."""
    pool_serial_share: float = 0.0
    adds_clear_values: bool = True
    """Whether an aggregator can add a plain number to a ciphertext. Where it cannot, clients with different masks
    all encrypt their union."""

    def ciphertexts(self, values: Any) -> FloatVector:
        """Return how many ciphertexts so many values take."""
        count: FloatVector = np.ceil(np.asarray(values, dtype=np.float64) / self.values_per_ciphertext)
        return count


def _by_profile(
    seconds: Callable[Concatenate[CostModel, Fleet, Arguments], FloatVector],
) -> Callable[Concatenate[CostModel, Fleet, Arguments], FloatVector]:
    """Take each client's seconds from the costs of its own profile, or else from the model's."""

    @wraps(seconds)
    def chosen(
        costs: CostModel, fleet: Fleet, /, *arguments: Arguments.args, **named: Arguments.kwargs
    ) -> FloatVector:
        found = seconds(costs, fleet, *arguments, **named)
        for path in dict.fromkeys(kind.profile for kind in fleet.kinds if kind.profile):
            if path not in costs.clients:
                raise ParameterError(
                    f"the costs of the device profile {path}, which a client names, were not given"
                )
            own = fleet.per_client(lambda kind, path=path: float(kind.profile == path))  # type: ignore[misc]
            found = np.where(own == 1.0, seconds(costs.clients[path], fleet, *arguments, **named), found)
        return found

    return chosen


@dataclass(frozen=True)
class CostModel:
    """A scheme, and everything around it that takes time.

    Vectors have one entry for each client; seconds are of that client's own cores.
    """

    scheme: SchemeCosts
    train_seconds_per_sample: float
    score_seconds_per_value: float = 0.0
    select_seconds_per_value: float = 0.0
    add_clear_seconds_per_value: float = 0.0
    """Of a plain number at the aggregator."""
    train_serial_share: float = 0.0
    trains_on_accelerator: bool = False
    """Training, scoring and selection then take the same time whatever processor a client has."""
    clients: Mapping[str, CostModel] = field(default_factory=dict, hash=False)
    """The costs of clients that have a device profile of their own, by ``ClientKind.profile``."""
    adds_on_arrival: bool = True
    """False: the aggregator begins when the last update is there."""

    @_by_profile
    def train_seconds(self, fleet: Fleet) -> FloatVector:
        """Return the seconds of local training, by the fleet's own cost of a sample where it states one."""
        stated = fleet.model.train_core_seconds_per_sample
        per_sample = self.train_seconds_per_sample if stated is None else stated
        work = fleet.samples * (per_sample * fleet.training.local_epochs)
        return self._on_device(work, fleet, self.train_serial_share)

    @_by_profile
    def score_seconds(self, fleet: Fleet) -> FloatVector:
        """Return the seconds that the sensitivity of all parameters takes, on one core."""
        return self._on_device(
            np.full(fleet.size, self.score_seconds_per_value * fleet.model.parameters), fleet
        )

    @_by_profile
    def select_seconds(self, fleet: Fleet) -> FloatVector:
        """Return the seconds that choosing a mask takes, on one core."""
        return self._on_device(
            np.full(fleet.size, self.select_seconds_per_value * fleet.model.parameters), fleet
        )

    def encrypt_seconds(self, fleet: Fleet, fields: Any) -> FloatVector:
        """Return the seconds that each client takes to encrypt its number of fields, on all of its cores.

        Precomputed randomisers take no less of its processor: what it is not idle for is counted here.
        """
        left: FloatVector = np.maximum(self.pool_seconds(fleet, fields) - fleet.idle_seconds, 0.0)
        return self._encrypt_alone(fleet, fields) + left

    @_by_profile
    def _encrypt_alone(self, fleet: Fleet, fields: Any) -> FloatVector:
        work = self.scheme.ciphertexts(fields) * self.scheme.encrypt_seconds
        return work / (fleet.core_rate * speedup(fleet.cores, self.scheme.serial_share))

    @_by_profile
    def pool_seconds(self, fleet: Fleet, fields: Any) -> FloatVector:
        """Return the seconds of making those randomisers, whether idle or not; 0 for schemes without a pool."""
        work = self.scheme.ciphertexts(fields) * self.scheme.pool_seconds
        return work / (fleet.core_rate * speedup(fleet.cores, self.scheme.pool_serial_share))

    @_by_profile
    def client_open_seconds(self, fleet: Fleet, union_values: Any) -> FloatVector:
        """Return the seconds that each client takes to open a total, on all of its cores; 0 where it does not."""
        work = self.scheme.ciphertexts(union_values) * self.scheme.open_seconds * self.scheme.clients_open
        return work / (fleet.core_rate * speedup(fleet.cores, self.scheme.serial_share))

    def upload_bytes(self, fleet: Fleet, values: Any, fields: Any, sends_mask: bool) -> FloatVector:
        """Return the bytes up: ciphertexts, the other parameters in the clear, and the mask as one bit for each.

        Of the ``fields`` in a client's ciphertexts ``values`` hold a parameter of its own, the others a zero.
        """
        sent = self.scheme.ciphertexts(fields) * self.scheme.ciphertext_bytes
        sent += BYTES_PER_CLEAR_VALUE * (fleet.model.parameters - np.asarray(values, dtype=np.float64))
        return sent + (math.ceil(fleet.model.parameters / BITS_PER_BYTE) if sends_mask else 0)

    def download_bytes(self, fleet: Fleet, union_values: Any) -> FloatVector:
        """Return the bytes down: the model in the clear or, where clients open, the total with so many values."""
        clear = fleet.model.parameters - (np.asarray(union_values) if self.scheme.clients_open else 0)
        total = (
            self.scheme.ciphertexts(union_values) * self.scheme.ciphertext_bytes * self.scheme.clients_open
        )
        return np.broadcast_to(total + float(BYTES_PER_CLEAR_VALUE) * clear, (fleet.size,))

    def add_seconds(self, fleet: Fleet, values: Any) -> FloatVector:
        """Return the seconds that the aggregator takes, on all of its cores, for an update encrypted in ``values``."""
        encrypted = np.asarray(values, dtype=np.float64)
        work = self.scheme.ciphertexts(encrypted) * self.scheme.add_seconds
        work += (fleet.model.parameters - encrypted) * self.add_clear_seconds_per_value
        seconds: FloatVector = work / fleet.aggregator.cores
        return seconds

    def open_seconds(self, fleet: Fleet, values: Any, clients: Any) -> FloatVector:
        """Return the seconds that the key authority takes for a total, on as many cores as the aggregator's.

        It opens it or, where clients do, answers for those who are in it, ``clients``.
        """
        one = self.scheme.answer_seconds + np.asarray(clients) * self.scheme.answer_seconds_per_client
        one = one + (0.0 if self.scheme.clients_open else self.scheme.open_seconds)
        work: FloatVector = self.scheme.ciphertexts(values) * one / fleet.aggregator.cores
        return work

    def _on_device(self, work: FloatVector, fleet: Fleet, serial: float = 1.0) -> FloatVector:
        if self.trains_on_accelerator:
            return work
        return work / (fleet.core_rate * speedup(fleet.cores, serial))


def speedup(cores: Any, serial: float) -> FloatVector:
    """Return how many times faster ``cores`` cores are than one, by Amdahl's law; below one core, the part of it."""
    count = np.asarray(cores, dtype=np.float64)
    more: FloatVector = 1.0 / (serial + (1.0 - serial) / np.maximum(count, 1.0))
    return np.minimum(count, more)


def serial_share(seconds_by_threads: dict[int, float]) -> float:
    """Fit the share of work that more threads do not shorten, by least squares over measured times.

    Needs the time with one thread; 0 where nothing else was measured. The result lies in [0, 1].
    """
    alone = seconds_by_threads[1]
    threads = np.array([count for count in seconds_by_threads if count > 1], dtype=np.float64)
    if not threads.size:
        return 0.0
    # seconds / alone = 1/n + serial * (1 - 1/n)
    room = 1.0 - 1.0 / threads
    above = np.array([seconds_by_threads[int(count)] / alone for count in threads]) - 1.0 / threads
    return float(np.clip(room @ above / (room @ room), 0.0, 1.0))
