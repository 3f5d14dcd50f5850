"""The clients of a run: which node each is, and how a round's driver reaches it over Flower's grid."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from logging import INFO, WARNING
from typing import Any

from flwr.app import Error, Message, MessageType, MetricRecord, RecordDict
from flwr.common.constant import ErrorCode
from flwr.common.serde import recorddict_to_proto
from flwr.serverapp import Grid
from flwr.supercore import log

import shieldfl
from shieldfl import errors
from shieldfl.authority.message import Message as RoleMessage
from shieldfl.authority.round_key_check import digest_of_parts
from shieldfl.errors import PolicyError, RangeError, ShieldError
from shieldfl.flower.told_events import ToldEvents
from shieldfl.flower.wire import (
    ASK,
    HELD,
    MESSAGE,
    NO_SHIELD,
    Kind,
    Number,
    Position,
    ask,
    asked_of,
    bytes_in,
    message_in,
    model_parts,
    packed,
    said,
)
from shieldfl.rounds.global_model import GlobalModel
from shieldfl.rounds.plan import FederationPlan

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0
_TELLS_EVERY_SECONDS = 10.0
_RANGE_ERROR = "RangeError: "
_MessageOf = Callable[[int], RoleMessage]
_Read = Callable[[int, Message], None]


class Exchange:
    """Sends to nodes and waits for those that answer; looks more often than ``Grid.send_and_receive``, every 3 s.

    ``timeout_seconds`` is how long a message and its reply are waited for; after that it is not delivered any more.
    """

    def __init__(self, grid: Grid, timeout_seconds: float) -> None:
        self._grid = grid
        self._timeout = timeout_seconds
        self._told = (0, 0)
        self.bytes_up = self.bytes_down = 0
        """Of all messages' contents, as Flower encodes them."""

    def ask(
        self, contents: Mapping[int, RecordDict], group: str, kind: str = MessageType.TRAIN
    ) -> Sequence[Message]:
        """Return the replies, errors among them, one for a node at most."""
        messages = [
            Message(one, node, kind, ttl=self._timeout, group_id=group) for node, one in contents.items()
        ]
        self.bytes_down += sum(map(_bytes_of, messages))
        waiting = {one for one in self._grid.push_messages(messages) if one}
        del messages
        replies: dict[Any, Message] = {}
        until, pause = time.monotonic() + self._timeout, _SHORTEST_PAUSE
        while waiting and time.monotonic() < until:
            found = list(self._grid.pull_messages(waiting))
            for reply in found:
                waiting.discard(reply.metadata.reply_to_message_id)
                replies.setdefault(reply.metadata.reply_to_message_id, reply)
                self.bytes_up += _bytes_of(reply)
            if waiting and not found:
                time.sleep(pause)
                pause = min(_LONGEST_PAUSE, 1.3 * pause)
        return list(replies.values())

    def bytes_moved(self) -> str:
        (up, down), self._told = self._told, (self.bytes_up, self.bytes_down)
        return f"{self.bytes_up - up:,} bytes up, {self.bytes_down - down:,} bytes down"

    def nodes(self, count: int) -> list[int]:
        began, told = time.monotonic(), 0
        while len(found := list(self._grid.get_node_ids())) < count:
            waited = time.monotonic() - began
            missing = f"{len(found)} of {count} nodes are there"
            start = f'in a simulation by flwr run --federation-config "num-supernodes={count}"'
            remedy = f"start the others, {start}, or set shieldfl.clients to fewer"
            if waited > self._timeout:
                raise TimeoutError(f"{missing} after {self._timeout:.0f} s: {remedy}")
            if waited >= told * _TELLS_EVERY_SECONDS:
                told += 1
                log(INFO, "shieldfl: %s, and the run waits for all: %s", missing, remedy)
            time.sleep(min(1.0, self._timeout / 10))
        return sorted(found)


def _is_shields(error: Error) -> bool:
    """Say whether a reply's error is ShieldMod's or Flower's: else the app or another mod was called in its place."""
    kind = getattr(errors, (error.reason or "").partition(":")[0], None)
    is_apps = error.code in (ErrorCode.CLIENT_APP_RAISED_EXCEPTION, ErrorCode.MOD_FAILED_PRECONDITION)
    return not is_apps or (isinstance(kind, type) and issubclass(kind, errors.ShieldError))


def _bytes_of(message: Message) -> int:
    return 0 if message.has_error() else int(recorddict_to_proto(message.content).ByteSize())


@dataclass
class Participant:
    node: int
    samples: int | None = None
    writes_model: bool = False
    position: Position = (0, 0)
    """How far its store is known to have come: an older copy of it is refused, by the node itself."""
    grant: RoleMessage | None = None
    """What lets it open sums, until it is known to have it."""
    # Digests: of the model that it keeps, which it evaluated last or began with, and of that which it was sent last.
    held: bytes = b""
    sent: bytes = b""


