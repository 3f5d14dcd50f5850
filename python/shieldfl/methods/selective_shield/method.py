"""SelectiveShield (Li, Yan, Liu): encrypted, personalised and noised zones, two servers.

docs/reference/methods/selective-shield.md says what it protects, what leaks and how the paper was read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

import shieldfl._core as _core
from shieldfl.array_view import FloatVector
from shieldfl.authority.message import Message, Part
from shieldfl.encryption.registry import DEFAULT_ENCRYPTION, SchemeTotal, scheme_of, weighing_encryptions
from shieldfl.errors import ParameterError, PolicyError, RangeError, WireFormatError
from shieldfl.learning.local_update import DoubleVector, LocalUpdate, StartingPoint
from shieldfl.masks import Mask, Votes, Zones, split_zones
from shieldfl.methods.encrypted_update import (
    added_total,
    are_summable,
    clear_sums_part,
    encrypted_positions,
    in_buffer_range,
    read_clear_sums,
)
from shieldfl.methods.encryption_settings import FixedPoint, WeighedEncryption, update_parameters
from shieldfl.privacy.accountant import noise_multiplier_for
from shieldfl.privacy.events import ClearUpload, Noise, PrivacyReading
from shieldfl.privacy.noise import AdaptiveClip, clip_and_noise, discrete_gaussian_noise, float32_grid
from shieldfl.rounds.collecting_aggregator import CollectingAggregator
from shieldfl.rounds.method import Method, NamedMethod
from shieldfl.rounds.opening_rule import OpeningRule, RoundSums
from shieldfl.rounds.plan import FederationPlan, GlobalModel, Phase, RoleContext, joined
from shieldfl.rounds.reports import Account, Disclosure
from shieldfl.rounds.training_client import TrainingClient
from shieldfl.settings import Delta, NotNegative, Positive, Share, TrainingSettings, about
from shieldfl.stateful import refuse_unless

_LEAST_DISCRETE_MULTIPLIER = 2.0**-29
"""Smallest multiplier of discrete noise. Below it the clipping norm has more than the core's 2^50 steps."""

_Threshold = Annotated[float, Meta(le=1.0)]


