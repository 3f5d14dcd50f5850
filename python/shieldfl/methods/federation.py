"""What every method needs to know of the federation that it is set up for."""

from __future__ import annotations

from dataclasses import dataclass, field

from shieldfl.errors import ParameterError

__all__ = ["Federation"]


@dataclass(frozen=True)
class Federation:
    """Sizes, policies and public facts. Raises ParameterError for weights that do not fit the clients."""

    clients: int
    rounds: int
    min_clients: int
    """The key authority opens no total of fewer."""
    sample_rate: float
    """Each client's chance to take part in a round, for accountants."""
    server_learning_rate: float
    """1 is FedAvg."""
    threads: int | None
    """For the core; None for all cores."""
    weights: tuple[int, ...] | None = None
    """How much each client counts, such as its number of samples; None for all alike."""
    layer_offsets: tuple[int, ...] = ()
    """Where the model's parameter tensors begin in the flat vector, and where the last one ends."""
    samples: int | None = None
    """Of all clients together, where it is known: 1/N is the delta of what is private for each sample."""
    shared_secret: bytes | None = field(default=None, repr=False)
    """For methods in which clients and key authority share one; None draws it at random. Given for repeatable runs."""

    def __post_init__(self) -> None:
        if self.weights is not None and (len(self.weights) != self.clients or min(self.weights) < 1):
            raise ParameterError("give each client a weight of at least 1")

    @property
    def client_weights(self) -> tuple[int, ...]:
        """Return a weight for each client: 1 where all count alike."""
        return (1,) * self.clients if self.weights is None else self.weights
