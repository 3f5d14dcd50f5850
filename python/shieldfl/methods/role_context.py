"""What all roles of one federation share, whatever the method."""

from __future__ import annotations

from dataclasses import dataclass

from shieldfl import ckks, paillier
from shieldfl.methods.global_model import GlobalModel
from shieldfl.roles.round_key_check import RoundKeyCheck

__all__ = ["RoleContext"]


@dataclass(frozen=True)
class RoleContext:
    """Public knowledge: no role gets a secret by it."""

    initial: GlobalModel
    """The model before the first round."""
    keys: RoundKeyCheck
    """Tells the public keys that a round brings from others."""
    weights: tuple[int, ...]
    """How much each client counts, at least 1."""
    min_clients: int
    """Clients begin no round of fewer, and the key authority opens no total of fewer."""
    threads: int | None = None
    """For the core; None for as many as the work is worth."""

    @property
    def parameters(self) -> ckks.Parameters | paillier.Parameters:
        """How updates are encrypted."""
        return self.keys.parameters["update"]

    @property
    def clients(self) -> int:
        """How many clients there are."""
        return len(self.weights)

    @property
    def update_size(self) -> int:
        """N: parameters, and buffers behind them."""
        return self.initial.parameters.size + self.initial.buffers.size
