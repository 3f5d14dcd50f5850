"""What every role of a federation knows, and looks up: nothing of it is secret."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shieldfl.array_view import as_threads
from shieldfl.errors import ParameterError, PolicyError
from shieldfl.methods.protocol.plan import FederationPlan
from shieldfl.roles.message import Message
from shieldfl.roles.round_key_check import RoundKeyCheck
from shieldfl.scheme.parameters import SchemeParameters

__all__ = ["RoleContext"]


@dataclass(frozen=True)
class RoleContext:
    """Public knowledge: no role gets a secret, or another client's weight, by it.

    Raises ParameterError for a number of threads that the core refuses, before a round comes to ask for them.
    """

    plan: FederationPlan
    keys: RoundKeyCheck
    """Tells the public keys that a round brings from others."""
    most_weight: int
    """The largest that a client counts; 1 where the method weighs all alike."""
    phases: tuple[str, ...]
    """The names of every phase that a round may have."""
    answered: Mapping[str, str | None]
    """Of these, those whose answer is the key authority's, or comes of it; for what purpose they open a total."""
    signed: tuple[str, ...]
    """Of these, those whose answer it signs."""
    scores: str | None = None
    """What training brings along in every round, see ``StartingPoint.scores``; None where rounds differ, or nothing."""
    threads: int | None = None
    """For the core; None for as many as the work is worth."""
    clients_open: bool = False
    """Whether each client opens sums itself, with the key authority's answers."""
    aggregator_opens: bool = False
    """Whether the aggregator does, and alone."""
    buffer_factor: float = 1.0
    """What buffers are multiplied by before they are encrypted, a power of two."""
    answered_once: tuple[str, ...] = ()
    """The phases of which the key authority answers one total in the whole run."""

    def __post_init__(self) -> None:
        as_threads(self.threads)

    def check_phase(self, phase: str) -> None:
        """Raise ParameterError for a phase that the method does not have."""
        if phase not in self.phases:
            raise ParameterError(f"there is no phase {phase!r}: the method has {', '.join(self.phases)}")

    def check_answered(self, phase: str) -> None:
        """Raise ParameterError for a phase that the key authority does not answer."""
        self.check_phase(phase)
        if phase not in self.answered:
            raise ParameterError(
                f"phase {phase!r} is answered by the aggregator alone: ask the key authority in "
                f"{', '.join(self.answered)}"
            )

    def check_answer(self, phase: str, round_number: int, answer: Message | None) -> None:
        """Look whether what a phase begins with is what the key authority said, where it signed that.

        ``answer`` is to the phase before. Raises as :meth:`RoundKeyCheck.check_answer` does.
        """
        before = self.phases[: self.phases.index(phase)][-1:]
        if answer is not None and set(before) & set(self.signed):
            self.keys.check_answer(answer, round_number, *before)

    def encrypts(self, purpose: str) -> bool:
        """Say whether something is encrypted for this purpose in this federation, under keys of its own."""
        return purpose in self.keys.parameters

    @property
    def parameters(self) -> SchemeParameters[Any, Any]:
        """How updates are encrypted."""
        return self.keys.parameters["update"]

    def stage_of(self, phase: str) -> str:
        """Return the stage that the answer to a phase takes its time in."""
        return "open" if phase == self.phases[-1] else "negotiate"

    def check_new_round(self, round_number: int, answered: int) -> None:
        """Raise PolicyError for a round that the plan does not have, and for one up to the last that was answered."""
        if not 1 <= round_number <= self.plan.rounds:
            raise PolicyError(
                f"round {round_number} is none of the plan's {self.plan.rounds:,}: it is not begun"
            )
        if round_number <= answered:
            raise PolicyError(f"round {round_number} has been answered: begin a later round")