@dataclass(frozen=True)
class SelectiveShieldSettings(FixedPoint):
    """Settings of SelectiveShield. Raises ParameterError, also for ones that contradict each other."""

    encryption: WeighedEncryption = DEFAULT_ENCRYPTION
    threshold: Annotated[
        _Threshold | Annotated[tuple[_Threshold, ...], Meta(min_length=1)],
        about(
            "Sensitivity above which a client selects a position (eq. 14); sensitivities are scaled to "
            "0 to 1 in each tensor. 1 selects none, a negative value all. One value, or one per client.",
            symbol="tau",
            options=("--tau", "--threshold"),
        ),
    ] = 0.05
    consensus: Annotated[
        Share,
        about(
            "Share of a round's clients that must select a position to encrypt it (eq. 16); 1 is all.",
            symbol="rho",
            options=("--rho", "--consensus"),
        ),
    ] = 0.5
    noise_multiplier: Annotated[
        NotNegative,
        about(
            "Noise multiplier of the noise zone (eq. 21): each of a round's K clients adds noise of standard "
            "deviation sigma * C * sqrt(K). 0 sends the zone in the clear.",
            symbol="sigma",
        ),
    ] = 0.0
    noise_distribution: Annotated[
        Literal["gaussian", "discrete-gaussian"],
        about(
            "gaussian: floating-point noise. discrete-gaussian: exact draws on a grid, so that the "
            "privacy proof covers the numbers sent; slower."
        ),
    ] = "gaussian"
    clip_norm: Annotated[
        Positive,
        about("L2 norm to which the noise zone's update is clipped (eq. 20), if there is noise.", symbol="C"),
    ] = 1.0
    adaptive_clip: Annotated[
        bool,
        about("Clip to the client's own recent norms. This is not private: the norms depend on the data."),
    ] = False
    target_epsilon: Annotated[
        Positive | None,
        about(
            "Epsilon of all rounds' noise (eq. 22), instead of the noise multiplier. The epsilon that holds "
            "is infinite if masks depend on the data, or after a sum was opened without noise."
        ),
    ] = None
    delta: Annotated[Delta, about("Delta of this method's epsilon.")] = 1e-5
    divisor: Annotated[
        Literal["contributors", "participants"],
        about("Divisor of a position's sum: clients that sent it, or all clients in the round (eq. 26)."),
    ] = "contributors"
    negotiation: Annotated[
        Literal["clear", "encrypted"],
        about(
            "clear: the aggregator sees every mask, as in the paper. encrypted: the opener sees tallies, and "
            "the aggregator each mask outside the encrypted zone, unless personalised positions are hidden."
        ),
    ] = "clear"
    hide_personalised: Annotated[
        bool,
        about("Send noise on personalised positions too. It needs noise and encrypted negotiation."),
    ] = False
    buffers: Annotated[
        Literal["local", "encrypted"],
        about(
            "BatchNorm statistics. local: each client keeps its own (FedBN). encrypted: they are "
            "averaged in the encrypted zone."
        ),
    ] = "local"
    sensitivity: Annotated[
        Literal["full-batch", "batch", "per-sample"],
        about(
            "Sensitivity of a position. full-batch: squared gradient over all local data at the start of "
            "the round (eq. 12). batch: square of the mean gradient of the round's mini-batches. "
            "per-sample: mean of the squared gradients of the samples (eq. 3)."
        ),
    ] = "full-batch"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.target_epsilon is not None and self.noise_multiplier != 0.0:
            raise ParameterError("give noise_multiplier or target_epsilon, not both")
        if self.has_discrete_noise and self.noise_multiplier < _LEAST_DISCRETE_MULTIPLIER:
            raise ParameterError("noise_multiplier must be at least 2^-29 for discrete-gaussian noise")
        if self.hide_personalised and self.negotiation != "encrypted":
            raise ParameterError(
                "hide_personalised needs encrypted negotiation: in a clear one the aggregator sees the masks"
            )
        if self.hide_personalised and self.noise_multiplier == 0.0 and self.target_epsilon is None:
            raise ParameterError("hide_personalised needs noise: else hidden positions would be zeros")

    @property
    def has_discrete_noise(self) -> bool:
        """Whether discrete noise is added: not while a target epsilon is not resolved to a multiplier."""
        return self.noise_distribution == "discrete-gaussian" and self.noise_multiplier > 0.0

    def threshold_of(self, client: int) -> float:
        return self.threshold[client] if isinstance(self.threshold, tuple) else self.threshold


