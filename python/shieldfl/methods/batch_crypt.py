"""BatchCrypt (Zhang et al. 2020): updates as small integers, many in one Paillier ciphertext, summed exactly.

Source: "BatchCrypt: Efficient Homomorphic Encryption for Cross-Silo Federated Learning", sections 4.2 and
4.3. With width r, m parties and a layer's clip bound alpha:

- an update is clipped to [-alpha, alpha]; the r bits, sign included, span the sum, r_max = m * alpha, so that
  one step is r_max / (2^(r-1) - 1);
- rounding is stochastic: the mean of the rounded value is the clipped one;
- the bound is dACIQ's, alpha = c(r) * sigma: from the range of all clients' values instead of from the
  values.

A client's integer is at most ceil((2^(r-1) - 1) / m) in magnitude. m of them, each rounded up, may pass
2^(r-1) - 1 by up to m - 1. Fields here are wide enough for that, so that no sum overflows: what is out of
range is clipped, and counted, by the client that has it.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from shieldfl.array_view import FloatVector
from shieldfl.authority.message import Message
from shieldfl.encryption import paillier
from shieldfl.encryption.registry import MOST_LOST, KeyBits
from shieldfl.errors import ParameterError, PrecisionWarning, RangeError, WireFormatError
from shieldfl.learning.local_update import DoubleVector
from shieldfl.masks import Mask
from shieldfl.methods.encrypted_update import UPDATE, MixedTotal
from shieldfl.methods.encryption_settings import FixedPoint
from shieldfl.methods.masked_average.method import (
    MaskedAverage,
    MaskedAverageAggregator,
    MaskedAverageClient,
)
from shieldfl.methods.masked_average.opening import Reader
from shieldfl.privacy.events import NO_NOISE
from shieldfl.rounds.method import NamedMethod
from shieldfl.rounds.plan import FederationPlan, Phase, RoleContext
from shieldfl.rounds.reports import Note
from shieldfl.settings import Positive, Settings, about
from shieldfl.stateful import refuse_unless

__path__ = ()  # once a package, below which old names are looked for

# Far outside of what ranges of float32 lead to, and far inside of what float64 divides without overflow.
_LEAST_BOUND, _MOST_BOUND = 2.0**-200, 2.0**200
# Of the standard deviation that ACIQ reads off the range of n normal values: sigma = factor * range / sqrt(2
# ln n).
_SIGMA_FACTOR = 0.5 * 0.35 * (1.0 + math.sqrt(math.pi * math.log(4.0)))
_CLIPPED = "were outside of their layer's clip bound and count as the bound"
_VANISHED = (
    "updates were rounded to 0 everywhere: their clip bounds, which follow from all clients' ranges, are far "
    "too wide for them"
)


@dataclass(frozen=True)
class Quantisation:
    """What all roles agree on: the layers, the width r, and m, the most clients of a round.

    m is not the number of a round's participants: fields are as wide as a client's integer, which is larger
    for a smaller m.
    """

    offsets: tuple[int, ...]
    """Bounds of the layers, L + 1 ascending numbers: layer i is ``offsets[i]`` up to ``offsets[i + 1]``."""
    width: int
    parties: int

    @property
    def layers(self) -> list[slice]:
        return [slice(start, stop) for start, stop in itertools.pairwise(self.offsets)]

    @property
    def largest_magnitude(self) -> int:
        """The most that a client's integer can be in magnitude: ceil((2^(r-1) - 1) / m)."""
        return -(-self._top // self.parties)

    @property
    def _top(self) -> int:
        return int(2 ** (self.width - 1)) - 1

    def parameters(self, key_bits: int = 3072) -> paillier.Parameters:
        """Return parameters under which integers are packed, summed and opened exactly.

        There are just the value bits that a client's integer needs, sign included, and guard bits for the sum
        of m of them: a field is at most two bits wider than r, unless there are more parties than steps.
        """
        return paillier.Parameters(
            key_bits=key_bits,
            packing="dense",
            max_clients=self.parties,
            value_bits=self.largest_magnitude.bit_length() + 1,
            fraction_bits=0,
        )

    def ranges(self, update: FloatVector) -> FloatVector:
        """Return the least and the greatest value of each layer, float32 (L, 2); zeros for an empty layer.

        This is what a client sends in the clear before it quantises, and it depends on its data. Raises
        RangeError for an update with NaN or infinity.
        """
        if not np.isfinite(update).all():
            raise RangeError(
                "the update has NaN or infinity: lower the learning rate or check this client's data"
            )
        ranges = np.zeros((len(self.layers), 2), dtype=np.float32)
        for layer, piece in enumerate(self.layers):
            if piece.stop > piece.start:
                ranges[layer] = update[piece].min(), update[piece].max()
        return ranges

    def bounds(self, ranges: Sequence[FloatVector]) -> DoubleVector:
        """Return each layer's clip bound alpha (L,), from the ranges of all clients (section 4.3, dACIQ).

        alpha = c(r) * sigma, and sigma is read off the range of the n values of all clients in the layer,
        taken to be normal with mean 0: sigma = 0.175 * (1 + sqrt(pi * ln 4)) * (max - min) / sqrt(2 * ln n),
        as in the authors' published program and in ACIQ (Banner et al. 2018) before it. Where all values of a
        layer are equal, there is no sigma: the bound is their magnitude, 0 for a layer that is empty or 0
        everywhere.

        Raises RangeError for a range that is NaN, infinite, upside down, or of two values where there is at
        most one.
        """
        stacked = np.asarray(ranges, dtype=np.float64)
        if not (np.isfinite(stacked).all() and (stacked[..., 0] <= stacked[..., 1]).all()):
            raise RangeError("a client's range is NaN, infinite or has a minimum above its maximum")
        least, greatest = stacked[..., 0].min(axis=0), stacked[..., 1].max(axis=0)
        bounds: DoubleVector = np.abs(greatest)
        for layer in np.flatnonzero(greatest > least):
            piece = self.layers[layer]
            values = len(ranges) * (piece.stop - piece.start)
            if values < 2:
                raise RangeError("a client's range has two values, and the layer has at most one")
            spread = (greatest[layer] - least[layer]) / math.sqrt(2.0 * math.log(values))
            bounds[layer] = clip_factor(self.width) * _SIGMA_FACTOR * spread
        return bounds

    def read_bounds(self, message: Message) -> DoubleVector:
        """Read the clip bounds, float64 (L,).

        Raises WireFormatError for another number, or what is no bound.
        """
        bounds = message.vector("bounds", np.float64, len(self.layers))
        if not ((bounds == 0.0) | ((bounds >= _LEAST_BOUND) & (bounds <= _MOST_BOUND))).all():
            raise WireFormatError(
                "the round's clip bounds cannot be used: each is 0, or of a size that float32 updates lead to"
            )
        return bounds

    def quantise(
        self, update: FloatVector, bounds: DoubleVector, generator: np.random.Generator
    ) -> tuple[NDArray[np.int64], int]:
        """Clip each layer and round it stochastically to steps of m alpha / (2^(r-1) - 1); 0 for bound 0.

        Returns the integers (P,), and how many values were outside of their clip bound.
        """
        integers, saturated, most = np.zeros(update.size, dtype=np.int64), 0, self.largest_magnitude
        for piece, alpha in zip(self.layers, bounds, strict=True):
            layer = update[piece].astype(np.float64)
            saturated += int(np.count_nonzero(np.abs(layer) > alpha))
            if alpha > 0.0:
                steps = np.clip(layer, -alpha, alpha) * (self._top / (self.parties * alpha))
                below = np.floor(steps)
                rounded = below + (generator.random(layer.size) < steps - below)
                # The product may be a hair above a whole number of steps where alpha is a whole number.
                integers[piece] = np.clip(rounded, -most, most)
        return integers, saturated

    def dequantise(self, sums: NDArray[Any], bounds: DoubleVector) -> DoubleVector:
        """Return what sums (P,) of up to m clients' integers stand for: sums of clipped and rounded updates.

        Raises RangeError if a sum is no whole number, or larger than m clients' integers can make it.
        """
        most, values = self.parties * self.largest_magnitude, sums.astype(np.float64)
        if not ((np.abs(values) <= most).all() and (values == np.rint(values)).all()):
            raise RangeError(
                f"a sum of {self.parties:,} clients' integers is a whole number of at most {most:,} in "
                "magnitude: these were quantised with other settings"
            )
        for piece, alpha in zip(self.layers, bounds, strict=True):
            values[piece] *= self.parties * alpha / self._top
        return values


@cache
def clip_factor(width: int) -> float:
    """Return c(r): the bound that is best for normal values of variance 1. c(8) = 3.7736, c(16) = 5.8294.

    It minimises the expected squared error of clipping and rounding, the latter 2 a^2 (2^r - 2) / (3 * 2^(3
    r)) by the authors' published program. The derivative vanishes where sqrt(2/pi) * exp(-a^2/2) / a -
    erfc(a/sqrt(2)) = 2 (2^r - 2) / (3 * 2^(3 r)), whose left side falls with a. The published c(16) = 5.8296
    comes from a minimiser that stops a little beside it: the minimum is flat.
    """
    target = 2.0 * (2.0**width - 2.0) / (3.0 * 2.0 ** (3 * width))
    low, high = 0.5, 16.0
    while True:
        middle = (low + high) / 2.0
        if middle in (low, high):
            return middle
        gain = math.sqrt(2.0 / math.pi) * math.exp(-middle * middle / 2.0) / middle
        if gain - math.erfc(middle / math.sqrt(2.0)) > target:
            low = middle
        else:
            high = middle


@dataclass(frozen=True)
class BatchCryptSettings(Settings):
    """How updates are quantised and encrypted."""

    width: Annotated[
        int,
        Meta(ge=2, le=32),
        about("Bits of a quantised sum, sign included. The paper uses 8 and 16.", symbol="r"),
    ] = 16
    key_bits: Annotated[KeyBits, about("Bits of the Paillier modulus.")] = 3072
    largest_update: Annotated[
        Positive,
        about(
            "Largest magnitude that a client may state for its updates. Clip bounds follow from stated "
            "magnitudes, so a client that states a huge one could move the model at will."
        ),
    ] = 8.0


class BatchCryptClient(MaskedAverageClient):
    """Sends its layers' ranges, then its integers, encrypted."""

    method: BatchCrypt
    clear_parts = ("weight", "ranges")
    _warned = False

    def _speak(self) -> Message:
        with self.clock.stage("negotiate"):
            update = self._difference()
            ranges = self.method.quantisation.ranges(update)
            # A value that the aggregator would refuse to hear of.
            position, largest = int(np.abs(update).argmax()), self.method.largest_update
            if abs(update[position]) > largest:
                # Buffers follow the data whatever the learning rate.
                advice = (
                    "lower the learning rate" if position < self._size else "scale the features to about 1"
                )
                error = RangeError(
                    f"the value at position {position} is beyond largest_update = {largest:g} in magnitude: "
                    f"{advice}, or raise the method's setting largest_update"
                )
                error.position, error.size = position, update.size
                raise error
        return Message({"ranges": ranges.tobytes()})

    def _vector(self, answer: Message | None) -> DoubleVector:
        """Return the client's integers, under the clip bounds of the answer."""
        if answer is None:
            raise ParameterError("the update needs the clip bounds that the phase before decides")
        agreed, update = self.method.quantisation, self._difference()
        bounds = agreed.read_bounds(answer)
        # Rounding hides nothing, so it need not be secret; this way the same training gives the same model,
        # and only who knows the update can tell how it was rounded.
        digest = hashlib.sha256(update.tobytes())
        digest.update(np.array([self.round, self.index], dtype="<u8").tobytes())
        generator = np.random.default_rng(int.from_bytes(digest.digest(), "little"))
        integers, saturated = agreed.quantise(update, bounds, generator)
        nonzero = int(np.count_nonzero(update))
        if saturated > MOST_LOST * nonzero and not self._warned:
            self._warned = True
            warnings.warn(
                f"{saturated:,} of the {nonzero:,} values that are not zero {_CLIPPED}: bounds take a "
                "layer's values to be spread evenly around 0. Take full-he, which clips nothing",
                PrecisionWarning,
                stacklevel=2,
            )
        self.note(Note(f"values {_CLIPPED}", counts=(saturated, update.size)))
        self.note(Note(_VANISHED, counts=(int(update.any() and not integers.any()), 1)))
        return integers.astype(np.float64)


class BatchCryptAggregator(MaskedAverageAggregator):
    """Makes clip bounds of the ranges, which it sees, and adds ciphertexts."""

    method: BatchCrypt
    changes: ClassVar = {"_ranges": list[np.ndarray[tuple[int, int], np.dtype[np.float32]]], "_bounds": bytes}

    def __init__(self, method: BatchCrypt, context: RoleContext, weights: tuple[int, ...]) -> None:
        super().__init__(method, context, weights)
        self._ranges: list[FloatVector] = []
        self._bounds = b""

    def check_changed(self) -> None:
        if self._bounds:
            self.method.quantisation.read_bounds(Message({"bounds": self._bounds}))
        refuse_unless(len(self._ranges) <= self._clients)
        shape = (len(self.method.quantisation.layers), 2)
        for ranges in self._ranges:
            refuse_unless(ranges.shape == shape)
            self._check_ranges(ranges, "a client")

    def check_sums(self) -> None:
        super().check_sums()
        refuse_unless(self._phase == UPDATE.name or len(self._ranges) == len(self._seen))

    def _begin_phase(self, phase: str, round_number: int, answer: Message | None) -> None:
        if phase == UPDATE.name and answer is None:
            raise ParameterError("the update phase needs the clip bounds that the phase before decides")
        bounds = b"" if answer is None else self.method.quantisation.read_bounds(answer).tobytes()
        super()._begin_phase(phase, round_number, answer)
        self._bounds = bounds

    def _begin(self, round_number: int) -> None:
        self._ranges = []

    def _hear(self, client: int, message: Message) -> None:
        layers = len(self.method.quantisation.layers)
        with self.clock.stage("negotiate"):
            ranges = message.vector("ranges", np.float32, 2 * layers).reshape(layers, 2)
            self._check_ranges(ranges, f"client {client}")
            self._ranges.append(ranges)

    def _check_ranges(self, ranges: FloatVector, whose: str) -> None:
        self.method.quantisation.bounds([ranges])  # refuses what is no range
        largest = self.method.largest_update
        if np.abs(ranges).max(initial=0.0) > largest:
            raise RangeError(
                f"{whose} states updates beyond largest_update = {largest:g}: lower the learning rate, or "
                "raise that setting of the method"
            )

    def _conclude(self) -> Message:
        return Message({"bounds": self.method.quantisation.bounds(self._ranges).tobytes()})

    def _result(self, phase: str) -> Message:
        result = super()._result(phase)
        return Message({**result, "bounds": self._bounds}) if phase == UPDATE.name else result


class BatchCrypt(MaskedAverage):
    """BatchCrypt for one federation. All clients count alike."""

    names = (
        NamedMethod(
            "batch-crypt",
            "everything encrypted, as small integers; the layers' ranges in the clear",
            "the fewest bytes for a whole model",
            "Zhang et al. 2020: BatchCrypt, section 4",
            BatchCryptSettings(),
        ),
    )
    privacy_reading = NO_NOISE
    aggregator_sees = "ciphertexts, and the range of every layer of each client's update"

    phases = (Phase("ranges", answered_by_authority=False), UPDATE)
    client_kind = BatchCryptClient
    aggregator_kind = BatchCryptAggregator

    weighs_all_alike = True
    why_alike = ", whatever their weights: its integers share one scale"
    schemes = ("paillier-dense",)  # what the paper packs its integers in

    def __init__(self, name: str, settings: BatchCryptSettings, plan: FederationPlan) -> None:
        offsets = plan.offsets if plan.buffers == 0 else (*plan.offsets, plan.update_size)
        self.quantisation = Quantisation(offsets, settings.width, plan.most_participants)
        self.largest_update = settings.largest_update
        parameters = self.quantisation.parameters(settings.key_bits)
        # Buffers are quantised in a range of their own.
        bits = FixedPoint(parameters.value_bits, parameters.fraction_bits, 0)
        everything = Mask.full(plan.update_size)
        super().__init__(name, settings, plan, everything, fixed_point=bits, sends_rest=False)

    def reader(self, context: RoleContext, claim: MixedTotal, message: Message) -> Reader:
        """Return what turns opened whole numbers into an update."""
        bounds, union, clients = self.quantisation.read_bounds(message), claim.union, claim.total.clients
        claim.check_weights(1)
        return lambda sums: self.quantisation.dequantise(union.scatter(sums), bounds) / clients

    def settings(self, weights: Sequence[int]) -> dict[str, Any]:
        return super().settings(weights) | {"bits_of_a_value": self.purposes["update"].value_bits}
