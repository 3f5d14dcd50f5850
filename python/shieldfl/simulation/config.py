"""The settings of a simulated federation that do not depend on the method."""

from __future__ import annotations

import math
from dataclasses import dataclass

from shieldfl.array_view import as_threads, as_unsigned
from shieldfl.errors import ParameterError
from shieldfl.sgd_settings import DEFAULT_MOMENTUM, check_sgd

__all__ = ["RunConfig"]


@dataclass(frozen=True)
class RunConfig:
    """Data, federation and local training. The defaults are SelectiveShield's tables but for the data set."""

    dataset: str = "digits"
    data_dir: str | None = None
    model: str | None = None
    """None chooses by the data set."""
    synthetic_data: str | None = None
    """A NumPy archive of ``features`` and ``labels`` for rounds on synthetic data; None makes a data set for them."""
    clients: int = 20
    rounds: int = 10
    alpha: float = 0.5
    """Concentration of the Dirichlet partition; infinite for an iid one."""
    local_epochs: int = 5
    batch_size: int = 32
    learning_rate: float = 0.01
    momentum: float = DEFAULT_MOMENTUM
    weight_decay: float = 0.0
    sample_rate: float = 1.0
    """Each client takes part in a round with this probability, independently (Poisson sampling)."""
    min_clients: int = 3
    """A round that draws fewer is drawn again; the key authority opens no total of fewer. Of two clients each
    learns the other's update."""
    dropout: float = 0.0
    """Probability that a participant leaves a round, at a step drawn at random: what it did until then is lost."""
    weighting: str = "uniform"
    """``"uniform"``, or ``"samples"``: a client counts as often as it has samples, where the method can."""
    server_learning_rate: float = 1.0
    """1 is FedAvg, since the mean already divides by the number of clients."""
    seed: int = 0
    """Makes partition, initial model and training repeatable; never the cryptographic or privacy noise."""
    threads: int | None = None
    """Of the core, and of torch for the time of the run; None for as many as the work is worth, up to all cores."""

    def __post_init__(self) -> None:
        check_sgd(
            local_epochs=self.local_epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
        )
        for name in ("clients", "rounds", "min_clients"):
            if as_unsigned(getattr(self, name), name) < 1:
                raise ParameterError(f"{name} must be at least 1")
            if getattr(self, name) >= 2**31:
                raise ParameterError(f"{name} must be below 2^31")
        if self.min_clients > self.clients:
            raise ParameterError(
                f"min_clients is {self.min_clients}, above the number of clients ({self.clients}): no round can start. "
                "Take more clients, or lower min_clients; of two clients each learns the other's update"
            )
        if not 0.0 < self.sample_rate <= 1.0:
            raise ParameterError("sample_rate must be above 0 and at most 1")
        if not 0.0 <= self.dropout < 1.0:
            raise ParameterError("dropout must be at least 0 and below 1")
        if self.weighting not in ("uniform", "samples"):
            raise ParameterError("weighting must be 'uniform' or 'samples'")
        for name in ("alpha", "server_learning_rate"):
            value = getattr(self, name)
            if not value > 0.0 or (name != "alpha" and not math.isfinite(value)):
                raise ParameterError(f"{name} must be positive")
        if not 0 <= self.seed < 2**63:
            raise ParameterError("seed must not be negative and be below 2^63")
        as_threads(self.threads)