class SelectiveShieldClient(TrainingClient):
    """One client, whose number picks its threshold; its buffers are the initial model's at the start."""

    changes: ClassVar = {
        "_clip": AdaptiveClip | None,
        "_personalised": Mask,
        "_own_values": FloatVector,
        "_participants": int,
        "_mask": Mask,
        "_zones": Zones,
    }

    def __init__(
        self, method: SelectiveShield, context: RoleContext, index: int, weight: int, initial: GlobalModel
    ) -> None:
        shares = method.shares_buffers
        super().__init__(index, initial, context, shares_buffers=shares, keeps_buffers=not shares)
        self._settings = settings = method.own
        self._threshold = settings.threshold_of(index)
        self._votes_in_clear = "votes" not in context.keys.parameters
        self._clip = AdaptiveClip(settings.clip_norm) if settings.adaptive_clip else None
        self._mask = self._personalised = nothing = Mask.empty(self._size)
        self._own_values: FloatVector = np.zeros(0, np.float32)  # on the personalised positions
        self._zones = Zones(nothing, nothing, nothing)
        self._participants = 1

    def check_changed(self) -> None:
        zones = (self._zones.encrypted, self._zones.noise, self._zones.personalised)
        refuse_unless({one.size for one in (self._personalised, self._mask, *zones)} == {self._size})
        refuse_unless(self._own_values.size == self._personalised.count)
        refuse_unless(bool(np.isfinite(self._own_values).all()))
        refuse_unless(1 <= self._participants <= self.context.plan.most_participants)

    def _begin_round(self, round_number: int, participants: int, model: Message) -> StartingPoint:
        start = super()._begin_round(round_number, participants, model)
        # The server says how many take part, and noise never shrinks with what somebody else says.
        self._participants = max(1, participants)
        return start

    def _keep(self, update: LocalUpdate) -> None:
        """Choose the sensitive positions (eq. 14)."""
        with self.clock.stage("score"):
            if self._threshold < 0.0:
                self._mask = Mask.full(self._size)
            else:
                # Strictly above (SelectiveShield, eq. 14).
                self._mask = Mask.from_bool(update.checked_scores() > np.float32(self._threshold))
            self.update = GlobalModel(update.parameters, update.buffers)
            self._keep_own_values()

    def _keep_own_values(self) -> None:
        """Keep what stays the client's own, whether or not the round ends."""
        self._own_values = self._personalised.gather(self.update.parameters)
        if self._keeps_buffers:
            self._buffers = self.update.buffers

    def _make(self, phase: str, answer: Message | None) -> Message:
        """Send the mask, or votes for it; then, knowing the encrypted zone, the protected update."""
        if phase == "negotiate":
            with self.clock.stage("negotiate"):
                parts = self._vote_parts()
        elif answer is None:
            raise ParameterError("the update needs the answer to the negotiation")
        else:
            parts = self._update_parts(answer)
        return Message(parts)

    def _vote_parts(self) -> dict[str, bytes]:
        if self._votes_in_clear:
            self.disclosure = replace(self.disclosure, parts=("mask",))
            return {"mask": self._mask.to_bytes()}
        if self._chooses_by_data:
            # The zone is a function of all votes, without noise, and goes to everybody.
            self.record(ClearUpload(self.round, self.index, "encrypted zone"))
        votes = self._mask.to_bool().astype(np.float32)
        return {"votes": self._encryptor("votes").encrypt(votes, round=self.round).to_bytes()}

    def _encryptor(self, purpose: str) -> Any:
        key = self._round_key(purpose)
        encryptor = scheme_of(key).encryptor(key, self.context.threads, purpose)
        encryptor.speaks_of_settings = True
        return encryptor

    @property
    def _chooses_by_data(self) -> bool:
        """Whether the mask follows from the data: a threshold below 0 takes everything, one of 1 nothing."""
        return 0.0 <= self._threshold < 1.0

    def _tells(self, part: str) -> bool:
        # Under a threshold that decides alone, what is left of positions follows from the zone of others.
        return super()._tells(part) and (part not in ("mask", "positions") or self._chooses_by_data)

    def _update_parts(self, answer: Message) -> dict[str, bytes]:
        with self.clock.stage("negotiate"):
            encrypted = Mask.from_bytes(answer["encrypted zone"], expected_size=self._size)
            self._zones = split_zones(self._mask, encrypted)
            self.disclosure = self._disclose()
        with self.clock.stage("encrypt"):
            # To the global model (eq. 11), not to the point that training started from: what a position
            # gathered while it was personalised is sent once it is not any more, instead of never.
            delta = self._difference()
            buffers = delta.size - self._size
            mask = encrypted_positions(encrypted, buffers)
            with in_buffer_range(delta, buffers, self.context.buffer_factor) as scaled:
                batch = self._encryptor("update").encrypt(scaled, mask, round=self.round)
            parts = {"ciphertexts": batch.to_bytes(), "values": self._noised_values().tobytes()}
            if not self._votes_in_clear and not self._settings.hide_personalised:
                # The aggregator has not seen the mask, so it must be told where the values belong.
                parts["positions"] = self._zones.noise.to_bytes()
        return parts

    def _noised_values(self) -> FloatVector:
        """Clip to C and add N(0, (C sigma)^2 K) (eqs. 20 and 21); hidden positions get the noise alone."""
        zones = self._zones
        after, before = (zones.noise.gather(one.parameters) for one in (self.update, self.start))
        with np.errstate(over="ignore"):  # what is too large is refused where it is clipped or added
            values: FloatVector = after - before
        if self._settings.hide_personalised:
            dense = np.zeros(self._size, dtype=np.float32)
            zones.noise.scatter(values, dense)
            values = (zones.noise | zones.personalised).gather(dense)
        sigma = self._settings.noise_multiplier
        if sigma == 0.0:
            return values
        norm = self._settings.clip_norm if self._clip is None else self._clip.norm()
        deviation = norm * sigma * float(np.sqrt(self._participants))
        # The zeros of hidden positions add nothing to the norm.
        if self._settings.has_discrete_noise:
            grid = float32_grid(deviation)
            exact, original_norm, _ = discrete_gaussian_noise(
                values, norm, deviation, grid, threads=self.context.threads
            )
            # Exact up to 2^24 steps of the grid, rounded to coarser multiples of the step beyond. That
            # sees nothing but the private result, so it costs no privacy.
            noised = exact.astype(np.float32)
        else:
            noised, original_norm, _ = clip_and_noise(values, norm, deviation, threads=self.context.threads)
        if self._clip is not None:
            self._clip.observe(original_norm)
        return noised

    def _disclose(self) -> Disclosure:
        # Where personalised positions are hidden, what is sent for them is noise and nothing else.
        uploaded, nothing = self._zones.noise, Mask.empty(self._size)
        multiplier = self._settings.noise_multiplier
        noisy = multiplier > 0.0
        parts = () if self._settings.hide_personalised else ("positions",)
        return Disclosure(
            self._zones.encrypted,
            uploaded if noisy else nothing,
            nothing if noisy else uploaded,
            parts=("mask",) if self._votes_in_clear else parts,
            buffers="encrypted" if self._shares_buffers else "local",
            # A deviation that follows the data is covered by no proof.
            noise=Noise(multiplier, "client") if noisy and self._clip is None else None,
        )

    def _end_round(self, answer: Message) -> None:
        self._personalised = self._zones.personalised
        self._keep_own_values()

    def _merged_model(self, current: GlobalModel) -> StartingPoint:
        """Own values on the personalised positions, global ones elsewhere (eq. 27)."""
        parameters = current.parameters.copy()
        self._personalised.scatter(self._own_values, parameters)
        return replace(super()._merged_model(current), parameters=parameters)


