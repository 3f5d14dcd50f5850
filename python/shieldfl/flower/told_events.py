"""What clients tell of privacy with their replies, each event once, and the server's account of it."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import msgspec

from shieldfl.errors import ParameterError, WireFormatError
from shieldfl.flower.wire import said
from shieldfl.privacy.book import PrivacyBook, PrivacySpent
from shieldfl.privacy.events import (
    ClearUpload,
    EncryptedUpload,
    Noise,
    NoisedUpload,
    NoiseOfSum,
    NoiseShareUpload,
    PrivacyEvent,
)
from shieldfl.rounds.reports import Account, named, told_of

_Upload = ClearUpload | EncryptedUpload | NoiseShareUpload | NoisedUpload
_Named = list[tuple[str, dict[str, Any]]]
_MOST_IN_A_REPLY = 256
"""What is left comes with the next one."""
_MOST_BYTES = 65_536
_MOST_OF_A_ROUND = 16
"""Of a client: each thing that left it, a few times where its process ended in between."""
_MOST_NOISES = 4
"""Of a client, different ones: each is a computation of its own."""
_NAME = re.compile(r"[a-z][a-z0-9_ -]{0,39}")


@dataclass
class Telling:
    """A client's side, as it is kept: what it has told, and what left it that the server has not written down."""

    first: int = 0
    """How many events came before these."""
    events: _Named = field(default_factory=list)
    round: int = 0
    metrics: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By record, what the app said of its training in that round."""
    ended: int = 0
    """The last round that this client went through, and whose end it has."""
    clear_metrics: int = 0
    """The last round of which it was told that metrics have left."""

    def add(self, *events: PrivacyEvent) -> None:
        self.events += named(events)

    def forget(self, known: int) -> None:
        """Go on after the first ``known`` events of the run; a server that knows fewer gets what is left."""
        if known > self.first + len(self.events):
            raise WireFormatError("the server knows of more than this client has sent")
        dropped = max(known - self.first, 0)
        self.first, self.events = self.first + dropped, self.events[dropped:]

    def values(self) -> dict[str, Any]:
        return {"events": msgspec.msgpack.encode(self.events[:_MOST_IN_A_REPLY]), "events_from": self.first}


class ToldEvents:
    """The server's side: takes each event of each client into the run's account once, in replies that come twice too.

    ``unit`` is whose noise the method adds, ``"client"`` or ``"sample"``; None for a method without.
    """

    def __init__(self, account: Account, unit: str | None, rounds: int) -> None:
        self._account, self._unit, self._rounds = account, unit, rounds
        self.taken: dict[int, int] = {}
        self.kept: dict[int, int] = {}
        """How many of a client's events are on the server's disk, or, without a checkpoint, known to it."""
        self._told: defaultdict[int, list[_Upload]] = defaultdict(list)
        self.silent: dict[int, int] = {}
        """By client, the round that it was last asked in and has told nothing since: it counts as if it had sent what
        others have."""

    def restore(self, kept: Mapping[int, int], clients: Iterable[int], round_number: int) -> None:
        """Go on where the account has so many events of each client, which may have been asked in this round since."""
        self.taken, self.kept = dict(kept), dict(kept)
        for one in self._account.book.all:
            if isinstance(one, _Upload):
                self._told[one.client].append(one)
        if round_number <= self._rounds:
            self.silent = dict.fromkeys(clients, round_number)

    def take(self, client: int, told: Mapping[str, Any]) -> None:
        first = said(told, "events-from", Annotated[int, msgspec.Meta(ge=0, lt=2**32)])
        events = _decoded(said(told, "events", bytes))
        if any(one.client != client for one in events):
            raise WireFormatError("it tells of what another client has sent")
        taken = self.taken.get(client, 0)
        new = events[max(taken - first, 0) :]
        self._check(client, new)
        if first > taken:
            # An older checkpoint is gone on with: the client has given up what a newer one had.
            self._account.book.add(ClearUpload(1, client, "what an older checkpoint does not tell"))
        for one in new:
            self._account.book.add(one)
        self._told[client] += new
        self.taken[client] = max(taken, first + len(events))
        if len(events) < _MOST_IN_A_REPLY:
            self.silent.pop(client, None)

    def _check(self, client: int, new: list[_Upload]) -> None:
        every = [*self._told[client], *new]
        noises = {one.noise for one in every if not isinstance(one, ClearUpload)} - {None}
        of_round = Counter(one.round for one in every)
        if (
            any(noise.unit != self._unit or not _is_sane(noise) for noise in noises if noise is not None)
            or len(noises) > _MOST_NOISES
            or any(not 1 <= one.round <= self._rounds for one in new)
            or max(of_round.values(), default=0) > _MOST_OF_A_ROUND
            or any(not _NAME.fullmatch(getattr(one, "what", "values")) for one in new)
        ):
            raise WireFormatError("what it says to have left it is nothing that this run's method sends")

    def spent(self) -> PrivacySpent:
        silent = sorted(self.silent.items())
        assumed = [one for client, number in silent for one in self._assumed(client, number)]
        return PrivacyBook([*self._account.book.all, *assumed]).spent(self._account.delta)

    def _assumed(self, client: int, round_number: int) -> list[_Upload]:
        """Return what a silent client may have sent: all that any other one has told of the newest round before."""
        told = [one for other in self._told.keys() - {client} for one in self._told[other]]
        uploads = [one for one in told if one.round <= round_number]
        newest = max((one.round for one in uploads), default=0)
        alike = {replace(one, client=client, round=round_number) for one in uploads if one.round == newest}
        return sorted(alike, key=repr)

    def keep(self) -> None:
        """Take note that all of :attr:`taken` was written down: clients need not tell it again."""
        self.kept = dict(self.taken)


def _decoded(data: bytes) -> list[_Upload]:
    try:
        if len(data) > _MOST_BYTES:
            raise WireFormatError("it tells more than fits into a reply")
        events = told_of(msgspec.msgpack.decode(data, type=_Named))
    except (msgspec.MsgspecError, RecursionError, ParameterError) as error:
        raise WireFormatError("what it says to have left it cannot be read") from error
    found = [one for one in events if isinstance(one, _Upload)]
    if len(found) < len(events) or len(found) > _MOST_IN_A_REPLY:
        raise WireFormatError("it tells of what no client sends")
    return found


def _is_sane(noise: Noise | NoiseOfSum) -> bool:
    """Say whether a noise is one that somebody could have meant: of others a figure could not be computed."""
    if isinstance(noise, NoiseOfSum):
        sizes = (noise.honest_clients, noise.share_variance, noise.norm_bound_squared, noise.dimension)
        return max(sizes) < 2**63 and noise.log2_distance > -1000.0
    return 1e-6 <= noise.multiplier <= 1e6 and noise.sample_rate >= 1e-9 and noise.steps <= 10**9