@dataclass
class Participants:
    """The clients of a run, by their numbers.

    ``session`` is the public set-up's, empty before there is one; ``store`` the folder that simulated nodes keep their
    stores in. Where a run is gone on with, ``nodes`` and ``reached`` say which node each client was, and how far its
    store had come.
    """

    exchange: Exchange
    session: bytes = b""
    store: str = ""
    nodes: Mapping[int, int] = field(default_factory=dict)
    reached: Mapping[int, Position] = field(default_factory=dict)
    by_index: dict[int, Participant] = field(default_factory=dict)
    # Of the exchange that is prepared, by the identity of messages: themselves, and what is made of each once.
    _shorts: dict[int, tuple[RoleMessage, bytes, RoleMessage]] = field(default_factory=dict)
    _records: dict[int, tuple[RoleMessage, Any]] = field(default_factory=dict)

    def find(self, clients: int) -> None:
        """Ask all nodes who they are, and number so many of them; where there is a session, as they took part in it.

        Numbers are the nodes' ``partition-id`` where each has one of its own below ``clients``; else they follow the
        order of Flower's node ids. Nodes whose answer cannot be read, or with another version of shieldfl, are left
        out. Raises PolicyError for too few.
        """
        nodes = self.exchange.nodes(clients)
        content = RecordDict({ASK: ask(Kind.HELLO, session=self.session, store=self.store)})
        told: dict[int, dict[str, Any]] = {}
        refused, advice = [], ""
        for reply in self.exchange.ask(dict.fromkeys(nodes, content), "set-up"):
            node = reply.metadata.src_node_id
            if reply.has_error():
                refused.append(f"node {node}: {reply.error.reason}")
                advice = advice if _is_shields(reply.error) else f". {NO_SHIELD}"
                continue
            try:
                told[node] = _checked_hello(reply)
            except ShieldError as error:
                refused.append(f"node {node}: {error}")
        numbered = self._numbered(told, clients)
        if len(numbered) < clients:
            for reason in refused:
                log(WARNING, "shieldfl: %s", reason)
            reasons = "; ".join(refused) or "others do not answer"
            raise PolicyError(f"{len(numbered)} of {clients} clients can take part: {reasons}{advice}")
        for index, node in sorted(numbered.items()):
            one = told[node]
            samples = None if one["samples"] < 0 else one["samples"]
            position = max(one["position"], self.reached.get(index, (0, 0)))
            self.by_index[index] = Participant(node, samples, one["writes-model"], position)

    def _numbered(self, told: Mapping[int, Mapping[str, Any]], clients: int) -> dict[int, int]:
        if self.session:
            claimed = {(one["index"], node) for node, one in told.items() if 0 <= one["index"] < clients}
            # Of several that say they are one client, the node that it was: anybody can say so.
            return dict(sorted(claimed, reverse=True)) | dict(self.nodes.items() & claimed)
        by_partition = {one["partition-id"]: node for node, one in told.items()}
        if len(by_partition) == len(told) and set(range(clients)) <= set(by_partition):
            return {index: by_partition[index] for index in range(clients)}
        return dict(enumerate(sorted(told)[:clients]))

    def count(self, model: RoleMessage, layout: str, arrays: str, records: Mapping[int, RecordDict]) -> None:
        """Have those that do not say how many samples they have train from the first model, and say it.

        ``arrays`` names the model's record for the app. ``records`` are, by node, what the app's strategy sends beside
        it in round 1; a node that is not in that round gets what another one does.
        """
        silent = {index: one for index, one in self.by_index.items() if one.samples is None}
        told = "shieldfl: %s clients train to count their samples: ShieldMod(samples=...) saves it"
        log(INFO, told, len(silent))
        others, contents = next(iter(records.values()), RecordDict()), {}
        for index, one in silent.items():
            parts = dict(records.get(one.node, others).items())
            values: dict[str, Any] = {"index": index, "layout": layout, "arrays": arrays}
            contents[index] = self.content(index, Kind.COUNT, model, parts, **values)

        def read(index: int, reply: Message) -> None:
            silent[index].samples = said(asked_of(reply.content), "samples", Number)
            silent[index].held = silent[index].sent

        self._ask_each(contents, "count of samples", read)

    def set_up(
        self, signed: RoleMessage, model: RoleMessage, layout: str, weights: list[int]
    ) -> dict[int, RoleMessage]:
        brought, contents, found = RoleMessage({**signed, **model}), {}, dict[int, RoleMessage]()
        for index in self.by_index:
            values: dict[str, Any] = {"index": index, "weight": weights[index], "layout": layout}
            contents[index] = self.content(index, Kind.SET_UP, brought, **values)

        def read(index: int, reply: Message) -> None:
            self.note(index, reply)
            found[index] = message_in(reply.content) or RoleMessage()
            self.by_index[index].held = self.by_index[index].sent

        self._ask_each(contents, "set-up", read)
        return found

    def _ask_each(self, contents: Mapping[int, RecordDict], group: str, read: _Read) -> None:
        _, reasons = self.ask(contents, group, read)
        if reasons:
            refused = "; ".join(f"client {index}: {why}" for index, why in sorted(reasons.items()))
            raise PolicyError(f"the run does not begin: {refused}")

    def content(
        self,
        client: int,
        /,
        kind: Kind,
        message: RoleMessage | None = None,
        parts: Mapping[str, Any] | None = None,
        **values: Any,
    ) -> RecordDict:
        one = self.by_index[client]
        asked = ask(kind, session=self.session, position=list(one.position), store=self.store, **values)
        content = RecordDict({ASK: asked, **(parts or {})})
        if message is not None:
            content[MESSAGE] = self.record_of(self._short(one, message))
        if one.grant is not None:
            content["shieldfl.grant"] = packed(one.grant)
        return content

    def record_of(self, message: RoleMessage) -> Any:
        if id(message) not in self._records:
            self._records[id(message)] = message, packed(message)
        return self._records[id(message)][1]

    def _short(self, one: Participant, message: RoleMessage) -> RoleMessage:
        """Return what stands for a message at a client that has its model: one object for all in an exchange."""
        if id(message) not in self._shorts:
            model = model_parts(message)
            if model is None:
                return message
            rest = {name: part for name, part in message.items() if name not in model}
            digest = digest_of_parts(model)
            self._shorts[id(message)] = message, digest, RoleMessage({**rest, HELD: digest})
        _, one.sent, short = self._shorts[id(message)]
        return short if one.held == one.sent else message

    def ask(
        self, contents: Mapping[int, RecordDict], group: str, read: _Read, kind: str = MessageType.TRAIN
    ) -> tuple[dict[int, Message], dict[int, str]]:
        """Send to clients and have each reply read; return those, and why others gave none that can be read."""
        self._shorts, self._records = {}, {}
        index_of, found, refused = self.by_node, dict[int, Message](), dict[int, str]()
        by_node = {self.by_index[index].node: content for index, content in contents.items()}
        for reply in self.exchange.ask(by_node, group, kind):
            index = index_of.get(reply.metadata.src_node_id, -1)
            if index in contents and reply.has_error():
                refused[index] = reply.error.reason or "it failed"
            elif index in contents:
                try:
                    read(index, reply)
                    found[index] = reply
                except (ShieldError, KeyError, TypeError, ValueError) as error:
                    refused[index] = f"its reply cannot be read ({error})"
        silent = contents.keys() - found.keys() - refused.keys()
        return found, refused | dict.fromkeys(silent, "it has not answered in time")

    def note(self, index: int, reply: Message) -> None:
        one, told = self.by_index[index], asked_of(reply.content)
        one.position = max(one.position, said(told, "position", Position))
        if told["kind"] != Kind.SET_UP:
            one.grant = None

    @property
    def by_node(self) -> dict[int, int]:
        return {one.node: index for index, one in self.by_index.items()}