class SelectiveShieldAggregator(CollectingAggregator):
    """Holds the round's public keys and sums; in a clear negotiation also the clients' masks."""

    changes: ClassVar = {
        "_masks": dict[int, Mask | None],
        "_negotiated": int | None,
        "_encrypted_zone": Mask,
        "_sums": DoubleVector,
        "_vote_counts": NDArray[np.uint32],
        "_added": bytes | None,
    }
    sums = ("_vote_counts", "_added")

    def __init__(self, method: SelectiveShield, context: RoleContext, weights: tuple[int, ...]) -> None:
        super().__init__(context)
        self._size = context.plan.parameters
        self._buffers = context.plan.buffers if method.shares_buffers else 0
        self._settings = method.own
        self._votes_in_clear = "votes" not in context.keys.parameters
        self._masks: dict[int, Mask | None] = {}
        """Masks of clients that have voted, by client number; None for each if votes are encrypted."""
        self._negotiated: int | None = None
        """Round of these masks; None before the first."""
        self._encrypted_zone = Mask.empty(self._size)
        self._ciphertexts: Any = None
        self._votes = Votes(self._size)
        self._sums: DoubleVector = np.zeros(0)

    def check_changed(self) -> None:
        masks, size = self._masks.values(), self._size if self._votes_in_clear else None
        refuse_unless(self._masks.keys() <= set(range(self._clients)))
        refuse_unless(all((None if one is None else one.size) == size for one in masks))
        refuse_unless(self._encrypted_zone.size == self._size)
        refuse_unless(0 <= (self._negotiated or 0) <= self.round)
        refuse_unless(self._sums.size in (0, self._summed) and bool(np.isfinite(self._sums).all()))

    def check_sums(self) -> None:
        super().check_sums()
        seen, updates = self._seen, self._phase == "update"
        refuse_unless(seen <= self._masks.keys() if updates else seen == self._masks.keys())
        refuse_unless(self._sums.size == (self._summed if updates else 0))
        refuse_unless(self._ciphertexts is None or self._ciphertexts.clients == len(seen))

    @property
    def _summed(self) -> int:
        """The number of sums of noised values; they are by rank if personalised positions are hidden."""
        return self._size - (self._encrypted_zone.count if self._settings.hide_personalised else 0)

    @property
    def _vote_counts(self) -> NDArray[np.uint32]:
        return self._votes.counts(self.context.threads)

    @_vote_counts.setter
    def _vote_counts(self, counts: NDArray[np.uint32]) -> None:
        refuse_unless(counts.size == self._size and int(counts.max(initial=0)) <= len(self._seen))
        # As many masks as came, that were chosen as often.
        for least in range(1, len(self._seen) + 1):
            self._votes.add(Mask.from_bool(counts >= least), self.context.threads)

    _added = added_total("_ciphertexts")

    def _begin_phase(self, phase: str, round_number: int, answer: Message | None) -> None:
        """Start from zero; what the negotiation told is kept for the update phase of the round."""
        if phase == "negotiate":
            everything = Mask.full(self._size)
            self._ciphertexts = (
                None if self._votes_in_clear else self._sum_under("votes", round_number, everything)
            )
            self._masks, self._negotiated = {}, round_number
        elif answer is None:
            raise ParameterError("the update phase needs the answer to the negotiation")
        elif self._negotiated != round_number:
            raise PolicyError(
                f"nobody has negotiated what is encrypted in the update phase of round {round_number}"
            )
        else:
            zone = Mask.from_bytes(answer["encrypted zone"], expected_size=self._size)
            positions = encrypted_positions(zone, self._buffers)
            self._ciphertexts = self._sum_under("update", round_number, positions)
            self._encrypted_zone = zone
        self._votes = Votes(self._size)
        self._sums = np.zeros(self._summed if phase == "update" else 0)

    def _add_ciphertexts(self, client: int, frame: Part) -> None:  # all purposes are encrypted by one scheme
        scheme_of(self.context.parameters).add(self._ciphertexts, client, frame, 1, None)

    def _collect(self, phase: str, client: int, message: Message) -> None:
        if phase == "negotiate":
            with self.clock.stage("negotiate"):
                mask = None
                if self._ciphertexts is not None:
                    self._add_ciphertexts(client, message["votes"])
                else:
                    mask = Mask.from_bytes(message["mask"], expected_size=self._size)
                    self._votes.add(mask, self.context.threads)
                self._masks[client] = mask
        elif client in self._masks:
            self._receive_update(client, message)
        else:
            raise PolicyError(f"client {client} sent an update without having negotiated in this round")

    def _receive_update(self, client: int, message: Message) -> None:
        with self.clock.stage("upload"):
            positions = self._positions_of(client, message)
            count = self._summed if positions is None else positions.count
            values = message.vector("values", np.float32, count)
            if not are_summable(values, self._clients):
                raise WireFormatError(
                    "a client's noised values hold NaN, infinity, or numbers that no sum of all clients' has "
                    "room for: they were not added"
                )
        with self.clock.stage("aggregate"):
            # Everything that can be refused has been looked at before the ciphertexts are added.
            self._add_ciphertexts(client, message["ciphertexts"])
            if positions is None:
                self._sums += values
            else:
                positions.scatter_add(values.astype(np.float64), self._sums, self.context.threads)
                self._votes.add(positions, self.context.threads)

    def _positions_of(self, client: int, message: Message) -> Mask | None:
        """Return the positions of the client's noised values; None if they are hidden."""
        if self._settings.hide_personalised:
            return None
        if (mask := self._masks[client]) is not None:
            return split_zones(mask, self._encrypted_zone).noise
        positions = Mask.from_bytes(message["positions"], expected_size=self._size)
        if (positions & self._encrypted_zone).count:
            raise WireFormatError("a client sent values for encrypted positions: they were not added")
        return positions

    def _result(self, phase: str) -> Message:
        if phase == "negotiate":
            with self.clock.stage("negotiate"):
                if self._ciphertexts is not None:
                    return Message({"total": self._ciphertexts.total().to_bytes()})
                zone = self._votes.consensus(self._settings.consensus, self.context.threads)
                return Message({"encrypted zone": zone.to_bytes()})
        with self.clock.stage("aggregate"):
            parts = {"total": self._ciphertexts.total().to_bytes(), "sums": clear_sums_part(self._sums)}
            if self._votes_in_clear:
                parts["encrypted zone"] = self._encrypted_zone.to_bytes()
            if not self._settings.hide_personalised:
                counts = self._votes.counts(self.context.threads)
                # As narrow as the most clients of a round let them be: who opens gets one for each position.
                narrow = np.min_scalar_type(self.context.plan.most_participants)
                parts["contributors"] = counts.astype(narrow).tobytes()
            return Message(parts)


