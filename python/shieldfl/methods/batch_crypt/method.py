"""BatchCrypt (Zhang et al. 2020): updates as small integers, many in one Paillier ciphertext, summed exactly."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from shieldfl.authority.message import Message
from shieldfl.encryption.encryption import MOST_LOST
from shieldfl.encryption.registry import KeyBits
from shieldfl.errors import ParameterError, PrecisionWarning, RangeError
from shieldfl.masks import Mask
from shieldfl.methods.batch_crypt.quantisation import (
    Quantisation,
    clip_bounds,
    dequantise,
    layer_ranges,
    paillier_parameters,
    quantise,
)
from shieldfl.methods.encrypted_update import MixedTotal
from shieldfl.methods.encryption_settings import EncryptionSettings
from shieldfl.methods.masked_average.method import (
    UPDATE,
    MaskedAverage,
    MaskedAverageAggregator,
    MaskedAverageClient,
)
from shieldfl.methods.masked_average.rule import MaskedAverageRule
from shieldfl.privacy.events import NO_NOISE
from shieldfl.rounds.global_model import GlobalModel
from shieldfl.rounds.named_method import NamedMethod
from shieldfl.rounds.opening_rule import OpeningRule, RoundSums
from shieldfl.rounds.plan import FederationPlan, Phase
from shieldfl.rounds.public_setup import RoleContext
from shieldfl.rounds.reports import Tally
from shieldfl.settings import Positive, Settings, about
from shieldfl.stateful import refuse_unless

RANGES = Phase("ranges", answered_by_authority=False)


_CLIPPED = "were outside of their layer's clip bound and count as the bound"
_VANISHED = (
    "updates were rounded to 0 everywhere: their clip bounds, which follow from all clients' ranges, are far too wide "
    "for them"
)


@dataclass(frozen=True)
class BatchCryptSettings(Settings):
    """How updates are quantised and encrypted."""

    width: Annotated[
        int,
        Meta(ge=2, le=32),
        about("Bits of a quantised sum, sign included; the paper takes 8 and 16.", symbol="r"),
    ] = 16
    key_bits: Annotated[KeyBits, about("Bits of the Paillier modulus.")] = 3072
    largest_update: Annotated[
        Positive,
        about(
            "The largest magnitude that a client may state of its updates. Clip bounds follow from what clients state, "
            "so one that states a huge one would move the model at will."
        ),
    ] = 8.0


class BatchCryptClient(MaskedAverageClient):
    """Sends its layers' ranges, then its integers, encrypted."""

    clear_parts = ("weight", "ranges")
    _warned = False

    def __init__(
        self,
        index: int,
        initial: GlobalModel,
        context: RoleContext,
        zone: Mask,
        quantisation: Quantisation,
        largest_update: float,
    ) -> None:
        super().__init__(index, 1, initial, context, zone, sends_rest=False)
        self._quantisation = quantisation
        self._largest_update = largest_update

    def _speak(self, phase: str) -> Message:
        with self.clock.stage("negotiate"):
            update = self._difference()
            ranges = layer_ranges(update, self._quantisation.offsets)
            self._check_magnitudes(update)
        return Message({"round": Message.from_number(self.round), "ranges": ranges.tobytes()})

    def _check_magnitudes(self, update: NDArray[np.float32]) -> None:
        """Raise RangeError, which has the position, for a value that the aggregator would refuse to hear of."""
        position = int(np.abs(update).argmax())
        if abs(update[position]) > self._largest_update:
            # Buffers follow the data whatever the learning rate.
            advice = "lower the learning rate" if position < self._size else "scale the features to about 1"
            error = RangeError(
                f"the value at position {position} is beyond largest_update = {self._largest_update:g} in magnitude: "
                f"{advice}, or raise the method's setting largest_update"
            )
            error.position, error.size = position, update.size
            raise error

    def _vector(self, answer: Message | None) -> NDArray[np.float64]:
        """Return the client's integers, under the clip bounds of the answer."""
        if answer is None:
            raise ParameterError("the update needs the clip bounds that the phase before decides")
        agreed, update = self._quantisation, self._difference()
        bounds = agreed.read_bounds(answer)
        # Rounding hides nothing, so it need not be secret; this way the same training gives the same model, and
        # only who knows the update can tell how it was rounded.
        digest = hashlib.sha256(update.tobytes())
        digest.update(np.array([self.round, self.index], dtype="<u8").tobytes())
        generator = np.random.default_rng(int.from_bytes(digest.digest(), "little"))
        quantised = quantise(update, agreed.offsets, bounds, agreed.width, agreed.parties, generator)
        nonzero = int(np.count_nonzero(update))
        if quantised.saturated > MOST_LOST * nonzero and not self._warned:
            self._warned = True
            warnings.warn(
                f"{quantised.saturated:,} of the {nonzero:,} values that are not zero {_CLIPPED}: bounds take a "
                "layer's values to be spread evenly around 0. Take full-he, which clips nothing",
                PrecisionWarning,
                stacklevel=2,
            )
        self.note(Tally(quantised.saturated, update.size, f"values {_CLIPPED}"))
        self.note(Tally(int(update.any() and not quantised.values.any()), 1, _VANISHED))
        return quantised.values.astype(np.float64)


