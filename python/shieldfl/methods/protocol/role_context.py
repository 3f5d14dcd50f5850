"""What all roles of one federation know, whatever the method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shieldfl.errors import ParameterError
from shieldfl.methods.protocol.plan import FederationPlan
from shieldfl.roles.round_key_check import RoundKeyCheck
from shieldfl.scheme.parameters import SchemeParameters

__all__ = ["RoleContext"]


@dataclass(frozen=True)
class RoleContext:
    """Public knowledge: no role gets a secret, or another client's weight, by it."""

    plan: FederationPlan
    keys: RoundKeyCheck
    """Tells the public keys that a round brings from others."""
    most_weight: int
    """The largest that a client counts; 1 where the method weighs all alike."""
    phases: tuple[str, ...]
    """The names of every phase that a round may have."""
    scores: str | None = None
    """What training brings along in every round, see ``StartingPoint.scores``; None where rounds differ, or nothing."""
    threads: int | None = None
    """For the core; None for as many as the work is worth."""

    def check_phase(self, phase: str) -> None:
        """Raise ParameterError for a phase that the method does not have."""
        if phase not in self.phases:
            raise ParameterError(f"there is no phase {phase!r}: the method has {', '.join(self.phases)}")

    def encrypts(self, purpose: str) -> bool:
        """Say whether something is encrypted for this purpose in this federation, under keys of its own."""
        return purpose in self.keys.parameters

    @property
    def parameters(self) -> SchemeParameters[Any, Any]:
        """How updates are encrypted."""
        return self.keys.parameters["update"]
