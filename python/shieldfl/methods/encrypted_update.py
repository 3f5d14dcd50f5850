"""Updates encrypted in part: what clients upload and an aggregator adds, the total, and an agreed share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shieldfl.array_view import FloatVector
from shieldfl.authority.message import Message, Part
from shieldfl.encryption.parameters import SchemeParameters, SchemePublicKey
from shieldfl.encryption.registry import DEFAULT_PUBLIC_KEY_ENCRYPTION, SchemeTotal, scheme_named, scheme_of
from shieldfl.errors import PolicyError, RangeError, WireFormatError
from shieldfl.learning.local_update import DoubleVector, StageClock
from shieldfl.masks import Mask, Positions, positions_in_budget, top_k
from shieldfl.methods.dp_sgd_rounds import KindsOfRounds
from shieldfl.methods.encryption_settings import FixedPoint, update_parameters
from shieldfl.rounds.opening_rule import RoundSums, newest_answer
from shieldfl.rounds.plan import FederationPlan, Phase, RoleContext
from shieldfl.stateful import refuse_unless

__all__ = [
    "MixedSum",
    "MixedTotal",
    "MixedUpload",
    "added_total",
    "are_summable",
    "clear_sums_part",
    "encrypted_positions",
    "in_buffer_range",
    "opened_mean",
    "read_agreed_positions",
    "read_clear_sums",
    "smallest",
    "stated_weight",
    "with_buffers_times",
]

_MOST = float(np.finfo(np.float32).max)


def are_summable(values: FloatVector, weights: int) -> bool:
    """Say whether all are numbers so small that clients of these weights together cannot leave float32."""
    limit = np.nextafter(np.float32(_MOST / weights), np.float32(0.0))  # however that was rounded
    return bool((np.abs(values) <= limit).all())


def clear_sums_part(sums: DoubleVector) -> bytes:
    """Return sums as a part of a message, float32: rounded once, when all are in.

    Doubles would take twice as many bytes to each client that opens, for digits that its model does not have.
    A sum beyond float32 becomes infinite, which the reader refuses.
    """
    with np.errstate(over="ignore"):
        return sums.astype("<f4").tobytes()


def read_clear_sums(message: Message, name: str, size: int) -> DoubleVector:
    """Return what :func:`clear_sums_part` wrote.

    Raises WireFormatError for another number of sums, NaN or infinity.
    """
    sums: DoubleVector = message.vector(name, np.float32, size).astype(np.float64)
    if not np.isfinite(sums).all():
        raise WireFormatError(f"part {name!r} holds NaN or infinity")
    return sums


def stated_weight(client: int, message: Message, weights: Sequence[int]) -> int:
    """Return the weight that a client states, in the clear.

    Raises RangeError unless it is the plan's.
    """
    weight = message.number("weight")
    if weight != weights[client]:
        raise RangeError(f"client {client} sent another weight than the plan gives it: nothing was added")
    return weight


def added_total(attribute: str) -> property:
    """Return a property for states: the total of the aggregator in an attribute, or None without one."""

    def total_of(own: Any) -> bytes | None:
        aggregator = getattr(own, attribute)
        return bytes(aggregator.total().to_bytes()) if aggregator is not None and aggregator.clients else None

    def add_total(own: Any, total: bytes | None) -> None:
        if total is not None and getattr(own, attribute) is not None:
            getattr(own, attribute).add_total(total)

    return property(total_of, add_total)


class MixedSum:
    """Sum of what clients encrypt in the union of their masks, and of plain numbers outside of it.

    If the scheme adds plain numbers to ciphertexts, each client encrypts its own mask, and plain numbers are
    added where it did not. Otherwise every client encrypts the union. Sums are weighted.

    ``masks`` are the clients', each of N positions, or a single one for all. ``weighted`` says whether any
    client's weight may be above 1: if weights travel encrypted, batches then have one. ``has_rest`` says
    whether plain numbers come along.
    """

    changes: ClassVar = {
        "_sums": DoubleVector,
        "_weight": int,
        "_clients": int,
        "_added": bytes | None,
    }

    def __init__(
        self,
        key: SchemePublicKey,
        masks: Sequence[Mask],
        round_number: int,
        weights: Sequence[int],
        clock: StageClock,
        threads: int | None,
        *,
        weighted: bool,
        has_rest: bool = True,
    ) -> None:
        self._has_rest = has_rest
        self._weights = weights
        self._clock = clock
        self._threads = threads
        self._scheme = scheme_of(key)
        self.positions = self._scheme.positions_of(list(masks), threads)
        self.union = self.positions.mask
        self._ciphertexts = self._scheme.aggregator(
            key, threads, round_number, self.positions, weighted=weighted, purpose="update"
        )
        self._rest = ~self.union
        self._sums: DoubleVector = np.zeros(self._rest.count if has_rest else 0)
        self._weight = 0
        self._clients = 0

    def add(self, client: int, message: Message, own: Mask) -> None:
        """Add what the ``MixedUpload`` of the client with this mask wrote. A refused message changes nothing.

        Raises RangeError for another weight than the client's and for plain numbers out of range,
        WireFormatError for NaN, infinity or another number of plain numbers, and what the scheme's aggregator
        raises.
        """
        encrypted = own if self._scheme.adds_clear_values else self.union
        clear = self._rest if encrypted == self.union else ~encrypted
        with self._clock.stage("upload"):
            weight = stated_weight(client, message, self._weights)
            values: FloatVector = np.empty(0, dtype=np.float32)
            if self._has_rest:
                values = message.vector("values", np.float32, clear.count)
                if not are_summable(values, sum(self._weights)):
                    raise WireFormatError(
                        f"client {client} sent NaN, infinity, or numbers that no sum of all clients' has "
                        "room for: its update was not added"
                    )
        with self._clock.stage("aggregate"):
            fields: FloatVector | None = None
            if clear is not self._rest:
                dense: FloatVector = np.zeros(self.union.size, dtype=np.float32)
                clear.scatter(values, dense, self._threads)
                fields, values = self.positions.gather(dense), self._rest.gather(dense, self._threads)
            self._scheme.add(self._ciphertexts, client, message["ciphertexts"], weight, fields)
            self._sums += weight * values.astype(np.float64)
            self._weight += weight
            self._clients += 1

    def is_of(self, union: Mask | None, clients: int) -> bool:
        """Say whether this union is encrypted, and this many clients added ciphertexts and plain numbers."""
        return self.union == union and self._clients == self._ciphertexts.clients == clients

    def check_changed(self) -> None:
        least, most = self._clients * min(self._weights), self._clients * max(self._weights)
        refuse_unless(0 <= self._clients <= len(self._weights) and least <= self._weight <= most)
        refuse_unless(self._sums.size == (self._rest.count if self._has_rest else 0))
        refuse_unless(bool(np.isfinite(self._sums).all()))

    _added = added_total("_ciphertexts")

    def union_parts(self, suffix: str) -> dict[str, bytes]:
        """Return what the clients need to know of the union, as parts of a message."""
        return {f"{self._scheme.positions_part}{suffix}": self.positions.to_bytes()}

    def parts(self, suffix: str) -> dict[str, bytes]:
        """Return the total, as parts of a message; none where no update has arrived."""
        if not self._clients:
            return {}
        return self.union_parts(suffix) | {
            f"total{suffix}": self._ciphertexts.total().to_bytes(),
            f"sums{suffix}": clear_sums_part(self._sums),
            f"weight{suffix}": np.uint64(self._weight).tobytes(),
        }


@dataclass(frozen=True)
class MixedTotal:
    """What ``MixedSum.parts`` wrote, to be checked before anything is opened."""

    total: SchemeTotal
    union: Positions
    sums: DoubleVector
    """Sums of plain numbers outside of the union, by ascending position; empty if none are sent."""
    weight: int
    encrypts_weights: bool

    @classmethod
    def read(
        cls,
        message: Message,
        suffix: str,
        parameters: SchemeParameters[Any],
        size: int,
        round_number: int,
        has_rest: bool = True,
    ) -> MixedTotal:
        """Read the parts with this suffix. Raises WireFormatError for parts that contradict each other.

        ``size`` is N, the number of an update's values; ``round_number`` is that of the ciphertexts.
        """
        scheme = scheme_of(parameters)
        union = scheme.read_positions(message[f"{scheme.positions_part}{suffix}"], size)
        total = scheme.Total.from_bytes(message[f"total{suffix}"])
        if not total.is_of(union) or total.round != round_number:
            raise WireFormatError("the total belongs to another round, or has other positions than the union")
        sums = read_clear_sums(message, f"sums{suffix}", size - union.count if has_rest else 0)
        weight = message.number(f"weight{suffix}")
        weights_differ = scheme.integer_weights and total.total_weight != weight
        if weight < total.clients or weights_differ:
            raise WireFormatError("the weight of the sums is not that of the total")
        return cls(total, union, sums, weight, encrypts_weights=not scheme.integer_weights)

    @property
    def positions(self) -> Mask:
        """The union as a mask of N positions."""
        return self.union.mask

    def check_weights(self, most_weight: int) -> bool:
        """Say whether the total has encrypted weights.

        Raises WireFormatError if that is not as agreed, or if weights between 1 and the largest cannot add up
        to the sum that clients stated in the clear.
        """
        encrypted = most_weight > 1 and self.encrypts_weights
        clients = self.total.clients
        if self.total.weighted != encrypted or not clients <= self.weight <= clients * most_weight:
            raise WireFormatError(
                f"the weights of the total's {clients} clients are not between 1 and {most_weight}, or not "
                "encrypted as was agreed on: nothing was opened"
            )
        return encrypted

    def clear_mean(self) -> DoubleVector:
        """Return the weighted mean (N,) of what came in the clear, else zero: to check before opening."""
        mean = np.zeros(self.positions.size)
        (~self.positions).scatter(self.sums / self.weight, mean)
        return mean


def opened_mean(claim: MixedTotal, context: RoleContext, sums: RoundSums) -> DoubleVector:
    """Open a total and return the weighted mean (N,), zero where nothing was sent.

    Raises as :meth:`MixedTotal.check_weights`; RangeError where the encrypted weights do not sum to the
    stated ones.
    """
    most = context.most_weight
    stated = claim.weight / most if claim.check_weights(most) else claim.weight
    with sums.opening(claim.total) as opener:
        mean: DoubleVector = claim.union.scatter(opener.open_mean(claim.total, stated_weight=stated))
    if claim.sums.size:
        (~claim.positions).scatter(claim.sums / claim.weight, mean)
    return with_buffers_times(mean, context.plan.buffers, 1.0 / context.buffer_factor)


def with_buffers_times(values: NDArray[Any], buffers: int, factor: float) -> NDArray[Any]:
    """Return values (n,) whose last ``buffers`` are multiplied by a power of two.

    The values themselves are returned if that changes nothing.
    """
    if not buffers or factor == 1.0:
        return values
    scaled = values.copy()
    scaled[-buffers:] *= factor
    return scaled


@contextmanager
def in_buffer_range(values: NDArray[Any], buffers: int, factor: float) -> Iterator[NDArray[Any]]:
    """Yield what is encrypted of values (n,), whose last ones are buffers.

    A RangeError for a buffer says so.
    """
    try:
        yield with_buffers_times(values, buffers, factor)
    except RangeError as error:
        position, size = error.position, error.size
        if (
            position is None
            or size is None
            or position < size - buffers
            or not np.isfinite(values[position - size])
        ):
            raise
        told = RangeError(
            f"the value at position {position} is a buffer, such as BatchNorm's statistics, and beyond the "
            "limit of buffers. It follows the data whatever the learning rate: scale the features to about "
            "1, or raise the method's setting buffer_range_bits, each bit of which doubles that limit"
        )
        told.position, told.size = position, size
        raise told from None


class MixedUpload:
    """Makes the parts ``ciphertexts``, ``values`` and ``weight`` that a ``MixedSum`` adds.

    ``key`` is the public key, or the client's own, where clients enrol. ``sends_rest`` says whether values
    that are not encrypted are sent in the clear, or not at all.
    """

    def __init__(
        self, key: Any, weight: int, most_weight: int, threads: int | None, *, sends_rest: bool = True
    ) -> None:
        self.key = key
        self._scheme = scheme_of(key)
        self.encryptor = self._scheme.encryptor(key, threads, "update")
        self.encryptor.speaks_of_settings = True
        self._threads = threads
        self._weight = weight
        self._encrypted_weight = None if most_weight == 1 else weight / most_weight
        self._sends_rest = sends_rest
        self._positions_of_zone: tuple[Mask, Positions] | None = None

    def read_union(self, message: Message, size: int) -> Positions:
        """Read what ``MixedSum.union_parts`` wrote. Raises WireFormatError."""
        return self._scheme.read_positions(message[self._scheme.positions_part], size)

    def union_of(self, zone: Mask) -> Positions:
        """Return the union of masks that all equal this zone. It is kept until another zone is given."""
        if self._positions_of_zone is None or self._positions_of_zone[0] != zone:
            self._positions_of_zone = zone, self._scheme.positions_of([zone], self._threads)
        return self._positions_of_zone[1]

    def encrypt(
        self,
        update: FloatVector | DoubleVector,
        own: Mask,
        union: Positions,
        round_number: int,
    ) -> tuple[bytes, Mask]:
        """Encrypt an update (N,) and say which positions it covered: the client's ``own`` or the whole union.

        Raises PolicyError or ParameterError for a union that leaves out some of its own, RangeError.
        """
        return self._scheme.encrypt(self.encryptor, update, own, union, self._encrypted_weight, round_number)

    def parts(
        self, update: FloatVector | DoubleVector, ciphertexts: bytes, encrypted: Mask
    ) -> dict[str, bytes]:
        """Return the message parts of an update whose ``encrypted`` positions are in the ciphertexts."""
        parts = {"weight": np.uint64(self._weight).tobytes(), "ciphertexts": ciphertexts}
        if self._sends_rest:
            rest = b"" if encrypted.count == encrypted.size else (~encrypted).gather(update).tobytes()
            parts["values"] = rest
        return parts


def encrypted_positions(zone: Mask, buffers: int) -> Mask:
    """Return the zone of P parameters, followed by ``buffers`` positions that are all encrypted."""
    return zone.resized(zone.size + buffers, chosen=True)


def read_agreed_positions(
    frame: Part, parameters: int, buffers: int, count: int, *, or_more: bool = False
) -> Mask:
    """Read positions that other roles say were agreed on, before anything outside them goes in the clear.

    Raises WireFormatError for what is no mask of parameters and buffers, PolicyError unless it covers all
    buffers and ``count`` parameters (``or_more``: at least so many).
    """
    zone = Mask.from_bytes(frame, expected_size=parameters + buffers)
    chosen = zone.resized(parameters).count
    if zone.count - chosen < buffers or chosen < count or (chosen > count and not or_more):
        raise PolicyError(
            f"the positions to encrypt are not the {count:,} parameters and all buffers that were agreed on: "
            "nothing was sent"
        )
    return zone


def smallest(values: NDArray[Any], count: int) -> NDArray[np.bool_]:
    """Choose exactly ``count`` of the smallest values; of equal ones those that come first."""
    if count == 0:
        return np.zeros(values.size, dtype=np.bool_)
    bound = np.partition(values, count - 1)[count - 1]
    chosen: NDArray[np.bool_] = values < bound
    ties = np.flatnonzero(values == bound)
    chosen[ties[: count - np.count_nonzero(chosen)]] = True
    return chosen


UPDATE = Phase("update", answered_by_authority=True)
SCORES = Phase("scores", answered_by_authority=True, opens="scores", once=True)
SCORE_POINT = FixedPoint(40, 36)
"""Quantisation of scores, which span many orders of magnitude: the core's widest, mostly behind the point."""


