"""Averages in which all clients encrypt the same positions, the zone: method, client, aggregator, rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from shieldfl.authority.message import Message, Part
from shieldfl.encryption.parameters import SchemeParameters
from shieldfl.encryption.registry import DEFAULT_PUBLIC_KEY_ENCRYPTION, encryptions, scheme_named, scheme_of
from shieldfl.errors import ParameterError, PolicyError, WireFormatError
from shieldfl.learning.local_update import FloatVector, StartingPoint
from shieldfl.masks import Mask, positions_in_budget, top_k
from shieldfl.methods.encrypted_update import (
    MixedSum,
    MixedTotal,
    MixedUpload,
    encrypted_positions,
    in_buffer_range,
    settled_positions,
    with_buffers_times,
)
from shieldfl.methods.encryption_settings import EncryptionSettings, FixedPoint, update_parameters
from shieldfl.methods.noised_average import DpSgdRounds, KindsOfRounds
from shieldfl.methods.noised_sums import OF_NOISY_SUMS, NoiseShares, NoisySums
from shieldfl.privacy.events import EncryptedUpload, Noise, NoiseShareUpload, PrivacyReading
from shieldfl.privacy.noise import MOST_EXPONENT, ClipRule
from shieldfl.privacy.sum_noise import SumNoise
from shieldfl.rounds.collecting_aggregator import CollectingAggregator
from shieldfl.rounds.global_model import GlobalModel
from shieldfl.rounds.messages import newest_answer
from shieldfl.rounds.method import Method
from shieldfl.rounds.opening_rule import OpeningRule, RoundSums
from shieldfl.rounds.plan import FederationPlan, Phase, stated_weights
from shieldfl.rounds.public_setup import RoleContext
from shieldfl.rounds.reports import Disclosure
from shieldfl.rounds.training_client import TrainingClient
from shieldfl.stateful import refuse_unless

__all__ = ["MaskedAverage", "MaskedAverageAggregator", "MaskedAverageClient"]

UPDATE = Phase("update", answered_by_authority=True)
Reader = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""What makes a mean update of the opened sums of a total."""
CLIP_EXPONENT = "clip exponent"
"""The part of a model's message with the round's norm: a signed 64-bit number, see :class:`ClipRule`."""


SCORES = Phase("scores", answered_by_authority=True, opens="scores", once=True)
SCORE_POINT = FixedPoint(40, 36)
"""Scores span many orders of magnitude: the widest fixed point that the core has, most of it behind the point."""


class AgreedShare:
    """A share of the parameters of which clients agree by encrypted scores which these are, once for a run.

    Where the share is of all parameters, or none, nothing is agreed on: there are no scores, and no keys for
    them. Rounds of a kind that does not encrypt do so with buffers alone.
    """

    def __init__(self, ratio: float, rounds: KindsOfRounds, plan: FederationPlan) -> None:
        self.ratio, self.rounds, self._plan = ratio, rounds, plan
        self.count = positions_in_budget(ratio, plan.parameters)
        self._buffers_alone = encrypted_positions(Mask.empty(plan.parameters), plan.buffers)
        self.settled = settled_positions(ratio, plan.parameters, plan.buffers)
        """What rounds that encrypt do where nothing is to be agreed on."""

    def keys(self, encryption: str) -> dict[str, SchemeParameters[Any, Any]]:
        """Return how scores are encrypted, beside updates by this scheme."""
        if self.settled is not None:
            return {}
        # All under keys of one kind: clients enrol, or they do not.
        chosen = encryption if scheme_named(encryption).enrols else DEFAULT_PUBLIC_KEY_ENCRYPTION
        return {"scores": update_parameters(chosen, self._plan.most_participants, SCORE_POINT)}

    def asks(self, round_number: int, model: Message) -> bool:
        """Say whether a round that starts from this model lacks a mask that it needs."""
        return self.needs_mask(round_number) and "zone" not in model

    def needs_mask(self, round_number: int) -> bool:
        """Say whether a round encrypts what only a mask can tell."""
        return self.rounds.kind(round_number).encrypts and self.settled is None

    def zone(self, round_number: int, agreed: Mask | None) -> Mask | None:
        """Return a round's positions; None where they are not agreed on yet."""
        if not self.rounds.kind(round_number).encrypts:
            return self._buffers_alone
        return agreed if self.settled is None else self.settled

    def phases(self, model: Message, round_number: int) -> tuple[Phase, ...]:
        """Return a round's phases: scores first, until a mask comes with its model or what was opened."""
        if not self.needs_mask(round_number):
            return (UPDATE,)
        is_agreed = "zone" in model
        if newest_answer("update") in model:
            most = max(model.number(newest_answer("scores")), 1)
            is_agreed = model.number(newest_answer("update")) >= most
        return (UPDATE,) if is_agreed else (SCORES, UPDATE)

    def opened(self, context: RoleContext, message: Message, sums: RoundSums, zone: Mask | None) -> Mask:
        """Return the mask that the scores' mean, which alone is opened, comes to; itself where it is known.

        Scores of a round that was given up were opened: then nothing is opened again.
        """
        total = scheme_of(context.keys.parameters["scores"]).Total.from_bytes(message["total"])
        stated, most = message.number("weight"), context.most_weight
        if not total.is_of(Mask.full(self._plan.parameters)) or total.round != message.number("round"):
            raise WireFormatError("the total is of another round, or has not one score for each parameter")
        if not total.weighted or not total.clients <= stated <= total.clients * most:
            raise WireFormatError(
                f"the weights of the scores are missing, or not between 1 and {most} for each client"
            )
        sums.check_runs()
        if zone is not None:
            return zone
        with sums.opening(total) as opener:
            mean = np.maximum(opener.open_mean(total, stated_weight=stated / most), 0.0)
        return encrypted_positions(top_k(mean, self.count, context.threads), self._plan.buffers)


