"""SelectiveShield, the aggregator: counts votes, adds ciphertexts and noised values (its section 4.5)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shieldfl.errors import ParameterError, PolicyError, WireFormatError
from shieldfl.masks import Mask, Votes, split_zones
from shieldfl.methods.encrypted_sum.clear_sums import are_summable, clear_sums_part
from shieldfl.methods.encrypted_sum.mixed_upload import encrypted_positions
from shieldfl.methods.protocol.collecting_aggregator import CollectingAggregator
from shieldfl.methods.protocol.role_context import RoleContext
from shieldfl.methods.selective_shield.settings import SelectiveShieldSettings
from shieldfl.roles.message import Message, Part
from shieldfl.scheme.interface import UnionMask
from shieldfl.scheme.registry import scheme_of
from shieldfl.stateful import refuse_unless

__all__ = ["SelectiveShieldAggregator"]


class SelectiveShieldAggregator(CollectingAggregator):
    """Holds the round's public keys and sums; in a clear negotiation also the clients' masks.

    Parameters
    ----------
    context : what all roles of the federation know.
    buffers : how many buffer values are averaged in the encrypted zone.
    settings : the method's settings.
    """

    changes: ClassVar = {
        "_masks": dict[int, Mask],
        "_voters": set[int],
        "_negotiated": int | None,
        "_encrypted_zone": Mask,
        "_sums": NDArray[np.float64] | None,
        "_vote_counts": NDArray[np.uint32],
        "_added": bytes | None,
    }
    sums = ("_vote_counts", "_added")

    def __init__(self, context: RoleContext, buffers: int, settings: SelectiveShieldSettings) -> None:
        super().__init__(context)
        self._size = context.plan.parameters
        self._buffers = buffers
        self._settings = settings
        self._votes_in_clear = "votes" not in context.keys.parameters
        self._threads = context.threads
        self._masks: dict[int, Mask] = {}
        self._voters: set[int] = set()
        self._negotiated: int | None = None
        """The round of these masks and voters."""
        self._encrypted_zone = Mask.empty(self._size)
        self._ciphertexts: Any = None
        self._begin_sums()

    def check_changed(self) -> None:
        """Raise WireFormatError for masks, sums or votes of other sizes, rounds or clients than the plan's."""
        super().check_changed()
        clients = set(range(self._clients))
        refuse_unless(self._voters <= clients)
        refuse_unless(self._masks.keys() == (self._voters if self._votes_in_clear else set()))
        refuse_unless(all(one.size == self._size for one in (self._encrypted_zone, *self._masks.values())))
        refuse_unless(0 <= (self._negotiated or 0) <= self.round)
        if self._sums is not None:
            hidden_count = self._size - self._encrypted_zone.count
            refuse_unless(
                self._sums.size == (hidden_count if self._settings.hide_personalised else self._size)
            )
            refuse_unless(bool(np.isfinite(self._sums).all()))

    def check_sums(self) -> None:
        """Raise WireFormatError for ciphertexts, values or voters of other clients than were heard."""
        super().check_sums()
        seen = self._seen
        if self._phase == "update":
            refuse_unless(seen <= self._voters and (self._sums is None) == (not seen))
        else:
            refuse_unless(seen == self._voters and self._sums is None)
        refuse_unless(self._ciphertexts is None or self._ciphertexts.clients == len(seen))

    @property
    def _vote_counts(self) -> NDArray[np.uint32]:
        return self._votes.counts(self._threads)

    @_vote_counts.setter
    def _vote_counts(self, counts: NDArray[np.uint32]) -> None:
        refuse_unless(counts.size == self._size and int(counts.max(initial=0)) <= len(self._seen))
        # As many masks as came, that were chosen as often.
        for least in range(1, len(self._seen) + 1):
            self._votes.add(Mask.from_bool(counts >= least), self._threads)

    @property
    def _added(self) -> bytes | None:
        if self._ciphertexts is None or not self._ciphertexts.clients:
            return None
        return bytes(self._ciphertexts.total().to_bytes())

    @_added.setter
    def _added(self, total: bytes | None) -> None:
        if total is not None and self._ciphertexts is not None:
            self._ciphertexts.add_total(total)

    def _begin_phase(self, phase: str, round_number: int, answer: Message | None) -> None:
        """Start from zero; what the negotiation told is kept for the update phase of the round."""
        if phase == "negotiate":
            everything = Mask.full(self._size)
            self._ciphertexts = (
                None if self._votes_in_clear else self._sum_under("votes", round_number, everything)
            )
            self._masks = {}
            self._voters = set()
            self._negotiated = round_number
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
        self._begin_sums()

    def _begin_sums(self) -> None:
        self._votes = Votes(self._size)
        # By position; or, where personalised positions are hidden, by rank among those that are not encrypted.
        self._sums: NDArray[np.float64] | None = None

    def _sum_under(self, purpose: str, round_number: int, positions: Mask) -> Any:
        key = self._round_key(round_number, purpose)
        return scheme_of(key).aggregator(
            key, self._threads, round_number, UnionMask(positions), weighted=False, purpose=purpose
        )

    def _add_ciphertexts(self, client: int, frame: Part) -> None:
        # All purposes are encrypted by one scheme.
        scheme_of(self.context.parameters).add(self._ciphertexts, client, frame, 1, None)

    def _collect(self, phase: str, client: int, message: Message) -> None:
        if phase == "negotiate":
            with self.clock.stage("negotiate"):
                self._receive_vote(client, message)
            self._voters.add(client)
        elif client in self._voters:
            self._receive_update(client, message)
        else:
            raise PolicyError(f"client {client} sent an update without having negotiated in this round")

    def _receive_vote(self, client: int, message: Message) -> None:
        if self._ciphertexts is not None:
            self._add_ciphertexts(client, message["votes"])
            return
        mask = Mask.from_bytes(message["mask"], expected_size=self._size)
        self._votes.add(mask, self._threads)
        self._masks[client] = mask

    def _receive_update(self, client: int, message: Message) -> None:
        with self.clock.stage("upload"):
            positions = self._positions_of(client, message)
            values = self._values_of(message, positions)
        with self.clock.stage("aggregate"):
            assert self._ciphertexts is not None
            # Everything that can be refused has been looked at before the ciphertexts are added.
            self._add_ciphertexts(client, message["ciphertexts"])
            if self._sums is None:
                self._sums = np.zeros(self._size if positions is not None else values.size)
            if positions is None:
                self._sums += values
            else:
                positions.scatter_add(values.astype(np.float64), self._sums, self._threads)
                self._votes.add(positions, self._threads)

    def _positions_of(self, client: int, message: Message) -> Mask | None:
        """Return where the client's noised values belong; None where that is hidden."""
        if self._settings.hide_personalised:
            return None
        if not self._votes_in_clear:
            positions = Mask.from_bytes(message["positions"], expected_size=self._size)
            if (positions & self._encrypted_zone).count:
                raise WireFormatError("a client sent values for encrypted positions: they were not added")
            return positions
        return split_zones(self._masks[client], self._encrypted_zone).noise

    def _values_of(self, message: Message, positions: Mask | None) -> NDArray[np.float32]:
        # Hidden: the client sends a value for each position that is not encrypted.
        hidden_count = self._size - self._encrypted_zone.count
        values = message.vector("values", np.float32, hidden_count if positions is None else positions.count)
        if not are_summable(values, self._clients):
            raise WireFormatError(
                "a client's noised values hold NaN, infinity, or numbers that no sum of all clients' has room for: "
                "they were not added"
            )
        return values

    def _result(self, phase: str) -> Message:
        """Return the encrypted zone (clear negotiation), or the sums for the key authority."""
        if phase == "negotiate":
            with self.clock.stage("negotiate"):
                return self._close_negotiation()
        with self.clock.stage("aggregate"):
            assert self._ciphertexts is not None
            parts = {
                "total": self._ciphertexts.total().to_bytes(),
                "sums": clear_sums_part(np.zeros(0) if self._sums is None else self._sums),
            }
            if self._votes_in_clear:
                parts["encrypted zone"] = self._encrypted_zone.to_bytes()
            if not self._settings.hide_personalised:
                counts = self._votes.counts(self._threads)
                # As narrow as the most clients of a round let them be: who opens gets one for each position.
                parts["contributors"] = counts.astype(
                    np.min_scalar_type(self.context.plan.most_participants)
                ).tobytes()
            return Message(parts)

    def _close_negotiation(self) -> Message:
        if self._ciphertexts is not None:
            return Message({"total": self._ciphertexts.total().to_bytes()})
        zone = self._votes.consensus(self._settings.consensus, self._threads)
        return Message({"encrypted zone": zone.to_bytes()})