class SelectiveShieldRule(OpeningRule):
    """Tallies of votes say what is encrypted; divided sums move the global model (section 4.5, step 2)."""

    changes: ClassVar = {
        "_model": GlobalModel,
        "_tallies": DoubleVector,
        "_voters": int,
        "_voted_round": int,
        "_encrypted_zone": Mask,
    }

    def __init__(self, method: SelectiveShield, context: RoleContext, initial: GlobalModel) -> None:
        super().__init__(context)
        self._model = self._initial = initial
        self._settings = method.own
        self._votes_in_clear = "votes" not in context.keys.parameters
        self._tallies: DoubleVector = np.zeros(0)
        self._voters = self._voted_round = 0
        self._encrypted_zone = Mask.empty(initial.parameters.size)

    def check_changed(self) -> None:
        size, plan = self._initial.parameters.size, self.context.plan
        refuse_unless(self._encrypted_zone.size == size)
        refuse_unless(0 <= self._voters <= plan.most_participants and 0 <= self._voted_round <= plan.rounds)
        refuse_unless(self._tallies.size in (0, size))
        refuse_unless(bool(((self._tallies >= 0.0) & (self._tallies <= self._voters)).all()))

    def first_model(self) -> Message:
        return self._initial.to_message()

    def keeps(self, model: Message) -> bool:
        return model == self._model.to_message()

    def purposes(self, round_number: int, model: Message) -> tuple[str, ...]:
        return tuple(self.context.keys.parameters)

    def _total(self, phase: str, message: Message) -> SchemeTotal:
        scheme = scheme_of(self.context.keys.parameters["votes" if phase == "negotiate" else "update"])
        total: SchemeTotal = scheme.Total.from_bytes(message["total"])
        return total

    def round_of(self, phase: str, message: Message) -> int:
        return self._total(phase, message).round

    def answer(self, phase: str, message: Message, sums: RoundSums) -> Message:
        total = self._total(phase, message)
        if phase == "negotiate":
            return self._open_votes(total, sums)
        return self._open_update(total, message, sums)

    def _open_votes(self, total: SchemeTotal, sums: RoundSums) -> Message:
        if not total.is_of(Mask.full(self._model.parameters.size)):
            raise WireFormatError("the total does not have one tally for each parameter")
        tallies = sums.open(total)
        if tallies.min(initial=0.0) < 0.0 or tallies.max(initial=0.0) > total.clients:
            raise RangeError("a tally is not between 0 and the number of clients: a vote was forged")
        self._tallies, self._voters, self._voted_round = tallies, total.clients, total.round
        needed = _core.votes_needed(self._settings.consensus, self._voters)
        self._encrypted_zone = Mask.from_bool(self._tallies >= needed)
        return Message({"encrypted zone": self._encrypted_zone.to_bytes()})

    def _open_update(self, total: SchemeTotal, message: Message, opened_sums: RoundSums) -> Message:
        size, buffers = self._model.parameters.size, self._model.buffers.size
        if not self._votes_in_clear and total.round != self._voted_round:
            raise PolicyError(f"the encrypted zone of round {total.round} has not been negotiated")
        zone = self._encrypted_zone
        if self._votes_in_clear:
            zone = Mask.from_bytes(message["encrypted zone"], expected_size=size)
        if not total.is_of(encrypted_positions(zone, buffers)):
            raise WireFormatError("the total's values do not belong to the positions of the encrypted zone")
        # Everything that the aggregator says is looked at before a total is opened.
        sums, contributors = self._noise_zone(message, zone, total.clients)
        if contributors.max(initial=0.0) > total.clients:
            raise WireFormatError("a position has more contributors than there are clients")
        divisors = np.full(size, float(total.clients))
        if self._settings.divisor == "contributors":
            # Nobody contributed: the sum is zero (or hidden clients' noise), and the old value stays.
            divisors = np.where(contributors > 0.0, contributors, np.inf)
        mean = joined(sums / divisors, np.zeros(buffers))
        zone.scatter(np.zeros(zone.count), mean[:size])
        self._model.moved_finite(mean, self.context.plan.server_learning_rate)
        opened = opened_sums.open(total) / total.clients
        zone.scatter(opened[: zone.count], mean[:size])
        mean[size:] = opened[zone.count :] / self.context.buffer_factor
        self._model = self._model.moved_finite(mean, self.context.plan.server_learning_rate)
        self._encrypted_zone = zone
        if self._settings.hide_personalised and total.clients != self._voters:
            opened_sums.note(
                "clients dropped out after voting: the number of contributors was scaled, not counted"
            )
        return self._model.to_message()

    def _noise_zone(self, message: Message, zone: Mask, clients: int) -> tuple[DoubleVector, DoubleVector]:
        """Return sums and number of contributors by position, float64 (P,) each."""
        size = self._model.parameters.size
        if not self._settings.hide_personalised:
            of_clients = np.min_scalar_type(self.context.plan.most_participants).type
            counts = message.vector("contributors", of_clients, size)
            return read_clear_sums(message, "sums", size), counts.astype(np.float64)
        rest = ~zone
        sums = np.zeros(size)
        rest.scatter(read_clear_sums(message, "sums", rest.count), sums)
        contributors = self._voters - self._tallies
        if clients != self._voters:
            # Which of the voters are missing is hidden as well, so their votes cannot be taken back.
            contributors = contributors * (clients / self._voters)
        return sums, contributors


