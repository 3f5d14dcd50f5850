"""A client of methods in which all encrypt the same positions: the zone, which may be everything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from shieldfl.errors import ParameterError, PolicyError
from shieldfl.masks import Mask
from shieldfl.methods.encrypted_sum.buffer_range import in_buffer_range
from shieldfl.methods.encrypted_sum.mixed_upload import MixedUpload
from shieldfl.methods.protocol.disclosure import Disclosure
from shieldfl.methods.protocol.global_model import GlobalModel
from shieldfl.methods.protocol.role_context import RoleContext
from shieldfl.methods.protocol.training_client import TrainingClient
from shieldfl.roles.message import Message, Part
from shieldfl.stateful import refuse_unless
from shieldfl.training.local_update import StartingPoint

__all__ = ["MaskedAverageClient"]


class MaskedAverageClient(TrainingClient):
    """Encrypts its update on the zone and sends the rest in the clear, or not at all.

    Methods that agree on the zone first add phases: see ``_speak``, ``_read_zone`` and ``scores``.

    Parameters
    ----------
    index, weight : its number, and how much it counts.
    initial : the model before the first round.
    context : what all roles of the federation know.
    zone : the N positions, of parameters and then buffers, that are encrypted from the first round on; None where a
        phase decides.
    sends_rest : whether values outside of the zone are sent.
    shares_buffers : whether the global model has them.
    """

    changes: ClassVar = {"zone": Mask | None}

    clear_parts: tuple[str, ...] = ("weight",)
    """Message parts beside the update, of all phases, that tell of the client's data and travel unprotected."""

    def __init__(
        self,
        index: int,
        weight: int,
        initial: GlobalModel,
        context: RoleContext,
        zone: Mask | None,
        *,
        sends_rest: bool = True,
        shares_buffers: bool = True,
    ) -> None:
        super().__init__(index, initial, context, shares_buffers=shares_buffers)
        self.weight = weight
        self.zone = self._settled = zone
        self._sends_rest = sends_rest
        self._sent_buffers = self._buffer_count if shares_buffers else 0
        self._upload: MixedUpload | None = None
        self._tell_vector: Callable[[NDArray[Any]], None] | None = None

    def tell_vectors(self, told: Callable[[NDArray[Any]], None]) -> None:
        """Have ``told`` get what is averaged of each update from now on (N,), as an audit does."""
        self._tell_vector = told

    def check_changed(self) -> None:
        """Raise WireFormatError for a zone of another model, or another one than is settled."""
        super().check_changed()
        refuse_unless(
            self.zone is None or self.context.plan.update_size == self.zone.size or not self._sends_rest
        )
        refuse_unless(self._settled is None or self.zone == self._settled)

    def _begin_round(self, round_number: int, participants: int, model: Message) -> StartingPoint:
        """Train from the global model; take the round's keys, and the zone where one was agreed on."""
        # Looked at before anything changes: a round that is refused must not leave the one that runs without its zone.
        zone = self._read_zone(model["zone"]) if "zone" in model else None
        start = super()._begin_round(round_number, participants, model)
        if zone is not None:
            self.zone = zone
        return start

    def _make(self, phase: str, answer: Message | None) -> Message:
        if phase != "update":
            message = self._speak(phase)
            spoken = tuple(one for one in self.clear_parts if one in message)
            self._state(replace(self.disclosure, parts=self.disclosure.parts + spoken))
            return message
        zone = self._zone_from(answer)
        if zone is None:
            raise ParameterError("the update needs the zone that the phase before decides")
        with self.clock.stage("merge"):
            vector = self._vector(answer)
            if self._tell_vector is not None:
                self._tell_vector(vector)
        with self.clock.stage("encrypt"):
            upload = self._upload_under_round_key()
            union = upload.union_of(zone)
            buffers, factor = self._sent_buffers, self.context.buffer_factor
            with in_buffer_range(vector, buffers, factor) as scaled:
                ciphertexts, _ = upload.encrypt(scaled, zone, union, self.round)
        with self.clock.stage("upload"):
            self._disclose(zone)
            self.zone = zone
            parts = upload.parts(vector, ciphertexts, zone)
            return Message({"round": Message.from_number(self.round), **parts})

    def _upload_under_round_key(self) -> MixedUpload:
        key = self._round_key("update")
        if self._upload is None or self._upload.key != key:
            context = self.context
            self._upload = MixedUpload(
                key, self.weight, context.most_weight, context.threads, sends_rest=self._sends_rest
            )
        return self._upload

    def _speak(self, phase: str) -> Message:
        """Make the message of a phase before the update."""
        raise NotImplementedError

    def _zone_from(self, answer: Message | None) -> Mask | None:
        """Return the zone, which an answer to the phase before may bring."""
        if answer is not None and "zone" in answer:
            return self._read_zone(answer["zone"])
        return self.zone

    def _read_zone(self, frame: Part) -> Mask:
        """Read a zone that other roles agreed on. Raises PolicyError where it protects less than it has to.

        What is outside of it leaves in the clear, so a client does not take any zone that it is sent.
        """
        raise PolicyError("what is encrypted is settled from the start: no message can change it")

    def _vector(self, answer: Message | None) -> NDArray[np.float32] | NDArray[np.float64]:
        """Return what is averaged (N,), by what the phase before decided."""
        return self._difference()

    def _state(self, disclosure: Disclosure) -> None:
        """State what the message that is about to leave shows, with those before it."""
        self.disclosure = disclosure

    def _disclose(self, zone: Mask) -> None:
        """State what an update with this zone shows."""
        rest: Literal["clear", "local"] = "clear" if self._sends_rest else "local"
        self._state(Disclosure.of_zone(zone, self._size, rest=rest, parts=self.clear_parts))