def check_sample(nodes: int, plan: FederationPlan) -> None:
    least, most = plan.min_clients, plan.most_participants
    if nodes < least:
        raise PolicyError(
            f"{nodes} nodes are chosen for a round, and min_clients is {least}: no sum of fewer is opened. Give the "
            f"app's strategy min_train_nodes={least}, or a larger fraction_train"
        )
    if nodes > most:
        raise PolicyError(
            f"{nodes} nodes are chosen for a round, and max_clients is {most}: raise shieldfl.max-clients, or give the "
            "app's strategy a smaller fraction_train"
        )


def _checked_hello(reply: Message) -> dict[str, Any]:
    told = asked_of(reply.content)
    kinds = {"index": int, "partition-id": int, "samples": int, "position": Position, "writes-model": bool}
    found = {name: said(told, name, kind) for name, kind in kinds.items()}
    if told.get("shieldfl") != shieldfl.__version__:
        raise PolicyError(
            f"the server has shieldfl {shieldfl.__version__}, and the node {str(told.get('shieldfl'))[:20]}: install "
            "the same everywhere"
        )
    return found


class GridClients:
    """Sends a round's messages; what ends a round for a client travels with the next message to it.

    Every exchange takes seconds in a deployment, so the first message has the client train and make the first phase's.
    ``missed`` returns the ends of rounds that a client was not sent; or, where it is told that a message may not have
    come, all that the client is not known to have.
    """

    def __init__(
        self,
        participants: Participants,
        missed: Callable[[int, bool], RoleMessage],
        told: ToldEvents,
        *,
        clients_open: bool,
    ) -> None:
        self._clients_open, self._missed, self.participants, self.told = (
            clients_open,
            missed,
            participants,
            told,
        )
        self.app_records: Mapping[int, RecordDict] = {}
        self.asked: dict[str, Any] = {}
        """What the round's first message says beside."""
        self.trained: dict[int, dict[str, MetricRecord]] = {}
        self.failures: dict[int, str] = {}
        self.ends: dict[int, tuple[int, RoleMessage]] = {}
        """By client, the last round that it went through and is not known to have the end of, and that."""
        self.unsure: set[int] = set()
        self._round = self._participants = 0
        self._first: dict[int, RoleMessage] = {}

    def begin_round(
        self, clients: Sequence[int], round_number: int, participants: int, message_of: _MessageOf
    ) -> None:
        self._round, self._participants = round_number, participants
        self._first = {index: message_of(index) for index in clients}
        self.trained, self.failures = {}, {}

    def step(
        self, clients: Sequence[int], phase: str, message_of: _MessageOf | None
    ) -> Iterator[tuple[int, bytes | RangeError]]:
        """Have each client make a phase's message; yield them by the clients' numbers, so that sums are repeatable."""
        if message_of is None:
            values: dict[str, Any] = {
                "phase": phase,
                "round": self._round,
                "participants": self._participants,
            }
            contents = {one: self.content(one, Kind.TRAIN, self._first.pop(one), **values) for one in clients}
        else:
            contents = {}
            for index in clients:
                values = {"events_known": self.told.kept_of(index), "round": self._round, "phase": phase}
                contents[index] = self.participants.content(index, Kind.PHASE, message_of(index), **values)
        log(INFO, "shieldfl: round %s: %s clients are asked for phase %r", self._round, len(contents), phase)
        replies = self.asked_all(contents, f"round {self._round}")
        for index in sorted(clients):
            if index in replies:
                content = replies[index].content
                if message_of is None:
                    self.trained[index] = dict(content.metric_records.items())
                # Whoever reads it refuses what cannot be read, of this client alone.
                yield index, bytes_in(content) or b""
            elif (reason := self.failures.get(index, "")).startswith(_RANGE_ERROR):
                yield index, RangeError(reason.removeprefix(_RANGE_ERROR))

    def end_round(self, clients: Sequence[int], message_of: _MessageOf) -> None:
        """Keep the round's end, for the next message to each client: the model of it, where clients open none, not."""
        for index in clients:
            end = message_of(index)
            if not self._clients_open:
                end = RoleMessage({name: part for name, part in end.items() if name not in GlobalModel.parts})
            self.ends[index] = self._round, end

    def content(self, index: int, kind: Kind, message: RoleMessage | None, **values: Any) -> RecordDict:
        parts: dict[str, Any] = dict(self.app_records.get(index, {}).items())
        ended, end = self.ends.get(index, (0, None))
        if end is not None:
            parts["shieldfl.end"] = self.participants.record_of(end)
        is_unsure = index in self.unsure
        # A round's first message itself brings what the client was not sent.
        if (is_unsure or kind != Kind.TRAIN) and (missed := self._missed(index, is_unsure)):
            parts["shieldfl.missed"] = packed(missed)
        values = {"events_known": self.told.kept_of(index), **values, "ended": ended, **self.asked}
        return self.participants.content(index, kind, message, parts, **values)

    def asked_all(
        self, contents: Mapping[int, RecordDict], group: str, kind: str = MessageType.TRAIN
    ) -> dict[int, Message]:
        kinds = {index: content[ASK]["kind"] for index, content in contents.items()}
        for index, one in kinds.items():
            if one in (Kind.TRAIN, Kind.PHASE):
                self.told.asked(index, self._round)

        def read(index: int, reply: Message) -> None:
            bytes_in(reply.content)
            self.participants.note(index, reply)
            self.told.take(index, asked_of(reply.content))

        found, failures = self.participants.ask(contents, group, read, kind)
        for index in contents:
            client = self.participants.by_index[index]
            if index in failures:
                reason = failures[index]
                # ShieldMod brings the app its arrays.
                if "KeyError" in reason and repr(self.asked.get("arrays")) in reason:
                    reason = f"{reason}. {NO_SHIELD}"
                self.failures[index] = reason
                self.unsure.add(index)
                client.held = b""
                log(WARNING, "shieldfl: client %s left %s: %s", index, group, reason)
            elif kinds[index] != Kind.PHASE:
                self.unsure.discard(index)
                self.ends.pop(index, None)
                if kinds[index] == Kind.MODEL:
                    client.held = client.sent
        return found
