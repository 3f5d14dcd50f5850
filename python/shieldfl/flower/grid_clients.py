"""How a round's driver reaches its clients over Flower."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from logging import INFO, WARNING
from typing import Any

from flwr.app import Message, MessageType, MetricRecord, RecordDict
from flwr.supercore import log

from shieldfl.errors import RangeError, ShieldError
from shieldfl.flower.participants import Participants
from shieldfl.flower.told_events import ToldEvents
from shieldfl.flower.wire import ASK, NO_SHIELD, Kind, asked_of, bytes_in, packed
from shieldfl.methods.protocol.global_model import GlobalModel
from shieldfl.roles.message import Message as RoleMessage

__all__ = ["GridClients"]

_MessageOf = Callable[[int], RoleMessage]
_RANGE_ERROR = "RangeError: "


class GridClients:
    """Sends a round's messages; what ends a round for a client travels with the next message to it.

    Every exchange takes seconds in a deployment, so the first message has the client train and make the first phase's.

    Parameters
    ----------
    participants : the run's clients.
    missed : returns the ends of rounds that a client was not sent; or, where it is told that a message may not have
        come, all that the client is not known to have.
    told : takes what clients tell of privacy.
    clients_open : whether clients open sums; else the next message with a model brings what a round came to.
    """

    def __init__(
        self,
        participants: Participants,
        missed: Callable[[int, bool], RoleMessage],
        told: ToldEvents,
        *,
        clients_open: bool,
    ) -> None:
        self._clients_open = clients_open
        self.participants = participants
        self.told = told
        self._missed = missed
        self.app_records: Mapping[int, RecordDict] = {}
        """By client, what the app's own strategy sends beside arrays."""
        self.asked: dict[str, Any] = {}
        """What the round's first message says beside."""
        self.trained: dict[int, dict[str, MetricRecord]] = {}
        """By client, what the app said of its training in the round that runs."""
        self.failures: dict[int, str] = {}
        """By client, why it left that round."""
        self.ends: dict[int, tuple[int, RoleMessage]] = {}
        """By client, the last round that it went through and is not known to have the end of, and that."""
        self._unsure: set[int] = set()
        self._round = 0
        self._first: dict[int, RoleMessage] = {}
        self._participants = 0
        self._packed: dict[int, tuple[RoleMessage, Any]] = {}
        """Messages of the exchange that is prepared, by their identity, and their records."""

    def begin_round(
        self, clients: Sequence[int], round_number: int, participants: int, message_of: _MessageOf
    ) -> None:
        """Keep the first messages: they are sent with the first phase."""
        self._round, self._participants = round_number, participants
        self._first = {index: message_of(index) for index in clients}
        self.trained, self.failures = {}, {}

    def step(
        self, clients: Sequence[int], phase: str, message_of: _MessageOf | None
    ) -> Iterator[tuple[int, bytes | RangeError]]:
        """Have each client make a phase's message; yield them by the clients' numbers, so that sums are repeatable."""
        if message_of is None:
            contents = {index: self._first_content(index, phase) for index in clients}
            self._first = {}
        else:
            contents = {
                index: self._content(index, Kind.PHASE, message_of(index), round=self._round, phase=phase)
                for index in clients
            }
        log(INFO, "shieldfl: round %s: %s clients are asked for phase %r", self._round, len(contents), phase)
        replies = self.asked_all(contents, f"round {self._round}")
        for index in sorted(clients):
            if index not in replies:
                reason = self.failures.get(index, "")
                if reason.startswith(_RANGE_ERROR):
                    yield index, RangeError(reason.removeprefix(_RANGE_ERROR))
                continue
            reply = replies[index]
            if message_of is None:
                self.trained[index] = dict(reply.content.metric_records.items())
            # Whoever reads it refuses what cannot be read, of this client alone.
            yield index, bytes_in(reply.content) or b""

    def end_round(self, clients: Sequence[int], message_of: _MessageOf) -> None:
        """Keep the round's end, for the next message to each client: the model of it, where clients open none, not."""
        for index in clients:
            end = message_of(index)
            if not self._clients_open:
                end = RoleMessage({name: part for name, part in end.items() if name not in GlobalModel.parts})
            self.ends[index] = self._round, end

    def _first_content(self, index: int, phase: str) -> RecordDict:
        return self.content(
            index,
            Kind.TRAIN,
            self._first[index],
            phase=phase,
            round=self._round,
            participants=self._participants,
        )

    def content(self, index: int, kind: Kind, message: RoleMessage | None, **values: Any) -> RecordDict:
        """Return a message for a client with all that it is not known to have, and the app's own records."""
        parts: dict[str, Any] = dict(self.app_records.get(index, {}).items())
        ended, end = self.ends.get(index, (0, None))
        if end is not None:
            parts["shieldfl.end"] = self._record_of(end)
        is_unsure = index in self._unsure
        # A round's first message itself brings what the client was not sent.
        if is_unsure or kind != Kind.TRAIN:
            missed = self._missed(index, is_unsure)
            if missed:
                parts["shieldfl.missed"] = packed(missed)
        return self._content(index, kind, message, parts, ended=ended, **self.asked, **values)

    def _content(
        self,
        index: int,
        kind: Kind,
        message: RoleMessage | None,
        parts: Mapping[str, Any] | None = None,
        **values: Any,
    ) -> RecordDict:
        short = None if message is None else self.participants.models.short(index, message)
        record = None if short is None else self._record_of(short)
        return self.participants.content(
            index, kind, record, parts, events_known=self.told.kept_of(index), **values
        )

    def _record_of(self, message: RoleMessage) -> Any:
        """Pack a message, once for all clients that get the same in an exchange."""
        if id(message) not in self._packed:
            self._packed[id(message)] = message, packed(message)
        return self._packed[id(message)][1]

    def hear_again(self) -> None:
        """Send every client, with its next message, all that it is not known to have."""
        self._unsure = set(self.participants.by_index)

    def asked_all(
        self, contents: Mapping[int, RecordDict], group: str, kind: str = MessageType.TRAIN
    ) -> dict[int, Message]:
        """Send to clients; return their replies, and note who failed. Each failure is logged, with its reason."""
        self._packed = {}
        self.participants.models.end_exchange()
        by_index, index_of = self.participants.by_index, self.participants.by_node
        kinds = {index: content[ASK]["kind"] for index, content in contents.items()}
        for index, one in kinds.items():
            if one in (Kind.TRAIN, Kind.PHASE):
                self.told.asked(index, self._round)
        found: dict[int, Message] = {}
        for reply in self.participants.exchange.ask(
            {by_index[index].node: content for index, content in contents.items()}, group, kind
        ):
            index = index_of.get(reply.metadata.src_node_id, -1)
            if index not in contents:
                continue
            if reply.has_error():
                self.failures[index] = reason = reply.error.reason or "it failed"
                # ShieldMod brings the app its arrays.
                if "KeyError" in reason and repr(self.asked.get("arrays")) in reason:
                    self.failures[index] = f"{reason}. {NO_SHIELD}"
                continue
            try:
                bytes_in(reply.content)
                self.participants.note(index, reply)
                self.told.take(index, asked_of(reply.content))
            except (ShieldError, KeyError, TypeError, ValueError) as error:
                self.failures[index] = f"its reply cannot be read ({error})"
                continue
            found[index] = reply
        for index in contents:
            if index not in found:
                reason = self.failures.setdefault(index, "it has not answered in time")
                self._unsure.add(index)
                self.participants.models.lost(index)
                log(WARNING, "shieldfl: client %s left %s: %s", index, group, reason)
            elif kinds[index] != Kind.PHASE:
                self._unsure.discard(index)
                self.ends.pop(index, None)
                if kinds[index] == Kind.MODEL:
                    self.participants.models.kept(index)
        return found
