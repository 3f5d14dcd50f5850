"""A fleet: the clients of a federation as their devices and links are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from shieldfl.errors import ParameterError

__all__ = [
    "INSTRUCTION_SETS",
    "Aggregator",
    "ClientKind",
    "Fleet",
    "FloatVector",
    "IntVector",
    "Model",
    "Training",
]

INSTRUCTION_SETS = ("scalar", "avx2", "avx512")
"""What the core has kernels for, the slowest first."""

FloatVector = NDArray[np.float64]
IntVector = NDArray[np.int64]


MOST_CLIENTS = 1_000_000
"""Of a fleet: a hundred bytes of vectors for each."""


@dataclass(frozen=True)
class Model:
    """What is trained."""

    parameters: int
    name: str | None = None
    train_core_seconds_per_sample: float | None = None
    """Of one sample in one epoch on one core at speed 1; None takes what the cost model says."""


@dataclass(frozen=True)
class Training:
    """What every client does in a round."""

    local_epochs: int = 1
    min_clients: int = 3
    """The key authority opens no total of fewer, so a cluster that fewer survive in has no result."""


@dataclass(frozen=True)
class Aggregator:
    """The machine that adds ciphertexts, and one like it that opens totals."""

    cores: float = 1.0


@dataclass(frozen=True)
class ClientKind:
    """``count`` clients that are alike."""

    name: str
    cores: float
    samples: int
    upload_bytes_per_second: float
    download_bytes_per_second: float
    count: int = 1
    cpu_share: float = 1.0
    """Of the time of each core, above 0 and at most 1."""
    core_speed: float = 1.0
    """Of one core, in cores of the machine that the costs are of. A ratio of clock rates will do where there is
    no better figure; two calibrated profiles give it exactly."""
    latency_seconds: float = 0.0
    """One way, paid by the upload and by the download."""
    dropout_probability: float = 0.0
    """Of leaving the round before the upload is complete."""
    idle_seconds: float = 0.0
    """Between two rounds, with nothing to do: randomisers of a pooled scheme that are made in it cost the round
    nothing."""
    simd: str = ""
    """The best instruction set of its processor: one of :data:`INSTRUCTION_SETS`; empty for that of its profile."""
    profile: str = ""
    """The path of its own device profile; empty for the one that the costs of all others are of."""
    cluster: str = ""
    """Clients of the same label have alike data; methods that cluster keep them together."""


@dataclass(frozen=True)
class Fleet:
    """Clients, the model they train, and the aggregator. Vectors have one entry for each client, in file order.

    Raises ParameterError for a fleet without clients.
    """

    name: str
    model: Model
    kinds: tuple[ClientKind, ...]
    training: Training = field(default_factory=Training)
    aggregator: Aggregator = field(default_factory=Aggregator)

    def __post_init__(self) -> None:
        if not self.kinds:
            raise ParameterError("the fleet has no clients")
        if self.size > MOST_CLIENTS:
            raise ParameterError(f"the fleet has {self.size:,} clients: {MOST_CLIENTS:,} are the most")

    @cached_property
    def size(self) -> int:
        """Number of clients."""
        return sum(kind.count for kind in self.kinds)

    @cached_property
    def client_names(self) -> tuple[str, ...]:
        """A name for each client: that of its kind, numbered where there are several."""
        return tuple(
            kind.name if kind.count == 1 else f"{kind.name} {number}"
            for kind in self.kinds
            for number in range(1, kind.count + 1)
        )

    @cached_property
    def cluster_names(self) -> tuple[str, ...]:
        """The labels of clusters in order of first appearance."""
        return tuple(dict.fromkeys(kind.cluster for kind in self.kinds))

    @cached_property
    def clusters(self) -> IntVector:
        """Index into ``cluster_names`` for each client."""
        return self._repeat([self.cluster_names.index(kind.cluster) for kind in self.kinds]).astype(np.int64)

    @cached_property
    def cores(self) -> FloatVector:
        """Cores of each client."""
        return self._repeat([kind.cores for kind in self.kinds])

    @cached_property
    def core_rate(self) -> FloatVector:
        """What one core of each client does of the reference core's work: share times speed."""
        return self._repeat([kind.cpu_share * kind.core_speed for kind in self.kinds])

    @cached_property
    def idle_seconds(self) -> FloatVector:
        """Idle time of each client between two rounds."""
        return self._repeat([kind.idle_seconds for kind in self.kinds])

    def per_client(self, of_kind: Callable[[ClientKind], float]) -> FloatVector:
        """Return a figure of each client's kind."""
        return self._repeat([of_kind(kind) for kind in self.kinds])

    @cached_property
    def samples(self) -> FloatVector:
        """Training samples of each client."""
        return self._repeat([kind.samples for kind in self.kinds])

    @cached_property
    def upload_bytes_per_second(self) -> FloatVector:
        """Rate of each client's way up."""
        return self._repeat([kind.upload_bytes_per_second for kind in self.kinds])

    @cached_property
    def download_bytes_per_second(self) -> FloatVector:
        """Rate of each client's way down."""
        return self._repeat([kind.download_bytes_per_second for kind in self.kinds])

    @cached_property
    def latency_seconds(self) -> FloatVector:
        """One-way latency of each client."""
        return self._repeat([kind.latency_seconds for kind in self.kinds])

    @cached_property
    def dropout_probability(self) -> FloatVector:
        """Probability of leaving a round, of each client."""
        return self._repeat([kind.dropout_probability for kind in self.kinds])

    def _repeat(self, values: list[float] | list[int]) -> FloatVector:
        repeated = np.repeat(np.asarray(values, dtype=np.float64), [kind.count for kind in self.kinds])
        repeated.setflags(write=False)
        return repeated
