"""An aggregator's door: one message of each client in a phase, of the round that runs."""

from __future__ import annotations

import abc

from shieldfl.errors import DuplicateFrameError, ParameterError, PolicyError
from shieldfl.methods.method import AggregatorSteps
from shieldfl.roles.message import Message

__all__ = ["CollectingAggregator"]


class CollectingAggregator(AggregatorSteps):
    """Refuses second messages and those of other rounds and phases.

    The rest is for ``_begin_phase``, ``_collect`` and ``_result``.
    """

    def __init__(self) -> None:
        super().__init__()
        self.round = 0
        self._phase: str | None = None
        self._seen: set[int] = set()

    def begin_phase(self, phase: str, round_number: int, answer: Message | None) -> None:
        """Forget the phase before, also where it was the same. A phase that is refused does not begin."""
        self._begin_phase(phase, round_number, answer)
        self.round = round_number
        self._phase = phase
        self._seen = set()

    def receive(self, phase: str, client: int, message: Message) -> None:
        """Add one client's message. What is refused changes nothing."""
        self._check_phase(phase)
        if client in self._seen:
            raise DuplicateFrameError(f"client {client} has sent its message already: it was not added again")
        if message.number("round") != self.round:
            raise PolicyError(f"client {client} sent a message of another round: it was not used")
        self._collect(phase, client, message)
        self._seen.add(client)

    def close(self, phase: str) -> Message:
        """Return the phase's result. Raises ParameterError where nobody has sent anything."""
        self._check_phase(phase)
        if not self._seen:
            raise ParameterError("no message has arrived: wait for at least one client")
        return self._result(phase)

    def _check_phase(self, phase: str) -> None:
        if phase != self._phase:
            begun = "no phase has begun" if self._phase is None else f"phase {self._phase!r} runs"
            raise PolicyError(f"messages of phase {phase!r} are not taken: {begun}")

    @abc.abstractmethod
    def _begin_phase(self, phase: str, round_number: int, answer: Message | None) -> None:
        """Start to collect from nothing; one that raises must change nothing. ``round`` is still the one before."""

    @abc.abstractmethod
    def _collect(self, phase: str, client: int, message: Message) -> None:
        """Add a message; one that raises must change nothing."""

    @abc.abstractmethod
    def _result(self, phase: str) -> Message:
        """Return what the phase's messages come to."""
