"""What every method needs to know of the federation that it is set up for."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from shieldfl.array_view import as_real, as_threads, as_unsigned
from shieldfl.errors import ParameterError

__all__ = ["Federation"]


@dataclass(frozen=True)
class Federation:
    """Sizes, policies and public facts. Raises ParameterError for values out of range."""

    clients: int
    rounds: int
    min_clients: int
    """Clients begin no round of fewer, and the key authority opens no total of fewer."""
    server_learning_rate: float
    """1 is FedAvg."""
    threads: int | None
    """For the core; None for as many as the work is worth."""
    weights: tuple[int, ...] | None = None
    """How much each client counts, such as its number of samples; None for all alike."""
    layer_offsets: tuple[int, ...] = ()
    """Where the model's parameter tensors begin in the flat vector, and where the last one ends."""
    samples: int | None = None
    """Of all clients together, where it is known: 1/N is the delta of what is private for each sample."""
    shared_secret: bytes | None = field(default=None, repr=False)
    """For methods in which clients and key authority share one; None draws it at random. Given for repeatable runs."""

    def __post_init__(self) -> None:
        for name in ("clients", "rounds", "min_clients"):
            if as_unsigned(getattr(self, name), name) < 1:
                raise ParameterError(f"{name} must be at least 1")
        if self.min_clients > self.clients:
            raise ParameterError("min_clients must not be above the number of clients: no round could end")
        if not 0.0 < as_real(self.server_learning_rate, "server_learning_rate") < math.inf:
            raise ParameterError("server_learning_rate must be positive and finite")
        as_threads(self.threads)
        if self.samples is not None and as_unsigned(self.samples, "samples") < 1:
            raise ParameterError("samples must be at least 1, or None where it is not known")
        weights = self.client_weights
        if len(weights) != self.clients or not all(
            1 <= as_unsigned(weight, "a weight") < 2**32 for weight in weights
        ):
            raise ParameterError("give each client a weight of at least 1 that fits 32 bits")

    def offsets_of(self, parameters: int) -> tuple[int, ...]:
        """Return the layers' offsets in a model of so many parameters; one layer where none are given.

        Raises ParameterError unless they ascend from 0 to that number.
        """
        offsets = self.layer_offsets or (0, parameters)
        if (offsets[0], offsets[-1]) != (0, parameters) or list(offsets) != sorted(offsets):
            raise ParameterError(
                f"layer_offsets must ascend from 0 to the model's {parameters:,} parameters: take "
                "ParameterLayout.offsets"
            )
        return offsets

    @property
    def client_weights(self) -> tuple[int, ...]:
        """Return a weight for each client: 1 where all count alike."""
        return (1,) * self.clients if self.weights is None else self.weights

    @property
    def stated_weights(self) -> str | list[int]:
        """Return the weights for reports: ``"uniform"`` where all are 1."""
        return "uniform" if max(self.client_weights) == 1 else list(self.client_weights)
