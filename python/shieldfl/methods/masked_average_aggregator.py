"""The aggregator of methods in which all clients encrypt the same positions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shieldfl.errors import DuplicateFrameError, ParameterError, PolicyError, RangeError, WireFormatError
from shieldfl.masks import Mask
from shieldfl.methods.method import AggregatorSteps
from shieldfl.methods.mixed_sum import MixedSum
from shieldfl.methods.role_context import RoleContext
from shieldfl.roles.message import Message

__all__ = ["MaskedAverageAggregator"]


class MaskedAverageAggregator(AggregatorSteps):
    """Holds the public key and the round's sum.

    Methods that agree on the zone first add phases: see ``_hear`` and ``_conclude``.

    Parameters
    ----------
    context : what all roles of the federation share.
    zone : the N positions that are encrypted from the first round on; None where a phase decides.
    sends_rest : whether clients send the values outside of it.
    """

    def __init__(self, context: RoleContext, zone: Mask | None, *, sends_rest: bool = True) -> None:
        self.context = context
        self.zone = zone
        self.round = 0
        self._sends_rest = sends_rest
        self._seen: set[int] = set()
        self._sum: MixedSum | None = None

    def begin_phase(self, phase: str, round_number: int, answer: Message | None) -> None:
        """Start to collect; in the update phase, a sum over the zone, which the answer may bring."""
        self.round = round_number
        self._seen = set()
        if phase != "update":
            self._begin(phase)
            return
        if answer is not None and "zone" in answer:
            self.zone = Mask.from_bytes(answer["zone"], expected_size=self.context.update_size)
        if self.zone is None:
            raise ParameterError("the update phase needs the zone that the phase before decides")
        weighted = max(self.context.weights) > 1
        self._sum = MixedSum(
            self.context.key,
            [self.zone],
            round_number,
            weighted,
            self.context.threads,
            has_rest=self._sends_rest,
        )

    def receive(self, phase: str, client: int, message: Message) -> None:
        """Add one client's message. What is refused changes nothing."""
        if client in self._seen:
            raise DuplicateFrameError(f"client {client} has sent its message already: it was not added again")
        if message.number("round") != self.round:
            raise PolicyError(f"client {client} sent a message of another round: it was not used")
        if phase == "update":
            self._add(client, message)
        else:
            self._hear(phase, client, message)
        self._seen.add(client)

    def _add(self, client: int, message: Message) -> None:
        if self._sum is None or self.zone is None:
            raise PolicyError(f"client {client} sent an update before the round's zone was decided")
        clock = self.context.clock
        with clock.stage("upload"):
            weight = message.number("weight")
            if not 1 <= weight <= max(self.context.weights):
                raise RangeError(f"client {client} sent a weight that is not between 1 and the largest one")
            dense: NDArray[np.float32] = np.zeros(self.zone.size, dtype=np.float32)
            if self._sends_rest:
                rest = ~self.zone
                values = message.vector("values", np.float32, rest.count)
                if not np.isfinite(values).all():
                    raise WireFormatError(f"client {client} sent NaN or infinity: its update was not added")
                rest.scatter(values, dense, self.context.threads)
        with clock.stage("aggregate"):
            self._sum.add(message["ciphertexts"], dense, weight)

    def close(self, phase: str) -> Message:
        """Return the phase's result; of the update phase, the total."""
        if not self._seen:
            raise ParameterError("no message has arrived: wait for at least one client")
        if phase != "update":
            return self._conclude(phase)
        assert self._sum is not None
        with self.context.clock.stage("aggregate"):
            return Message({"round": Message.from_number(self.round), **self._sum.parts("")})

    def _begin(self, phase: str) -> None:
        """Forget what an earlier round's phase of this name collected."""

    def _hear(self, phase: str, client: int, message: Message) -> None:
        raise ParameterError(f"there is no phase {phase!r}")

    def _conclude(self, phase: str) -> Message:
        raise ParameterError(f"there is no phase {phase!r}")
