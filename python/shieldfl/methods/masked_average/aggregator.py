"""The aggregator of methods in which all clients encrypt the same positions."""

from __future__ import annotations

from typing import ClassVar

from shieldfl.errors import ParameterError, PolicyError
from shieldfl.masks import Mask
from shieldfl.methods.encrypted_sum.mixed_sum import MixedSum
from shieldfl.methods.protocol.collecting_aggregator import CollectingAggregator
from shieldfl.methods.protocol.role_context import RoleContext
from shieldfl.roles.message import Message
from shieldfl.stateful import refuse_unless

__all__ = ["MaskedAverageAggregator"]


class MaskedAverageAggregator(CollectingAggregator):
    """Holds the round's public key and its sum.

    Methods that agree on the zone first add phases: see ``_hear`` and ``_conclude``.

    Parameters
    ----------
    context : what all roles of the federation know.
    weights : how much each client counts.
    zone : the N positions that are encrypted from the first round on; None where a phase decides.
    sends_rest : whether clients send the values outside of it.
    """

    changes: ClassVar = {"zone": Mask | None, "_sum": MixedSum | None}
    sums: ClassVar[tuple[str, ...]] = ("_sum",)

    def __init__(
        self, context: RoleContext, weights: tuple[int, ...], zone: Mask | None, *, sends_rest: bool = True
    ) -> None:
        super().__init__(context)
        self.weights = weights
        self.zone = zone
        self._settled = zone
        self._sends_rest = sends_rest
        self._sum: MixedSum | None = None

    def check_changed(self) -> None:
        """Raise WireFormatError for a zone of another size, or another one than is settled."""
        super().check_changed()
        refuse_unless(
            self.zone is None or self.context.plan.update_size == self.zone.size or not self._sends_rest
        )
        refuse_unless(self._settled is None or self.zone == self._settled)

    def check_sums(self) -> None:
        """Raise WireFormatError for a sum of another zone or of other clients, or one before the update phase."""
        super().check_sums()
        if self._phase == "update":
            refuse_unless(self._sum is not None and self._sum.is_of(self.zone, len(self._seen)))
        else:
            refuse_unless(self._sum is None)

    def _begin_phase(self, phase: str, round_number: int, answer: Message | None) -> None:
        """Start to collect; in the update phase, a sum over the zone, which the answer may bring."""
        if phase != "update":
            self._begin(phase, round_number)
            self._sum = None
            return
        zone = self._zone_from(round_number, answer)
        if zone is None:
            raise ParameterError("the update phase needs the zone that the phase before decides")
        self._sum = MixedSum(
            self._round_key(round_number, "update"),
            [zone],
            round_number,
            self.weights,
            self.clock,
            self.context.threads,
            weighted=self.context.most_weight > 1,
            has_rest=self._sends_rest,
        )
        self.zone = zone

    def _zone_from(self, round_number: int, answer: Message | None) -> Mask | None:
        """Return the round's zone, which an answer to the phase before may bring."""
        if answer is not None and "zone" in answer:
            if self._settled is not None:
                raise PolicyError("what is encrypted is settled from the start: no message can change it")
            return Mask.from_bytes(answer["zone"], expected_size=self.context.plan.update_size)
        return self.zone

    def _collect(self, phase: str, client: int, message: Message) -> None:
        if phase != "update":
            self._hear(phase, client, message)
            return
        assert self._sum is not None
        assert self.zone is not None
        self._sum.add(client, message, self.zone)

    def _result(self, phase: str) -> Message:
        if phase != "update":
            return self._conclude(phase)
        assert self._sum is not None
        with self.clock.stage("aggregate"):
            return Message({"round": Message.from_number(self.round), **self._sum.parts("")})

    def _begin(self, phase: str, round_number: int) -> None:
        """Forget what an earlier phase of this name collected."""

    def _hear(self, phase: str, client: int, message: Message) -> None:
        """Take a message of a phase before the update."""
        raise NotImplementedError

    def _conclude(self, phase: str) -> Message:
        """Return what such a phase comes to."""
        raise NotImplementedError