class MaskedAverageAggregator(CollectingAggregator):
    """Holds the round's public key and its sum.

    Methods that agree on the zone first add phases: see ``_hear`` and ``_conclude``.
    """

    changes: ClassVar = {"zone": Mask | None, "_sum": MixedSum | None}
    sums: ClassVar[tuple[str, ...]] = ("_sum",)

    def __init__(self, method: MaskedAverage, context: RoleContext, weights: tuple[int, ...]) -> None:
        super().__init__(context)
        self.weights = weights
        self.zone = self._settled = method.zone
        self._sends_rest = method.sends_rest
        self._sum: MixedSum | None = None

    def check_changed(self) -> None:
        refuse_unless(
            self.zone is None or self.context.plan.update_size == self.zone.size or not self._sends_rest
        )
        refuse_unless(self._settled is None or self.zone == self._settled)

    def check_sums(self) -> None:
        super().check_sums()
        if self._phase == "update":
            refuse_unless(self._sum is not None and self._sum.is_of(self.zone, len(self._seen)))
        else:
            refuse_unless(self._sum is None)

    def _begin_phase(self, phase: str, round_number: int, answer: Message | None) -> None:
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

    Where sums have noise, it adds a share of it to what it encrypts, sends nothing else, and keeps its
    buffers. Methods that agree on the zone first add phases: see ``_speak``, ``_read_zone`` and ``scores``.
    """

    changes: ClassVar = {"zone": Mask | None}

    clear_parts: tuple[str, ...] = ("weight",)
    """Message parts beside the update, of all phases, that tell of the client's data and travel unprotected."""

    def __init__(
        self, method: MaskedAverage, context: RoleContext, index: int, weight: int, initial: GlobalModel
    ) -> None:
        noise = method.noise
        shared = noise is None
        super().__init__(index, initial, context, shares_buffers=shared, keeps_buffers=not shared)
        self.noise_shares = None if noise is None else NoiseShares(noise, context)
        self.weight = weight
        self.zone = self._settled = method.zone
        self._sends_rest = method.sends_rest
        self._sent_buffers = self._buffer_count if noise is None else 0
        self._noised = Mask.full(self._size) if method.zone is None else method.zone.resized(self._size)
        """Parameters that have a share of the noise, where there is any."""
        self._upload: MixedUpload | None = None
        self._tell_vector: Callable[[NDArray[Any]], None] | None = None

    def tell_vectors(self, told: Callable[[NDArray[Any]], None]) -> None:
        """Have ``told`` get what is averaged of each update from now on (N,), as an audit does."""
        self._tell_vector = told

    def check_changed(self) -> None:
        refuse_unless(
            self.zone is None or self.context.plan.update_size == self.zone.size or not self._sends_rest
        )
        refuse_unless(self._settled is None or self.zone == self._settled)

    def _begin_round(self, round_number: int, participants: int, model: Message) -> StartingPoint:
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
            key, context = self._round_key("update"), self.context
            if self._upload is None or self._upload.key != key:
                self._upload = MixedUpload(
                    key, self.weight, context.most_weight, context.threads, sends_rest=self._sends_rest
                )
            union = self._upload.union_of(zone)
            with in_buffer_range(vector, self._sent_buffers, context.buffer_factor) as scaled:
                ciphertexts, _ = self._upload.encrypt(scaled, zone, union, self.round)
        with self.clock.stage("upload"):
            self._disclose(zone)
            self.zone = zone
            parts = self._upload.parts(vector, ciphertexts, zone)
            return Message({"round": Message.from_number(self.round), **parts})

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
        """Return what is averaged (N,), by what the phase before decided; with noise, whole numbers."""
        if not self._shares_noise:
            return self._difference()
        vector = np.zeros(self._size + self._buffer_count)
        share = self._share_of(self._noised.gather(self._difference()))
        self._noised.resized(vector.size).scatter(share, vector)
        return vector

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
    def _shares_noise(self) -> bool:
        return self.noise_shares is not None

    @property
    def _shares(self) -> NoiseShares:
        assert self.noise_shares is not None, "asked for only where sums have noise"
        return self.noise_shares

    @property
    def _clip_norm(self) -> float:
        """What is clipped to in the round that runs, where there are shares of noise."""
        return self._shares.noise.clip_norm

    @property
    def deviation_of_share(self) -> float:
        """The deviation of what it draws for each value in the round that runs, in the update's unit."""
        noise = self._shares.noise
        return noise.deviation_of_share * (self._clip_norm / noise.clip_norm)

    def in_the_mean(self, vector: NDArray[np.float32] | NDArray[np.float64]) -> NDArray[np.float64]:
        """Return its part (P,) of what the round's mean is of, by what it has encrypted, as it alone knows it."""
        sent = np.asarray(vector[: self._size], dtype=np.float64)
        if not self._shares_noise:
            return sent
        own = np.zeros(self._size)
        self._noised.scatter(self._values_of(self._noised.gather(sent)), own)
        return own

    def _share_of(self, values: FloatVector) -> NDArray[np.float64]:
        sent, _ = self._shares.of(values, self.round, self._clip_norm)
        return sent.astype(np.float64)

    def _values_of(self, share: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what a sum of this share alone would be read as."""
        return self._shares.mean(share, 1, self.round, self._shares.noise.steps_per_unit_at(self._clip_norm))

    def _disclose(self, zone: Mask) -> None:
        rest: Literal["clear", "local"] = "clear" if self._sends_rest else "local"
        self._state(Disclosure.of_zone(zone, self._size, rest=rest, parts=self.clear_parts))


class MaskedAverageRule(OpeningRule):
    """The global model moves by the mean; a clipping norm that follows a quantile moves beside it.

    Where clients agree on the zone by scores, the mean of these alone is opened, and the zone goes with every
    model.
    """

    changes: ClassVar = {
        "model": GlobalModel,
        "zone": Mask | None,
        "_is_replaced": bool,
        "_clip_exponent": int,
    }

    def __init__(self, method: MaskedAverage, context: RoleContext, initial: GlobalModel) -> None:
        super().__init__(context)
        shared = initial if method.noise is None else GlobalModel(initial.parameters, initial.buffers[:0])
        self._method = method
        self.zone = self._settled = method.zone
        self.model = self._initial = shared
        self._size = context.plan.update_size if method.zone is None else method.zone.size
        self._is_replaced = False
        """Whether the model is another one than the last answer."""
        self._clip_exponent = 0

    def check_changed(self) -> None:
        refuse_unless(self.model.is_like(self._initial))
        refuse_unless(self.zone is None or self.zone.size == self._size)
        refuse_unless(self._settled is None or self.zone == self._settled)
        refuse_unless(abs(self._clip_exponent) <= MOST_EXPONENT)

    def first_model(self) -> Message:
        return self._beside(self._initial, 0)

    def keeps(self, model: Message) -> bool:
        # A zone that is agreed on comes after the model of the rounds before it.
        return model == self._beside(self.model, self._clip_exponent, with_zone="zone" in model)

    def _beside(self, model: GlobalModel, exponent: int, *, with_zone: bool = False) -> Message:
        parts = {**model.to_message()}
        if self._method.clip_rule is not None:
            parts[CLIP_EXPONENT] = np.int64(exponent).astype("<i8").tobytes()
        if with_zone and self.zone is not None:
            parts["zone"] = self.zone.to_bytes()
        return Message(parts)

    def next_model(self, newest: Message | None) -> Message:
        model = super().next_model(newest)
        return Message({**model, **self.model.to_message()}) if self._is_replaced else model

    def replace_model(self, model: GlobalModel, newest: Message) -> None:
        """Go on from another model than the last sum came to."""
        kept = model.kept_in_place_of(self._initial)
        if newest.keys() != GlobalModel.parts:
            super().replace_model(model, newest)
        self.model, self._is_replaced = kept, True

    def purposes(self, round_number: int, model: Message) -> tuple[str, ...]:
        share = self._method.share
        return ("update",) if share is None or not share.asks(round_number, model) else ("update", "scores")

    def answer(self, phase: str, message: Message, sums: RoundSums) -> Message:
        method, share = self._method, self._method.share
        if phase == SCORES.name and share is not None:
            self.zone = share.opened(self.context, message, sums, self.zone)
            return Message({"zone": self.zone.to_bytes()})
        number = message.number("round")
        learning_rate = self.context.plan.server_learning_rate
        claim = MixedTotal.read(
            message, "", self.context.parameters, self._size, number, has_rest=method.sends_rest
        )
        zone = self.zone if share is None else share.zone(number, self.zone)
        if zone is None and share is not None:
            raise PolicyError("no mask has been agreed on: send the scores first")
        if zone is not None and claim.positions != zone:
            raise WireFormatError("the total covers other positions than those that were agreed on")
        # What came in the clear is looked at before anything is opened.
        if claim.sums.size:
            self.model.moved_finite(claim.clear_mean(), learning_rate)
        if method.clip_rule is None:
            mean = opened_mean(method, self.context, claim, sums, message)
        else:
            mean = self._opened_with_count(method.clip_rule, claim, sums)
        self.model = self.model.moved_finite(mean, learning_rate)
        self._is_replaced = False
        return self._beside(self.model, self._clip_exponent, with_zone=self._settled is None)

    def _opened_with_count(self, rule: ClipRule, claim: MixedTotal, sums: RoundSums) -> NDArray[np.float64]:
        """Return the mean update (P,), and move the norm, which follows from opened sums alone."""
        assert self._method.noise is not None
        shares, norm = NoiseShares(self._method.noise, self.context), rule.norm_at(self._clip_exponent)
        claim.check_weights(1)
        with sums.opening(claim.total) as opener:
            mean, share_within = shares.opened_mean(claim, opener.open(claim.total), norm)
        self._clip_exponent = rule.moved(self._clip_exponent, share_within)
        led_to = rule.norm_at(self._clip_exponent)
        text = f"the clipping norm that the sum of round {claim.total.round} leads to is {led_to:.4g}"
        sums.note(text, "clipping norm")
        return mean


class MaskedAverage(Method):
    """Federated averaging in which every client encrypts the same positions.

    Parameters
    ----------
    name, plan : as for :class:`Method`; buffers are averaged, always encrypted.
    settings : of the method.
    zone : the N positions that are encrypted; None where the clients agree on them.
    encryption : how updates are encrypted; None for what the settings say.
    count : how many positions are encrypted, where no zone says it and it is known.
    sends_rest : whether values outside of the zone are sent, in the clear.
    share : what clients agree on, in the place of ``zone`` and ``count``; None where that is nothing.
    noisy : the noise of sums, in the place of ``settings`` and ``encryption``; then nothing leaves a client
        but what has a share of it, its buffers stay with it, and all clients count alike. None for sums
        without noise.
    """

    phases: tuple[Phase, ...] = (UPDATE,)
    clients_can_open = True
    schemes: ClassVar[tuple[str, ...]] = encryptions()
    client_kind: type[Any] = MaskedAverageClient
    aggregator_kind: type[Any] = MaskedAverageAggregator
    noise: SumNoise | None = None
    """The plan of it; None where sums have none."""
    noisy_reading: ClassVar[PrivacyReading] = OF_NOISY_SUMS
    """How its figures are to be read where settings ask for noise on sums."""
    dp_sgd: DpSgdRounds | None = None
    """What rounds ask of training where some are of DP-SGD, or on synthetic data; None where none is."""
    clip_rule: ClipRule | None = None
    """How the norm moves that updates are clipped to; None where it does not."""

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
        share: AgreedShare | None = None,
        noisy: NoisySums | None = None,
    ) -> None:
        self._noisy, self.privacy_reading = noisy, self.reading_with(settings)
        if noisy is not None:
            self.noise, self.delta, self.weighs_all_alike = noisy.noise, noisy.delta, True
            settings, encryption = noisy.settings, noisy.encryption
            if zone is not None:
                # A count is one position more, behind the parameters.
                counted = plan.parameters + (noisy.noise.count_steps > 0)
                encrypted = zone.resized(plan.parameters).resized(counted, chosen=True)
                zone, sends_rest = encrypted.resized(counted + plan.buffers), False
        super().__init__(name, settings, plan)
        self.zone = zone
        self.share = share
        self.sends_rest = sends_rest
        self._settings = settings
        chosen: EncryptionSettings = settings if encryption is None else encryption
        if chosen.encryption not in self.schemes:
            raise ParameterError(
                f"{name} encrypts by {' or '.join(self.schemes)}, not by {chosen.encryption}"
            )
        if share is not None:
            count = share.count + plan.buffers
        parameters = update_parameters(
            chosen.encryption,
            plan.most_participants,
            chosen,
            count=count if zone is None else zone.count,
            most_count=self.positions,
            most_weight=self.most_weight,
            mean_weight=1.0 if self.weighs_all_alike else plan.mean_weight,
            key_bits=chosen.key_bits,
            sum_bits=None if self.noise is None else self.noise.sum_bits,
        )
        self.purposes = {"update": parameters}
        if share is not None:
            self.purposes |= share.keys(chosen.encryption)
            if share.settled is not None:
                self.phases, self.scores = (UPDATE,), None
        self.buffer_factor = chosen.buffer_factor

    @classmethod
    def reading_with(cls, settings: Any) -> PrivacyReading:
        asked = getattr(settings, "asked_noise", None)
        return cls.privacy_reading if asked is None else cls.noisy_reading

    @property
    def update_parameters(self) -> SchemeParameters[Any, Any]:
        """How updates are encrypted."""
        return self.purposes["update"]

    @property
    def derived(self) -> dict[str, Any]:
        return super().derived | ({} if self.noise is None else {"noise": self.noise.agreed})

    def _why_alike(self) -> str:
        if self.noise is None:
            return super()._why_alike()
        return f"{self.name} weighs all clients alike: a weight would let one count for more than C"

    def phases_of(self, model: Message, round_number: int) -> tuple[Phase, ...]:
        return self.phases if self.share is None else self.share.phases(model, round_number)

    def round_phases(self, model: Message, round_number: int) -> tuple[Phase, ...]:
        """Let clients tell what scores have opened to, where a round that asked for them ended before its update."""
        return tuple(
            phase
            for phase in super().round_phases(model, round_number)
            if not (phase.once and (name := newest_answer(phase.name)) in model and model.number(name) >= 1)
        )

    def reader(self, context: RoleContext, claim: MixedTotal, message: Message) -> Reader | None:
        """Return what makes the mean update, (N,) or with noise (P,), of a total's sums; None for the weighted mean."""
        if (noise := self.noise) is None:
            return None
        claim.check_weights(1)
        return lambda sums: NoiseShares(noise, context).opened_mean(claim, sums, noise.clip_norm)[0]

    def _client(
        self, context: RoleContext, index: int, weight: int, initial: GlobalModel, shared_secret: bytes | None
    ) -> MaskedAverageClient:
        client: MaskedAverageClient = self.client_kind(self, context, index, weight, initial)
        return client

    def _aggregator(
        self, context: RoleContext, weights: tuple[int, ...], initial: GlobalModel | None
    ) -> MaskedAverageAggregator:
        aggregator: MaskedAverageAggregator = self.aggregator_kind(self, context, weights)
        return aggregator

    def _opening_rule(
        self, initial: GlobalModel, context: RoleContext, shared_secret: bytes | None
    ) -> OpeningRule:
        return MaskedAverageRule(self, context, initial)

    def settings(self, weights: Sequence[int]) -> dict[str, Any]:
        unused = getattr(self._settings, "without_effect", ())
        stated = {name: value for name, value in asdict(self._settings).items() if name not in unused}
        beside = {
            "weights": stated_weights(weights),
            "bytes_per_encrypted_value": self.update_parameters.bytes_per_value,
        }
        return stated | beside | ({} if self._noisy is None else self._noisy.stated())


def opened_mean(
    method: MaskedAverage, context: RoleContext, claim: MixedTotal, sums: RoundSums, message: Message
) -> NDArray[np.float64]:
    """Open a total, whose message comes along, and return the mean update: (N,), or with noise (P,)."""
    read = method.reader(context, claim, message)
    stated = claim.stated_weight(context.most_weight) if read is None else None
    with sums.opening(claim.total) as opener:
        if read is not None:
            return read(opener.open(claim.total))
        mean = claim.mean_of(opener.open_mean(claim.total, stated_weight=stated))
    return with_buffers_times(mean, method.plan.buffers, 1.0 / context.buffer_factor)
