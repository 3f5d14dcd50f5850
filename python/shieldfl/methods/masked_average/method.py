"""Averages in which all clients encrypt the same positions, the zone: method, client, aggregator, rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from shieldfl.array_view import FloatVector
from shieldfl.authority.message import Message, Part
from shieldfl.encryption.registry import (
    DEFAULT_KEY_BITS,
    encryptions,
    scheme_named,
    scheme_of,
)
from shieldfl.errors import ParameterError, PolicyError
from shieldfl.learning.local_update import DoubleVector, StartingPoint
from shieldfl.masks import Mask
from shieldfl.methods.compression import Compression, CompressionOption
from shieldfl.methods.dp_sgd_rounds import DpSgdClient, KindsOfRounds
from shieldfl.methods.encrypted_update import (
    UPDATE,
    AgreedShare,
    MixedSum,
    MixedTotal,
    MixedUpload,
    added_total,
    in_buffer_range,
    read_agreed_positions,
    stated_weight,
)
from shieldfl.methods.encryption_settings import FixedPoint, update_parameters
from shieldfl.methods.masked_average.opening import MaskedAverageRule, Reader, mean_of_levels
from shieldfl.methods.noised_sums import (
    OF_NOISY_SUMS,
    AskedNoise,
    mean_of_shares,
    read_exponent,
    share_of,
)
from shieldfl.privacy.events import ClearUpload, EncryptedUpload, Noise, NoiseShareUpload, PrivacyReading
from shieldfl.privacy.noise import MOST_EXPONENT, ClipRule, MovingNorm
from shieldfl.privacy.sum_noise import SumNoise, fewest_honest, multiplier_for, planned_sum_noise
from shieldfl.rounds.collecting_aggregator import CollectingAggregator
from shieldfl.rounds.method import Method
from shieldfl.rounds.opening_rule import newest_answer
from shieldfl.rounds.plan import FederationPlan, GlobalModel, Phase, RoleContext
from shieldfl.rounds.reports import Disclosure
from shieldfl.rounds.training_client import TrainingClient
from shieldfl.stateful import refuse_unless

__all__ = ["MaskedAverage", "MaskedAverageAggregator", "MaskedAverageClient"]


def _check_zone(role: Any) -> int:
    """Refuse a role that took a zone which its method lacks, and return how many values an update has."""
    size, method = role.context.plan.update_size, role.method
    refuse_unless(role.zone is None or size == role.zone.size or not method.sends_rest)
    refuse_unless(method.zone is None or role.zone == method.zone)
    return int(size)


class MaskedAverageAggregator(CollectingAggregator):
    """Holds the round's public key and its sum; adds encrypted scores, where there are any, unread.

    Methods that agree on the zone in another way add phases: see ``_begin``, ``_hear`` and ``_conclude``.
    """

    changes: ClassVar = {
        "zone": Mask | None,
        "_agreed": Mask | None,
        "_weight": int,
        "_scores_added": bytes | None,
        "_sum": MixedSum | None,
    }
    sums: ClassVar[tuple[str, ...]] = ("_sum", "_scores_added")

    def __init__(self, method: MaskedAverage, context: RoleContext, weights: tuple[int, ...]) -> None:
        super().__init__(context)
        self.method, self.weights, self.zone = method, weights, method.zone
        self._agreed: Mask | None = None
        """Mask that the scores led to, for the whole run; None before that."""
        self._scores: Any = None
        self._weight = 0
        self._sum: MixedSum | None = None

    def check_changed(self) -> None:
        size = _check_zone(self)
        refuse_unless(self._agreed is None or self._agreed.size == size)
        refuse_unless(0 <= self._weight <= sum(self.weights))

    def check_sums(self) -> None:
        super().check_sums()
        clients, update = len(self._seen), self._phase == UPDATE.name
        refuse_unless((self._sum is not None) == update)
        refuse_unless(self._sum is None or self._sum.is_of(self.zone, clients))
        refuse_unless(self._scores is None or self._scores.clients == clients)

    _scores_added = added_total("_scores")

    def _begin_phase(self, phase: str, round_number: int, answer: Message | None) -> None:
        if phase != UPDATE.name:
            self._begin(round_number)
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
            has_rest=self.method.sends_rest,
        )
        self.zone, self._scores = zone, None
        if self.method.share is not None and self.method.share.needs_mask(round_number):
            self._agreed = zone

    def _zone_from(self, round_number: int, answer: Message | None) -> Mask | None:
        """Return the round's zone, which an answer to the phase before may bring.

        Raises PolicyError for another one than was settled or agreed on.
        """
        share = self.method.share
        zone = self.zone if share is None else self._agreed
        if answer is not None and "zone" in answer:
            if self.method.zone is not None:
                raise PolicyError("what is encrypted is settled from the start: no message can change it")
            zone = Mask.from_bytes(answer["zone"], expected_size=self.context.plan.update_size)
            if self._agreed not in (None, zone):
                raise PolicyError("another mask was agreed on, and it is for the whole run")
        return zone if share is None else share.zone(round_number, zone)

    def _collect(self, phase: str, client: int, message: Message) -> None:
        if phase != UPDATE.name:
            self._hear(client, message)
            return
        assert self._sum is not None
        assert self.zone is not None
        self._sum.add(client, message, self.zone)

    def _result(self, phase: str) -> Message:
        if phase != UPDATE.name:
            with self.clock.stage("negotiate"):
                return self._conclude()
        assert self._sum is not None
        with self.clock.stage("aggregate"):
            return Message({"round": Message.from_number(self.round), **self._sum.parts("")})

    def _begin(self, round_number: int) -> None:
        """Begin the phase before the update; forget what an earlier one collected."""
        if self.method.share is None:
            return
        everything = Mask.full(self.context.plan.parameters)
        self._scores = self._sum_under("scores", round_number, everything, weighted=True)
        self._weight = 0

    def _hear(self, client: int, message: Message) -> None:
        """Take a message of the phase before the update."""
        if self._scores is None:
            return
        with self.clock.stage("negotiate"):
            weight = stated_weight(client, message, self.weights)
            scheme = scheme_of(self.context.keys.parameters["scores"])
            scheme.add(self._scores, client, message["scores"], weight, None)
            self._weight += weight

    def _conclude(self) -> Message:
        """Return the result of the phase before the update."""
        return Message(
            {
                "round": Message.from_number(self.round),
                "weight": Message.from_number(self._weight),
                "total": self._scores.total().to_bytes(),
            }
        )


class MaskedAverageClient(DpSgdClient):
    """Encrypts its update on the zone and sends the rest in the clear, or not at all.

    If sums have noise, it adds a share of it to what it encrypts, sends nothing else, and keeps its buffers.
    If the clipping norm moves, it takes the norm with the round's model, and encrypts one more value, which
    is positive if its update is within the norm.

    If a share of the parameters is agreed on, it sends its scores, encrypted, in the first round that
    encrypts; after that it encrypts what was agreed on, once for all rounds. Methods that agree on the zone
    in another way add phases: see ``_speak``, ``_read_zone`` and ``scores``.
    """

    changes: ClassVar = {
        "zone": Mask | None,
        "_agreed": Mask | None,
        "_clip_exponent": int,
    }
    method: MaskedAverage

    clear_parts: tuple[str, ...] = ("weight",)
    """Names of message parts beside the update, in all phases, that tell of the client's data unprotected."""

    def __init__(
        self, method: MaskedAverage, context: RoleContext, index: int, weight: int, initial: GlobalModel
    ) -> None:
        super().__init__(method, context, index, weight, initial)
        self.zone = method.zone
        self._agreed: Mask | None = None
        self._clip_exponent = 0
        self._sent_buffers = self._buffer_count if method.shares_buffers else 0
        self._upload: MixedUpload | None = None
        self.tell_vector: Callable[[NDArray[Any]], None] | None = None
        """Called with the vector (N,) that is averaged of each update, for audits; None without one."""

    def check_changed(self) -> None:
        _check_zone(self)
        refuse_unless(self._agreed is None or self._agreed == self._read_zone(self._agreed.to_bytes()))
        refuse_unless(abs(self._clip_exponent) <= MOST_EXPONENT)

    def _begin_round(self, round_number: int, participants: int, model: Message) -> StartingPoint:
        method, exponent = self.method, 0
        # Looked at before anything changes: a round that is refused leaves the one that runs its zone and
        # norm.
        zone = self._read_zone(model["zone"]) if "zone" in model else None
        if method.moving_norm is not None:
            exponent = read_exponent(model)
        start = super()._begin_round(round_number, participants, model)
        self._clip_exponent = exponent
        if zone is not None or method.share is not None:
            self.zone = zone
        if method.share is not None:
            self.scores = self.context.scores if method.share.asks(round_number, model) else None
            start = replace(start, scores=self.scores)
        return start

    def _make(self, phase: str, answer: Message | None) -> Message:
        if phase != UPDATE.name:
            message = self._speak()
            spoken = tuple(one for one in self.clear_parts if one in message)
            self._state(replace(self.disclosure, parts=self.disclosure.parts + spoken))
            return message
        zone, method = self._zone_from(answer), self.method
        if zone is None:
            raise ParameterError("the update needs the zone that the phase before decides")
        with self.clock.stage("merge"):
            vector = self._vector(answer)
            if self.tell_vector is not None:
                self.tell_vector(vector)
        with self.clock.stage("encrypt"):
            key, context = self._round_key("update"), self.context
            if self._upload is None or self._upload.key != key:
                self._upload = MixedUpload(
                    key, self.weight, context.most_weight, context.threads, sends_rest=method.sends_rest
                )
            union = self._upload.union_of(zone)
            with in_buffer_range(vector, self._sent_buffers, context.buffer_factor) as scaled:
                ciphertexts, _ = self._upload.encrypt(scaled, zone, union, self.round)
        with self.clock.stage("upload"):
            self._disclose(zone)
            self.zone = zone
            if method.share is not None and method.share.needs_mask(self.round):
                self._agreed = zone  # for the whole run, once an update was encrypted by it
            return Message(self._upload.parts(vector, ciphertexts, zone))

    def _speak(self) -> Message:
        """Make the message of the phase before the update."""
        if not self.trained_scores.size:
            raise ParameterError("no scores were asked for in this round: begin with the update phase")
        context = self.context
        with self.clock.stage("negotiate"):
            # Of equal sign for all, so that a mean cannot cancel.
            key, scores = self._round_key("scores"), np.abs(self.trained_scores)
            encryptor = scheme_of(key).encryptor(key, context.threads, "scores")
            batch = encryptor.encrypt(scores, None, self.weight / context.most_weight, self.round, clip=True)
            # The mask is a function of these scores, without noise, and goes to everybody.
            self.record(ClearUpload(self.round, self.index, "mask"))
            return Message({"weight": Message.from_number(self.weight), "scores": batch.to_bytes()})

    def _zone_from(self, answer: Message | None) -> Mask | None:
        """Return the zone: an answer to the phase before may bring it, but not where the signed model did."""
        share, zone = self.method.share, self.zone
        if answer is not None and "zone" in answer:
            if share is not None and self._begun_with and "zone" in self._begun_with[1]:
                raise PolicyError("the mask came with the round's signed model: no answer brings another one")
            zone = self._read_zone(answer["zone"])
        return zone if share is None else share.zone(self.round, zone)

    def _read_zone(self, frame: Part) -> Mask:
        """Read a zone that other roles agreed on. Raises PolicyError if it protects less than it has to.

        Values outside of it leave in the clear, so a client does not take any zone that it is sent, and only
        the one that it has encrypted by before.
        """
        share = self.method.share
        if share is None or share.settled is not None:
            raise PolicyError("what is encrypted is settled from the start: no message can change it")
        zone = read_agreed_positions(frame, self._size, self._buffer_count, share.count)
        if self._agreed not in (None, zone):
            raise PolicyError("another mask was agreed on, and it is for the whole run: nothing was sent")
        return zone if self._agreed is None else self._agreed

    def _vector(self, answer: Message | None) -> FloatVector | DoubleVector:
        """Return the vector to average (N,), by what the phase before decided; with noise, whole numbers."""
        noise, difference = self.method.noise_in(self.round), self._difference()
        if self.method.compression is not None:
            return self._levels(difference)
        if noise is None:
            return difference
        vector = np.zeros(self.method.positions)
        share, was_clipped = self._share_of(self._summed.gather(difference))
        self._summed.resized(vector.size).scatter(share, vector)
        if self.method.clip_rule is not None:
            within = np.array([-1.0 if was_clipped else 1.0], dtype=np.float32)
            vector[self._size] = share_of(noise, self.context, within, self.round, 1.0, counts=True)[0][0]
        return vector

    def _levels(self, difference: FloatVector) -> FloatVector:
        compression, compressed, zone = self.method.compression, self.method.compressed, self.method.zone
        assert compression is not None
        assert compressed is not None
        assert zone is not None
        of_round = (self.index, self.round, self._clip_exponent, self.context.threads)
        vector: FloatVector = np.zeros(self.method.positions, dtype=np.float32)
        zone.scatter(compression.levels(compressed.gather(difference), *of_round), vector)
        return vector

    def _state(self, disclosure: Disclosure) -> None:
        """State what the next message shows, with those before it.

        With shares of noise, what is encrypted counts as noised: the noise is in the sum that is opened.
        """
        noised = self.method.noise is not None and disclosure.encrypted.count > 0
        self.disclosure = replace(disclosure, encrypts_noised=True) if noised else disclosure

    def _encrypted_event(self, noise: Noise | None, synthetic: bool) -> EncryptedUpload | NoiseShareUpload:
        if self.method.noise is None:
            return super()._encrypted_event(noise, synthetic)
        return NoiseShareUpload(self.round, self.index, self.method.noise.charge)

    @property
    def _summed(self) -> Mask:
        """Parameters that are summed as whole numbers, where noise has them so."""
        zone = self.method.zone
        return Mask.full(self._size) if zone is None else zone.resized(self._size)

    @property
    def _clip_norm(self) -> float:
        """The clipping norm of the current round, if there are shares of noise."""
        assert self.method.noise is not None
        rule = self.method.clip_rule
        return self.method.noise.clip_norm if rule is None else rule.norm_at(self._clip_exponent)

    @property
    def deviation_of_share(self) -> float:
        """The deviation of its draw for each value in the current round, in the update's unit."""
        assert self.method.noise is not None
        noise = self.method.noise
        return noise.deviation_of_share * (self._clip_norm / noise.clip_norm)

    @property
    def deviation_lost(self) -> float:
        """The deviation of what compression loses of each of its values in the current round."""
        compression, compressed = self.method.compression, self.method.compressed
        if compression is None or compressed is None:
            return 0.0
        return compression.lost_deviation(self._clip_exponent, compressed.count)

    def in_the_mean(self, vector: FloatVector | DoubleVector) -> DoubleVector:
        """Return its part (P,) of the round's mean, by what it encrypted, as it alone knows it."""
        sent, noise = np.asarray(vector[: self._size], dtype=np.float64), self.method.noise_in(self.round)
        if self.method.zone is not None and self.method.compression is not None:
            levels = self.method.zone.gather(np.asarray(vector))
            of_round = (self.round, self._clip_exponent, self.context.threads)
            return mean_of_levels(self.method, levels, (self.index,), *of_round)[0]
        if noise is None:
            return sent
        own, steps = np.zeros(self._size), noise.steps_per_unit_at(self._clip_norm)
        share = self._shares_in(sent)
        self._summed.scatter(mean_of_shares(self.context, share, 1, self.round, steps), own)
        return own

    def _shares_in(self, sent: DoubleVector) -> DoubleVector:
        return self._summed.gather(sent)

    def _share_of(self, values: FloatVector) -> tuple[DoubleVector, bool]:
        assert self.method.noise is not None
        sent, was_clipped = share_of(self.method.noise, self.context, values, self.round, self._clip_norm)
        return sent.astype(np.float64), was_clipped

    def _disclose(self, zone: Mask) -> None:
        if self.method.compressed is not None:  # each level tells of all that is compressed
            zone = self.method.compressed.resized(zone.size)
        rest: Literal["clear", "noised", "local"] = "clear" if self._noise is None else "noised"
        self._state(
            Disclosure.of_zone(
                zone,
                self._size,
                rest=rest if self.method.sends_rest else "local",
                parts=self.clear_parts,
                synthetic=self._is_synthetic,
                noise=self._noise,
            )
        )