class BatchCryptAggregator(MaskedAverageAggregator):
    """Makes clip bounds of the ranges, which it sees, and adds ciphertexts."""

    changes: ClassVar = {
        "_ranges": list[np.ndarray[tuple[int, int], np.dtype[np.float32]]],
        "_bounds": bytes,
    }

    def __init__(
        self,
        context: RoleContext,
        weights: tuple[int, ...],
        zone: Mask,
        quantisation: Quantisation,
        largest_update: float,
    ) -> None:
        super().__init__(context, weights, zone, sends_rest=False)
        self._quantisation = quantisation
        self._largest_update = largest_update
        self._ranges: list[NDArray[np.float32]] = []
        self._bounds = b""

    def check_changed(self) -> None:
        """Raise WireFormatError for clip bounds of other layers, and for ranges that no clients here can have sent."""
        if self._bounds:
            self._quantisation.read_bounds(Message({"bounds": self._bounds}))
        refuse_unless(len(self._ranges) <= self._clients)
        for ranges in self._ranges:
            self._check_ranges(ranges, "a client")

    def check_sums(self) -> None:
        """Raise WireFormatError for ranges of other clients than were heard."""
        super().check_sums()
        refuse_unless(self._phase == UPDATE.name or len(self._ranges) == len(self._seen))

    def _begin_phase(self, phase: str, round_number: int, answer: Message | None) -> None:
        """Start to collect; in the update phase, under the bounds that the clients have."""
        if phase == UPDATE.name and answer is None:
            raise ParameterError("the update phase needs the clip bounds that the phase before decides")
        bounds = b"" if answer is None else self._quantisation.read_bounds(answer).tobytes()
        super()._begin_phase(phase, round_number, answer)
        self._bounds = bounds

    def _begin(self, phase: str, round_number: int) -> None:
        self._ranges = []

    def _hear(self, phase: str, client: int, message: Message) -> None:
        agreed = self._quantisation
        with self.clock.stage("negotiate"):
            ranges = message.vector("ranges", np.float32, 2 * agreed.layers).reshape(agreed.layers, 2)
            self._check_ranges(ranges, f"client {client}")
            self._ranges.append(ranges)

    def _check_ranges(self, ranges: NDArray[np.float32], whose: str) -> None:
        clip_bounds(
            [ranges], self._quantisation.offsets, self._quantisation.width
        )  # refuses what is no range
        if np.abs(ranges).max(initial=0.0) > self._largest_update:
            raise RangeError(
                f"{whose} states updates beyond largest_update = {self._largest_update:g}: lower the learning rate, or "
                "raise that setting of the method"
            )

    def _conclude(self, phase: str) -> Message:
        agreed = self._quantisation
        with self.clock.stage("negotiate"):
            bounds = clip_bounds(self._ranges, agreed.offsets, agreed.width)
        return Message({"bounds": bounds.tobytes()})

    def _result(self, phase: str) -> Message:
        """Return the phase's result; of the update phase, the total and the bounds that it stands under."""
        result = super()._result(phase)
        return Message({**result, "bounds": self._bounds}) if phase == UPDATE.name else result


class BatchCrypt(MaskedAverage):
    """BatchCrypt for one federation; arguments as for :class:`MaskedAverage`. All clients count alike."""

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

    phases = (RANGES, UPDATE)

    weighs_all_alike = True
    schemes = ("paillier-dense",)  # what the paper packs its integers in

    def __init__(self, name: str, settings: BatchCryptSettings, plan: FederationPlan) -> None:
        parameters = paillier_parameters(settings.width, plan.most_participants, key_bits=settings.key_bits)
        encryption = EncryptionSettings(
            parameters.value_bits,
            parameters.fraction_bits,
            0,  # buffers are quantised in a range of their own
            encryption=self.schemes[0],
            key_bits=settings.key_bits,
        )
        everything = Mask.full(plan.update_size)
        super().__init__(name, settings, plan, everything, encryption=encryption, sends_rest=False)
        self._everything = everything
        self._largest_update = settings.largest_update
        offsets = plan.offsets if plan.buffers == 0 else (*plan.offsets, plan.update_size)
        self._quantisation = Quantisation(offsets, settings.width, plan.most_participants)

    def _why_alike(self) -> str:
        return "batch-crypt weighs all clients alike, whatever their weights: its integers share one scale"

    def _client(
        self,
        context: RoleContext,
        index: int,
        weight: int,
        initial: GlobalModel,
        shared_secret: bytes | None,
    ) -> BatchCryptClient:
        return BatchCryptClient(
            index, initial, context, self._everything, self._quantisation, self._largest_update
        )

    def _aggregator(
        self, context: RoleContext, weights: tuple[int, ...], initial: GlobalModel | None
    ) -> BatchCryptAggregator:
        return BatchCryptAggregator(
            context, weights, self._everything, self._quantisation, self._largest_update
        )

    def _opening_rule(
        self, initial: GlobalModel, context: RoleContext, shared_secret: bytes | None
    ) -> OpeningRule:
        mean = partial(_dequantised_mean, self._quantisation)
        return MaskedAverageRule(context, initial, self._everything, sends_rest=False, mean=mean)

    def settings(self, weights: Sequence[int]) -> dict[str, Any]:
        """Return the settings, with what they come to."""
        return asdict(self._settings) | {
            "weights": "uniform",
            "bits_of_a_value": self.update_parameters.value_bits,
            "bytes_per_encrypted_value": self.update_parameters.bytes_per_value,
        }


def _dequantised_mean(
    agreed: Quantisation, claim: MixedTotal, sums: RoundSums, message: Message
) -> NDArray[np.float64]:
    """Open whole numbers, and only then make an update of them."""
    bounds = agreed.read_bounds(message)
    claim.check_weights(1)
    opened = claim.union.scatter(sums.open(claim.total))
    return dequantise(opened, agreed.offsets, bounds, agreed.width, agreed.parties) / claim.total.clients
