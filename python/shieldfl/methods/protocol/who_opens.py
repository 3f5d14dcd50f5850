"""Who opens sums: the key authority, each client, or the aggregator. Chosen by the plan, among what a method allows."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from shieldfl.errors import ParameterError
from shieldfl.methods.protocol.phase import TELL_OPENED, Phase
from shieldfl.methods.protocol.plan import FederationPlan
from shieldfl.scheme.parameters import SchemeParameters
from shieldfl.scheme.registry import scheme_of

__all__ = ["WhoOpens"]

_IN_WORDS = {
    None: "nobody",
    "aggregator": "the aggregator",
    "authority": "the key authority",
    "clients": "each client",
}


class WhoOpens:
    """The part of a method that says who opens its sums, and what a round goes through then."""

    clients_can_open: bool = False
    """Whether each client can work the model out itself: where no other role needs to know what a sum opened to."""
    needs_shared_secret: ClassVar[bool] = False
    """Whether clients and key authority share a secret, which whoever sets the federation up draws."""

    name: str
    plan: FederationPlan
    phases: tuple[Phase, ...]
    """Every phase that a round may have, in order; settings may leave some of the class's out."""
    purposes: Mapping[str, SchemeParameters[Any, Any]] = MappingProxyType({})
    """What is encrypted, and how: parameters by purpose, ``"update"`` among them; nothing for a method without keys."""

    @property
    def enrols(self) -> bool:
        """Whether each client shares a key of its own with the key authority."""
        return any(scheme_of(own).enrols for own in self.purposes.values())

    @property
    def clients_open(self) -> bool:
        """Whether each client opens sums itself."""
        return self.plan.opener in (None, "clients") and self.enrols and self.clients_can_open

    @property
    def aggregator_can_open(self) -> bool:
        """Whether a plan may have the aggregator open sums."""
        return self.enrols and self.clients_can_open and not self.needs_shared_secret

    @property
    def aggregator_opens(self) -> bool:
        """Whether the aggregator opens sums, and alone. It then has the model, and begins rounds with it."""
        return self.plan.opener == "aggregator" and self.aggregator_can_open

    @property
    def aggregator_has_model(self) -> bool:
        """Whether rounds begin with the aggregator's model: where it opens sums, and where nobody has keys."""
        return self.aggregator_opens or not self.purposes

    @property
    def opener(self) -> str | None:
        """Who opens sums, by the plan's name for it, whatever the plan left open; None for a method without keys."""
        if not self.purposes:
            return None
        if self.aggregator_opens:
            return "aggregator"
        return "clients" if self.clients_open else "authority"

    @property
    def opened_by(self) -> str:
        """Who opens sums, in words; "nobody" for a method without keys."""
        return _IN_WORDS[self.opener]

    def check_opener(self) -> None:
        """Raise ParameterError where the plan has those open sums who cannot, as the method is set."""
        if self.plan.opener == "clients" and not self.clients_open:
            raise ParameterError(
                f'clients of {self.name} cannot open sums as it is set: take opener = "authority", or another scheme'
            )
        if self.plan.opener == "aggregator" and not self.aggregator_opens:
            why = "as it is set"
            if self.needs_shared_secret:
                why = "without the secret that clients keep from it"
            raise ParameterError(
                f'the aggregator of {self.name} cannot open sums {why}: take opener = "authority" or "clients"'
            )

    def signs_answer(self, phase: Phase) -> bool:
        """Whether the key authority signs the answer to a phase: not where each client works it out itself."""
        signs = phase.answered_by_authority and phase.signs_answer and phase != self.phases[-1]
        return signs and not self.clients_open

    def _with_opened(self, phases: tuple[Phase, ...]) -> tuple[Phase, ...]:
        if not self.clients_open:
            return phases
        tells = [phase.answered_by_authority for phase in phases[:-1]]
        found = [
            (phase, TELL_OPENED) if told else (phase,) for phase, told in zip(phases[:-1], tells, strict=True)
        ]
        return (*(one for both in found for one in both), *phases[-1:])