class SelectiveShield(Method):
    """SelectiveShield for one federation.

    A target epsilon is spread over the plan's rounds; ``server_learning_rate`` is eta_g of eq. 26.
    """

    names = (
        NamedMethod(
            "selective-shield",
            "what many hold sensitive encrypted, what few do kept, the rest noised",
            "personal models",
            "Li, Yan, Liu: SelectiveShield, eqs. 11 to 27",
            SelectiveShieldSettings(),
        ),
    )
    privacy_reading = PrivacyReading(
        "client",
        "the aggregator, which sees no model",
        "all updates of a client are zeroed out, K stays",
        "ε counts the noise zone, by the paper's eq. 22 with a noise of σ; ∞ where masks follow from the "
        "data and are readable, and from the first noised upload on that depends on an encrypted zone opened "
        "without noise. Of the noise alone there are two figures: charged is that of σ; that of σ·√K, which "
        "clients add, holds only if the stated number K of participants was true; what opened sums, and with "
        "them the global model, tell is not counted; nor is the floating point of gaussian noise",
    )
    aggregator_sees = "noised values and their positions, every client's mask or the negotiated zone"

    weighs_all_alike = True
    why_alike = " (its eq. 26), whatever their weights"
    schemes = weighing_encryptions()
    averages_all = False
    clients_can_open = True
    own: SelectiveShieldSettings
    client_kind, aggregator_kind = SelectiveShieldClient, SelectiveShieldAggregator
    rule_kind = SelectiveShieldRule
    phases = (Phase("negotiate", answered_by_authority=False), Phase("update", answered_by_authority=True))

    @classmethod
    def why_no_sum_noise(cls, name: str) -> str:
        return (
            "has no noise on sums: who encrypts a position follows from masks of the data, so that a sum may "
            "have the shares of few clients, for whom none is sized, and masks tell of the data without "
            "noise: ε would stay infinite; leave it out, or take full-he or ddp-fedavg"
        )

    def __init__(self, name: str, settings: SelectiveShieldSettings, plan: FederationPlan) -> None:
        if isinstance(settings.threshold, tuple) and len(settings.threshold) != plan.clients:
            raise ParameterError(
                f"there are {len(settings.threshold)} thresholds (tau) for {plan.clients} clients"
            )
        self._target_epsilon = settings.target_epsilon
        if settings.target_epsilon is not None:
            sigma = noise_multiplier_for(settings.target_epsilon, settings.delta, plan.rounds)
            settings = replace(settings, noise_multiplier=sigma, target_epsilon=None)
        if settings.has_discrete_noise:
            _check_grid(settings, plan.most_participants, plan.parameters)
        super().__init__(name, settings, plan)
        self.shares_buffers = settings.buffers == "encrypted"
        self.scores = settings.sensitivity
        self.delta = settings.delta
        encrypted_votes = settings.negotiation == "encrypted"
        if encrypted_votes:
            self.phases = (Phase("negotiate", answered_by_authority=True, opens="votes"), self.phases[1])
            self.notes.append(
                "tallies of votes are opened in every round: where one client more or less takes part in the "
                "next, the difference is its vote at all positions at which the others' votes stay"
            )
        if settings.adaptive_clip and settings.noise_multiplier > 0.0:
            self.notes.append("the clipping norm follows the data, so the stated epsilon is no guarantee")
        if self._target_epsilon is not None:
            self.notes.append(
                "target_epsilon bounds what the noise alone is charged for, not what masks and opened sums "
                "tell besides"
            )
        parameters = {
            "update": update_parameters(
                settings.encryption, plan.most_participants, settings, most_count=plan.update_size
            )
        }
        if encrypted_votes:
            # A vote is 0 or 1: two bits with the sign, several to a coefficient.
            parameters["votes"] = update_parameters(
                settings.encryption, plan.most_participants, FixedPoint(2, 0), count=plan.parameters
            )
        self.purposes = parameters
        self.buffer_factor = settings.buffer_factor

    def noise_deviation(self, training: TrainingSettings, samples: int, participants: int) -> float:
        """Return C sigma sqrt(K) (eq. 21), with the first C if C follows the data."""
        return self.own.clip_norm * self.own.noise_multiplier * math.sqrt(participants)

    def account(self) -> Account:
        """Return an account that charges eq. 22's sigma for every draw, one that is repeated as well."""
        multiplier = self.own.noise_multiplier
        noise = Noise(multiplier, "client") if multiplier > 0.0 else None
        return Account(self.notes, self.delta, per_draw=noise, target_epsilon=self._target_epsilon)

    def settings(self, weights: Sequence[int]) -> dict[str, Any]:
        return asdict(self.own) | {
            "target_epsilon": self._target_epsilon,
            "bytes_per_encrypted_value": self.purposes["update"].bytes_per_value,
        }


def _check_grid(settings: SelectiveShieldSettings, clients: int, size: int) -> None:
    """Refuse settings under which a client could not make its discrete noise, before any round starts."""
    deviation = settings.clip_norm * settings.noise_multiplier
    for participants in (1, clients):
        float32_grid(deviation * math.sqrt(participants))
    # Rounding a vector may add sqrt(P) half steps to its norm, and values are clipped to that much less than
    # C. With 2^20 steps to a deviation of C sigma sqrt(K), this keeps it to half of C.
    if settings.noise_multiplier * math.sqrt(clients * size) > 2.0**20:
        raise ParameterError(
            f"noise_multiplier (sigma) {settings.noise_multiplier:g} is too large for discrete-gaussian "
            f"noise on {size} parameters of {clients} clients: its grid would be too coarse for the clipping "
            "norm"
        )
