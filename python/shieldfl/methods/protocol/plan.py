"""What is public about a federation before any key is made: its sizes, bounds and policies, and the model's layout."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from shieldfl.array_view import as_real, as_unsigned
from shieldfl.errors import ParameterError

__all__ = ["FederationPlan", "checked_weights", "stated_weights"]


@dataclass(frozen=True)
class FederationPlan:
    """Sizes and policies that every role knows. Raises ParameterError for values out of range."""

    clients: int
    rounds: int
    min_clients: int
    """Clients begin no round of fewer, and the key authority opens no total of fewer."""
    server_learning_rate: float
    """1 is FedAvg."""
    parameters: int
    """P: of the model."""
    buffers: int = 0
    """B: float buffer values of the model, such as BatchNorm's statistics."""
    layer_offsets: tuple[int, ...] = ()
    """Where the model's parameter tensors begin in the flat vector, and where the last one ends; () for one layer."""
    most_weight: int = 1
    """The largest weight of a client, such as its number of samples."""
    mean_weight: float = 1.0
    """Of all clients."""
    samples: int | None = None
    """Of all clients together, where it is known: 1/N is the delta of what is private for each sample."""

    def __post_init__(self) -> None:
        # Plain numbers, whatever was given: what is equal must be the same bytes, and so have one digest.
        for name in ("clients", "rounds", "min_clients", "parameters", "most_weight"):
            if self._settle(name, _whole) < 1:
                raise ParameterError(f"{name} must be at least 1")
        self._settle("buffers", _whole)
        if self.min_clients > self.clients:
            raise ParameterError("min_clients must not be above the number of clients: no round could end")
        if not 0.0 < self._settle("server_learning_rate", as_real) < math.inf:
            raise ParameterError("server_learning_rate must be positive and finite")
        if not (self.most_weight < 2**32 and 1.0 <= self._settle("mean_weight", as_real) <= self.most_weight):
            raise ParameterError("most_weight must fit 32 bits, and mean_weight must lie between 1 and it")
        if self.samples is not None and self._settle("samples", _whole) < 1:
            raise ParameterError("samples must be at least 1, or None where it is not known")
        offsets = self._settle("layer_offsets", lambda given, what: tuple(_whole(one, what) for one in given))
        ends = (offsets[0], offsets[-1]) if offsets else (0, self.parameters)
        if ends != (0, self.parameters) or list(offsets) != sorted(offsets):
            raise ParameterError(
                f"layer_offsets must ascend from 0 to the model's {self.parameters:,} parameters: take "
                "ParameterLayout.offsets"
            )

    def _settle(self, name: str, read: Callable[[Any, str], Any]) -> Any:
        value = read(getattr(self, name), name)
        object.__setattr__(self, name, value)
        return value

    @classmethod
    def for_weights(cls, weights: Sequence[int] | None, *, clients: int, **others: Any) -> FederationPlan:
        """Return the plan for clients of these weights, None for all alike; the other arguments are its fields.

        Raises ParameterError for another number of weights, or one that is no whole number from 1 to 2^32 - 1.
        """
        known = checked_weights(weights, clients)
        return cls(clients=clients, most_weight=max(known), mean_weight=sum(known) / len(known), **others)

    @property
    def update_size(self) -> int:
        """N: parameters, and buffers behind them."""
        return self.parameters + self.buffers

    @property
    def offsets(self) -> tuple[int, ...]:
        """The layers' offsets; one layer where none are given."""
        return self.layer_offsets or (0, self.parameters)


def _whole(value: Any, what: str) -> int:
    if isinstance(value, bool):
        raise ParameterError(f"{what} must be a whole number, not bool")
    return as_unsigned(value, what)


def checked_weights(weights: Sequence[int] | None, clients: int) -> tuple[int, ...]:
    """Return a weight for each client, 1 where all count alike. Raises ParameterError as ``for_weights`` does."""
    count = as_unsigned(clients, "clients")
    known = (
        (1,) * max(count, 1) if weights is None else tuple(as_unsigned(one, "a weight") for one in weights)
    )
    fits = all(1 <= weight < 2**32 for weight in known)
    if (weights is not None and len(known) != count) or not fits:
        raise ParameterError("give each client a weight of at least 1 that fits 32 bits")
    return known


def stated_weights(weights: Sequence[int]) -> str | list[int]:
    """Return weights for reports: ``"uniform"`` where all are 1."""
    return "uniform" if max(weights) == 1 else list(weights)
