"""What clients tell of privacy with their replies, each event once, and the server's account of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from shieldfl.errors import ParameterError, WireFormatError
from shieldfl.methods.protocol.account import Account
from shieldfl.methods.protocol.account_state import AccountState
from shieldfl.privacy.events import ClearUpload, EncryptedUpload, NoisedUpload, PrivacyEvent

__all__ = ["ToldEvents", "UntoldEvents"]

_Named = list[tuple[str, Any]]
_OF_CLIENTS = (ClearUpload, EncryptedUpload, NoisedUpload)


@dataclass(frozen=True)
class UntoldEvents:
    """A client's side: what has left it, and the server is not known to have written down."""

    first: int = 0
    """How many came before these."""
    events: _Named = field(default_factory=list)
    """Each after the name of its kind, in their order."""

    def and_(self, events: Iterable[PrivacyEvent]) -> UntoldEvents:
        """Return these and others."""
        return UntoldEvents(self.first, [*self.events, *AccountState.named(events)])

    def after(self, known: int) -> UntoldEvents:
        """Return those after the first ``known`` of the run; a server that knows fewer than it did gets what is left.

        Raises WireFormatError for more than there were.
        """
        if known > self.first + len(self.events):
            raise WireFormatError("the server knows of more than this client has sent")
        dropped = max(known - self.first, 0)
        return UntoldEvents(self.first + dropped, self.events[dropped:])

    def values(self) -> dict[str, Any]:
        """Return what a reply's record says."""
        return {"events": msgspec.msgpack.encode(self.events), "events_from": self.first}


class ToldEvents:
    """The server's side: takes each event of each client into the run's account once, in replies that come twice too.

    Parameters
    ----------
    account : of the run.
    """

    def __init__(self, account: Account) -> None:
        self._account = account
        self._taken: dict[int, int] = {}
        self._kept: dict[int, int] = {}

    def restore(self, kept: Mapping[int, int]) -> None:
        """Go on where the account has so many events of each client."""
        self._taken, self._kept = dict(kept), dict(kept)

    def take(self, client: int, told: Mapping[str, Any]) -> None:
        """Take what a client's reply tells. Raises WireFormatError for what no client has to tell."""
        first, data = told.get("events-from"), told.get("events")
        if not isinstance(first, int) or not isinstance(data, bytes) or first < 0:
            raise WireFormatError("it does not say what has left it")
        try:
            named = msgspec.msgpack.decode(data, type=_Named)
        except msgspec.MsgspecError as error:
            raise WireFormatError("what it says to have left it cannot be read") from error
        events = AccountState.events_of(named)
        if any(not isinstance(one, _OF_CLIENTS) or one.client != client for one in events):
            raise WireFormatError("it tells of what no client, or another one, has sent")
        taken = self._taken.get(client, 0)
        if first > taken:
            # An older checkpoint is gone on with: the client has given up what a newer one had.
            self._account.book.add(ClearUpload(1, client, "what an older checkpoint does not tell"))
            taken = first
        for one in events[taken - first :]:
            try:
                self._account.book.add(one)
            except ParameterError as error:
                raise WireFormatError(
                    f"what it says to have left it does not fit the run ({error})"
                ) from error
            taken += 1
            self._taken[client] = taken
        self._taken[client] = max(taken, first + len(events))

    def kept_of(self, client: int) -> int:
        """Return how many of a client's events are on the server's disk, or, without a checkpoint, known to it."""
        return self._kept.get(client, 0)

    def taken(self) -> dict[int, int]:
        """Return by client how many of its events the account has."""
        return dict(self._taken)

    def keep(self) -> None:
        """Take note that all of that was written down: clients need not tell it again."""
        self._kept = dict(self._taken)