class MaskedAverage(Method):
    """Federated averaging in which every client encrypts the same positions.

    Parameters
    ----------
    name, plan : as for :class:`Method`; buffers are averaged, always encrypted.
    settings : the method's.
    zone : the N positions that are encrypted; None if the clients agree on them.
    fixed_point : how values are quantised; None for what the settings say.
    count : how many positions are encrypted, if no zone says it and it is known.
    sends_rest : whether values outside of the zone are sent, in the clear.
    share : what clients agree on, instead of ``zone`` and ``count``; None if they agree on nothing.

    If settings ask for noise on sums, only values with a share of it leave a client, its buffers stay with
    it, and all clients count alike. Raises ParameterError for a target that no noise reaches, noise that fits
    no sum, and more colluders than the smallest sum leaves room for.
    """

    phases: tuple[Phase, ...] = (UPDATE,)
    clients_can_open = True
    schemes: ClassVar[tuple[str, ...]] = encryptions()
    client_kind: Callable[..., TrainingClient] = MaskedAverageClient
    aggregator_kind: Callable[..., CollectingAggregator] = MaskedAverageAggregator
    rule_kind = MaskedAverageRule
    noise: SumNoise | None = None
    """Plan of the noise on sums; None if sums have none."""
    noisy_reading: ClassVar[PrivacyReading] = OF_NOISY_SUMS
    """How to read the method's figures if settings ask for noise on sums."""
    dp_sgd: KindsOfRounds | None = None
    """What rounds ask of training, if some are of DP-SGD or on synthetic data; otherwise None."""
    clip_rule: ClipRule | None = None
    """How the clipping norm of updates moves; None if it does not."""
    compression: Compression | None = None
    """How updates become few whole numbers; None if they are encrypted as they are."""
    compressed: Mask | None = None
    """Parameters (P,) that are compressed; None without compression."""

    def __init__(
        self,
        name: str,
        settings: Any,
        plan: FederationPlan,
        zone: Mask | None,
        *,
        fixed_point: FixedPoint | None = None,
        count: int | None = None,
        sends_rest: bool = True,
        share: AgreedShare | None = None,
    ) -> None:
        self.privacy_reading, self.share = self.reading_with(settings), share
        if getattr(settings, "asked_noise", None) is not None:
            settings, fixed_point, zone, sends_rest = self._noised(settings, plan, zone, sends_rest)
        elif isinstance(settings, CompressionOption):
            self.compression = settings.compression(plan.clients)
        if (compression := self.compression) is not None:
            if not scheme_named(settings.encryption).has_sum_bits:
                raise ParameterError(
                    "compressed updates need sums of few bits: set encryption to kahe or pads"
                )
            self.why_alike = ": weighted levels could be read from their sum"
            fixed_point = FixedPoint(compression.value_bits, 0, 0)
            zone, sends_rest = self._compressing(compression, plan, zone), False
        super().__init__(name, settings, plan)
        self.zone, self.sends_rest = zone, sends_rest
        scheme = getattr(settings, "encryption", self.schemes[0])
        if scheme not in self.schemes:
            raise ParameterError(f"{name} encrypts by {' or '.join(self.schemes)}, not by {scheme}")
        if share is not None:
            count = share.count + plan.buffers
        bits: FixedPoint = settings if fixed_point is None else fixed_point
        parameters = update_parameters(
            scheme,
            plan.most_participants,
            bits,
            count=count if zone is None else zone.count,
            most_count=self.positions,
            most_weight=self.most_weight,
            mean_weight=1.0 if self.weighs_all_alike else plan.mean_weight,
            key_bits=getattr(settings, "key_bits", DEFAULT_KEY_BITS),
            sum_bits=self._sum_bits,
        )
        self.purposes = {"update": parameters}
        if share is not None:
            self.purposes |= share.keys(scheme)
            if share.settled is not None:
                self.phases, self.scores = (UPDATE,), None
        self.buffer_factor = bits.buffer_factor

    def _noised(
        self, settings: Any, plan: FederationPlan, zone: Mask | None, sends_rest: bool
    ) -> tuple[Any, FixedPoint, Mask | None, bool]:
        """Plan noise on sums; return settings with its multiplier, how and where whole numbers are encrypted.

        Where a target is given, the multiplier is the least that keeps the sums within it. Bits are as few as
        the scheme can do with.
        """
        asked: AskedNoise = settings.asked_noise
        self._target, self.why_alike = asked.target_epsilon, ": a weight would let one count for more than C"
        self._noised_rounds = plan.rounds
        if self.share is not None:
            kinds = self.share.rounds.counts(plan.rounds)
            self._noised_rounds = sum(count for kind, count in kinds.items() if kind.encrypts)
        if math.isnan(self.delta):
            self.delta = settings.delta
        planned = partial(
            planned_sum_noise,
            asked.mechanism,
            clip_norm=asked.clip_norm,
            dimension=plan.parameters if zone is None else zone.resized(plan.parameters).count,
            honest_clients=fewest_honest(plan.min_clients, asked.colluders),
            clients=plan.most_participants if scheme_named(settings.encryption).has_sum_bits else None,
            unit="client" if self.dp_sgd is None else "sample",
            count_deviation=asked.count_deviation,
        )
        multiplier = asked.multiplier
        if asked.target_epsilon is not None:
            multiplier = multiplier_for(asked.target_epsilon, self.delta, self._noised_rounds, planned)
        self.noise, settings = planned(multiplier), settings.with_multiplier(multiplier)
        zone = self._summing_whole_numbers(plan, zone, int(self.noise.count_steps > 0))
        sends_rest = sends_rest and zone is None
        return settings, FixedPoint(self.noise.value_bits, 0, 0), zone, sends_rest

    def _summing_whole_numbers(self, plan: FederationPlan, zone: Mask | None, more: int) -> Mask | None:
        """Have all count alike and keep buffers; return the zone with ``more`` behind the parameters."""
        self.weighs_all_alike, self.shares_buffers = True, False
        if zone is None:
            return None
        self.aggregator_sees = "ciphertexts and their number"
        encrypted = zone.resized(plan.parameters).resized(plan.parameters + more, chosen=True)
        return encrypted.resized(plan.parameters + more + plan.buffers)

    def _compressing(self, compression: Compression, plan: FederationPlan, zone: Mask | None) -> Mask | None:
        """Have all count alike and keep buffers; return which positions of a sent update have levels."""
        assert zone is not None, "clients agree on nothing where they compress"
        self.compressed = zone.resized(plan.parameters)
        if compression.one_in > plan.rounds:
            raise ParameterError(
                f"{plan.rounds:,} rounds of one in {compression.one_in:,} values each do not send all: "
                "lower compressed_one_in, or raise the number of rounds"
            )
        if compression.one_in > 1:
            sent = compression.count(self.compressed.count) - compression.norm_levels
            zone = Mask.from_indices(self.compressed.to_indices()[:sent], plan.parameters)
        return self._summing_whole_numbers(plan, zone, compression.norm_levels)

    @property
    def moving_norm(self) -> MovingNorm | None:
        """The norm that moves from round to round, and travels with the model; None if there is none."""
        return self.clip_rule if self.compression is None else self.compression.norm

    @property
    def positions(self) -> int:
        """The number of values in a sent update: more than the model's if a norm moves."""
        if self.compression is not None:
            return self.plan.update_size + self.compression.norm_levels
        return self.plan.update_size + (self.clip_rule is not None)

    @property
    def _sum_bits(self) -> int | None:
        if self.compression is not None:
            return self.compression.sum_bits(self.plan.most_participants)
        return None if self.noise is None else self.noise.sum_bits

    def noise_in(self, round_number: int) -> SumNoise | None:
        """Return the noise of a round's sum; None where it has none."""
        noised = self.share is None or self.share.rounds.kind(round_number).encrypts
        return self.noise if noised else None

    @classmethod
    def reading_with(cls, settings: Any) -> PrivacyReading:
        asked = getattr(settings, "asked_noise", None)
        return cls.privacy_reading if asked is None else cls.noisy_reading

    @property
    def derived(self) -> dict[str, Any]:
        return super().derived | ({} if self.noise is None else {"noise": self.noise.agreed})

    def phases_of(self, model: Message, round_number: int) -> tuple[Phase, ...]:
        return self.phases if self.share is None else self.share.phases(model, round_number)

    def round_phases(self, model: Message, round_number: int) -> tuple[Phase, ...]:
        """Return a round's phases; clients tell scores that an earlier, given-up round has opened."""
        return tuple(
            phase
            for phase in super().round_phases(model, round_number)
            if not (phase.once and (name := newest_answer(phase.name)) in model and model.number(name) >= 1)
        )

    def reader(self, context: RoleContext, claim: MixedTotal, message: Message) -> Reader | None:
        """Return what turns a total's sums into the mean update (N,); None for the weighted mean."""
        return None

    def settings(self, weights: Sequence[int]) -> dict[str, Any]:
        unused = getattr(self.own, "without_effect", ())
        stated = {name: value for name, value in super().settings(weights).items() if name not in unused}
        if self.compression is not None:
            return stated | {"bits_of_a_value": self.compression.bits, "bits_of_a_sum": self._sum_bits}
        if self.noise is None:
            return stated
        noise, charged = self.noise, (self._noised_rounds, self.delta)
        alone, too_large = noise.epsilon_of_single_uploads(*charged), noise.log2_chance_of_too_large_sum
        return stated | {
            self.own.target_setting: self._target,
            "honest_clients_charged": noise.honest_clients,
            "noise_multiplier_of_one_share": noise.noise_multiplier / math.sqrt(noise.honest_clients),
            "epsilon_if_single_uploads_are_opened": alone if math.isfinite(alone) else None,
            "added_delta": noise.added_delta(*charged),
            "steps_per_unit": noise.steps_per_unit,
            "bits_of_a_value": noise.value_bits,
            "bits_of_a_sum": noise.sum_bits,
            "log2_chance_that_a_sum_is_too_large": too_large if math.isfinite(too_large) else None,
        }