class AgreedShare:
    """A share of the parameters: by encrypted scores clients agree, once for a run, which these are.

    If the share is all parameters, or none, nothing is agreed on: there are no scores, and no keys for them.
    Rounds of a kind that does not encrypt encrypt the buffers alone.
    """

    def __init__(self, ratio: float, rounds: KindsOfRounds, plan: FederationPlan) -> None:
        self.rounds, self._plan = rounds, plan
        self.count = positions_in_budget(ratio, plan.parameters)
        self._buffers_alone = encrypted_positions(Mask.empty(plan.parameters), plan.buffers)
        self.settled = Mask.full(plan.update_size) if self.count == plan.parameters else None
        """Positions of encrypting rounds, if all or no parameters are encrypted; None if they are agreed
        on."""
        if not self.count:
            self.settled = self._buffers_alone

    def keys(self, encryption: str) -> dict[str, SchemeParameters[Any]]:
        """Return the parameters of encrypted scores, beside updates by this scheme; empty without scores."""
        if self.settled is not None:
            return {}
        # All under keys of one kind: clients enrol, or they do not.
        chosen = encryption if scheme_named(encryption).enrols else DEFAULT_PUBLIC_KEY_ENCRYPTION
        return {"scores": update_parameters(chosen, self._plan.most_participants, SCORE_POINT)}

    def asks(self, round_number: int, model: Message) -> bool:
        """Say whether a round that starts from this model lacks a mask that it needs."""
        return self.needs_mask(round_number) and "zone" not in model

    def needs_mask(self, round_number: int) -> bool:
        """Say whether a round encrypts positions that only a mask can tell."""
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
            # 0 before the first scores. Scores of a round that was given up before its update do not count.
            is_agreed = 1 <= model.number(newest_answer("scores")) <= model.number(newest_answer("update"))
        return (UPDATE,) if is_agreed else (SCORES, UPDATE)

    def opened(self, context: RoleContext, message: Message, sums: RoundSums, zone: Mask | None) -> Mask:
        """Return the mask that follows from the scores' mean, which alone is opened; ``zone`` if it is known.

        If a round was given up after its scores were opened, nothing is opened again.
        """
        total = scheme_of(context.keys.parameters["scores"]).Total.from_bytes(message["total"])
        stated, most = message.number("weight"), context.most_weight
        if not total.is_of(Mask.full(self._plan.parameters)) or total.round != message.number("round"):
            raise WireFormatError(
                "the total belongs to another round, or does not have one score for each parameter"
            )
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
