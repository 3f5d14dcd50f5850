"""What all roles of one federation know, whatever the method."""

from __future__ import annotations

from dataclasses import dataclass

from shieldfl import ckks, paillier
from shieldfl.methods.protocol.plan import FederationPlan
from shieldfl.roles.round_key_check import RoundKeyCheck

__all__ = ["RoleContext"]


@dataclass(frozen=True)
class RoleContext:
    """Public knowledge: no role gets a secret, or another client's weight, by it."""

    plan: FederationPlan
    keys: RoundKeyCheck
    """Tells the public keys that a round brings from others."""
    most_weight: int
    """The largest that a client counts; 1 where the method weighs all alike."""
    threads: int | None = None
    """For the core; None for as many as the work is worth."""

    @property
    def parameters(self) -> ckks.Parameters | paillier.Parameters:
        """How updates are encrypted."""
        return self.keys.parameters["update"]
