"""Averages in which all clients encrypt the same positions, the zone: method, client, aggregator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from shieldfl.authority.message import Message, Part
from shieldfl.encryption.parameters import SchemeParameters
from shieldfl.encryption.registry import encryptions
from shieldfl.errors import ParameterError, PolicyError
from shieldfl.learning.local_update import FloatVector, StartingPoint
from shieldfl.masks import Mask
from shieldfl.methods.distributed_noise.shares import NoiseShares
from shieldfl.methods.encrypted_update import MixedSum, MixedUpload, in_buffer_range
from shieldfl.methods.encryption_settings import EncryptionSettings, update_parameters
from shieldfl.methods.masked_average.rule import MaskedAverageRule
from shieldfl.privacy.events import EncryptedUpload, Noise, NoiseShareUpload
from shieldfl.privacy.sum_noise import SumNoise
from shieldfl.rounds.collecting_aggregator import CollectingAggregator
from shieldfl.rounds.global_model import GlobalModel
from shieldfl.rounds.method import Method
from shieldfl.rounds.opening_rule import OpeningRule
from shieldfl.rounds.plan import FederationPlan, Phase, stated_weights
from shieldfl.rounds.public_setup import RoleContext
from shieldfl.rounds.reports import Disclosure
from shieldfl.rounds.training_client import TrainingClient
from shieldfl.stateful import refuse_unless

__all__ = ["MaskedAverage", "MaskedAverageAggregator", "MaskedAverageClient"]


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
    noise : of the sum, of which this client adds a share to what it encrypts; None for none.
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
        noise: SumNoise | None = None,
    ) -> None:
        super().__init__(index, initial, context, shares_buffers=shares_buffers)
        self.noise_shares = None if noise is None else NoiseShares(noise, context)
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
        """State what the message that is about to leave shows, with those before it.

        What is encrypted has noise, where there are shares and something is: it is in the sum that is opened.
        """
        noised = self.noise_shares is not None and disclosure.encrypted.count > 0
        self.disclosure = replace(disclosure, encrypts_noised=True) if noised else disclosure

    def _encrypted_event(self, noise: Noise | None, synthetic: bool) -> EncryptedUpload | NoiseShareUpload:
        if self.noise_shares is None:
            return super()._encrypted_event(noise, synthetic)
        return NoiseShareUpload(self.round, self.index, self.noise_shares.noise.charge)

    @property
    def _clip_norm(self) -> float:
        """What is clipped to in the round that runs, where there are shares of noise."""
        return self._shares.noise.clip_norm

    @property
    def _shares(self) -> NoiseShares:
        assert self.noise_shares is not None, "asked for only where sums have noise"
        return self.noise_shares

    @property
    def deviation_of_share(self) -> float:
        """The deviation of what it draws for each value in the round that runs, in the update's unit."""
        noise = self._shares.noise
        return noise.deviation_of_share * (self._clip_norm / noise.clip_norm)

    def in_the_mean(self, vector: NDArray[np.float32] | NDArray[np.float64]) -> NDArray[np.float64]:
        """Return its part (P,) of what the round's mean is of, by what it has encrypted, as it alone knows it."""
        raise NotImplementedError

    def _share_of(self, values: FloatVector) -> NDArray[np.float64]:
        sent, _ = self._shares.of(values, self.round, self._clip_norm)
        return sent.astype(np.float64)

    def _values_of(self, share: NDArray[np.float64]) -> NDArray[np.float64]:
        return self._shares.read(share, self.round, self._clip_norm)

    def _disclose(self, zone: Mask) -> None:
        """State what an update with this zone shows."""
        rest: Literal["clear", "local"] = "clear" if self._sends_rest else "local"
        self._state(Disclosure.of_zone(zone, self._size, rest=rest, parts=self.clear_parts))


UPDATE = Phase("update", answered_by_authority=True)


class MaskedAverage(Method):
    """Federated averaging in which every client encrypts the same positions.

    Parameters
    ----------
    name, plan : as for :class:`Method`; buffers are averaged, always encrypted.
    settings : of the method.
    encryption : how updates are encrypted; None for what the settings say.
    zone : the N positions that are encrypted; None where the clients agree on them.
    count : how many positions are encrypted, where no zone says it and it is known.
    sends_rest : whether values outside of the zone are sent, in the clear.
    other_keys : what else than updates is encrypted, under keys of their own: parameters by purpose.
    """

    phases: tuple[Phase, ...] = (UPDATE,)
    clients_can_open = True
    schemes: ClassVar[tuple[str, ...]] = encryptions()
    sum_bits: int | None = None
    """Of a sum of updates, where fewer than any sum takes are enough."""

    def __init__(
        self,
        name: str,
        settings: Any,
        plan: FederationPlan,
        zone: Mask | None,
        *,
        encryption: EncryptionSettings | None = None,
        count: int | None = None,
        sends_rest: bool = True,
        other_keys: Mapping[str, SchemeParameters[Any, Any]] | None = None,
    ) -> None:
        super().__init__(name, settings, plan)
        self.zone = zone
        self.sends_rest = sends_rest
        self._settings = settings
        chosen: EncryptionSettings = settings if encryption is None else encryption
        if chosen.encryption not in self.schemes:
            raise ParameterError(
                f"{name} encrypts by {' or '.join(self.schemes)}, not by {chosen.encryption}"
            )
        parameters = update_parameters(
            chosen.encryption,
            plan.most_participants,
            chosen,
            count=count if zone is None else zone.count,
            most_count=self.positions,
            most_weight=self.most_weight,
            mean_weight=1.0 if self.weighs_all_alike else plan.mean_weight,
            key_bits=chosen.key_bits,
            sum_bits=self.sum_bits,
        )
        self.purposes = {"update": parameters, **(other_keys or {})}
        self.buffer_factor = chosen.buffer_factor

    @property
    def update_parameters(self) -> SchemeParameters[Any, Any]:
        """How updates are encrypted."""
        return self.purposes["update"]

    def _client(
        self,
        context: RoleContext,
        index: int,
        weight: int,
        initial: GlobalModel,
        shared_secret: bytes | None,
    ) -> MaskedAverageClient:
        return MaskedAverageClient(index, weight, initial, context, self.zone, sends_rest=self.sends_rest)

    def _aggregator(
        self, context: RoleContext, weights: tuple[int, ...], initial: GlobalModel | None
    ) -> MaskedAverageAggregator:
        return MaskedAverageAggregator(context, weights, self.zone, sends_rest=self.sends_rest)

    def _opening_rule(
        self, initial: GlobalModel, context: RoleContext, shared_secret: bytes | None
    ) -> OpeningRule:
        return MaskedAverageRule(context, initial, self.zone, sends_rest=self.sends_rest)

    def settings(self, weights: Sequence[int]) -> dict[str, Any]:
        """Return the settings, with what they come to."""
        return asdict(self._settings) | {
            "weights": stated_weights(weights),
            "bytes_per_encrypted_value": self.update_parameters.bytes_per_value,
        }
