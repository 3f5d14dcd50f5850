"""The clients of a run: which node each is, and how a round's driver reaches it over Flower's grid."""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from logging import INFO, WARNING
from typing import Annotated, Any

import msgspec
from flwr.app import ArrayRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.common.constant import ErrorCode
from flwr.common.serde import recorddict_to_proto
from flwr.serverapp import Grid
from flwr.supercore import log

import shieldfl
from shieldfl import errors
from shieldfl.authority.message import Message as RoleMessage
from shieldfl.authority.round_key_check import digest_of_parts
from shieldfl.errors import ParameterError, PolicyError, RangeError, ShieldError, WireFormatError
from shieldfl.flower.records import (
    ASK,
    HELD,
    MESSAGE,
    MOST_EVENTS,
    NO_SHIELD,
    Kind,
    NamedEvents,
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
from shieldfl.privacy.book import PrivacyBook, PrivacySpent
from shieldfl.privacy.events import (
    ClearUpload,
    EncryptedUpload,
    Noise,
    NoisedUpload,
    NoiseOfSum,
    NoiseShareUpload,
)
from shieldfl.rounds.collecting_aggregator import CollectingAggregator
from shieldfl.rounds.plan import FederationPlan, GlobalModel
from shieldfl.rounds.reports import Account, told_of

_Upload = ClearUpload | EncryptedUpload | NoiseShareUpload | NoisedUpload
_MOST_BYTES = 65_536
_MOST_OF_A_ROUND = 16
"""Largest number of a client's events in a round: each upload, a few times if its process ended."""
_MOST_NOISES = 4
"""Largest number of different noises of a client: each takes a computation of its own."""
_NAME = re.compile(r"[a-z][a-z0-9_ -]{0,39}")


class ToldEvents:
    """The server's side: takes a client's events into the run's account once each, also if replies repeat.

    ``unit`` is the unit of the method's noise, ``"client"`` or ``"sample"``; None for a method without.
    """

    def __init__(self, account: Account, unit: str | None, rounds: int) -> None:
        self._account, self._unit, self._rounds = account, unit, rounds
        self.taken: dict[int, int] = {}
        self.kept: dict[int, int] = {}
        """Number of events on the server's disk or, without a checkpoint, known to it, by client number."""
        self._told: defaultdict[int, list[_Upload]] = defaultdict(list)
        self.silent: dict[int, int] = {}
        """Round in which a client was asked last, by client number, if it has told nothing since.

        Such a client counts as if it had sent what others have.
        """

    def restore(self, kept: Mapping[int, int], clients: Iterable[int], round_number: int) -> None:
        """Continue with an account that has ``kept`` events by client; this round may have asked clients."""
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
            # The run continues from an older checkpoint: the client has given up what a newer one had.
            self._account.book.add(ClearUpload(1, client, "what an older checkpoint does not tell"))
        for one in new:
            self._account.book.add(one)
        self._told[client] += new
        self.taken[client] = max(taken, first + len(events))
        if len(events) < MOST_EVENTS:
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
            raise WireFormatError("its report names data that this run's method does not send")

    def spent(self) -> PrivacySpent:
        silent = sorted(self.silent.items())
        assumed = [one for client, number in silent for one in self._assumed(client, number)]
        return PrivacyBook([*self._account.book.all, *assumed]).spent(self._account.delta)

    def _assumed(self, client: int, round_number: int) -> list[_Upload]:
        """Return what a silent client may have sent: all that any other told of the newest round before."""
        told = [one for other in self._told.keys() - {client} for one in self._told[other]]
        uploads = [one for one in told if one.round <= round_number]
        newest = max((one.round for one in uploads), default=0)
        alike = {replace(one, client=client, round=round_number) for one in uploads if one.round == newest}
        return sorted(alike, key=repr)

    def keep(self) -> None:
        """Note that all of :attr:`taken` was written down: clients need not tell it again."""
        self.kept = dict(self.taken)


def _decoded(data: bytes) -> list[_Upload]:
    try:
        if len(data) > _MOST_BYTES:
            raise WireFormatError("it tells more than fits into a reply")
        events = told_of(msgspec.msgpack.decode(data, type=NamedEvents))
    except (msgspec.MsgspecError, RecursionError, ParameterError) as error:
        raise WireFormatError("its report of what it sent cannot be read") from error
    found = [one for one in events if isinstance(one, _Upload)]
    if len(found) < len(events) or len(found) > MOST_EVENTS:
        raise WireFormatError("it tells of what no client sends")
    return found


def _is_sane(noise: Noise | NoiseOfSum) -> bool:
    """Say whether a noise is plausible: for others a figure could not be computed."""
    if isinstance(noise, NoiseOfSum):
        sizes = (noise.honest_clients, noise.share_variance, noise.norm_bound_squared, noise.dimension)
        return max(sizes) < 2**63 and noise.log2_distance > -1000.0
    return 1e-6 <= noise.multiplier <= 1e6 and noise.sample_rate >= 1e-9 and noise.steps <= 10**9


_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0
_TELLS_EVERY_SECONDS = 10.0
_RANGE_ERROR = "RangeError: "
_OF_APPS = ErrorCode.CLIENT_APP_RAISED_EXCEPTION, ErrorCode.MOD_FAILED_PRECONDITION
_MessageOf = Callable[[int], RoleMessage]


@dataclass
class Participant:
    """A client, and what the server knows of it: a checkpoint has it as it is."""

    node: int
    samples: int | None = None
    writes_model: bool = False
    position: Position = (0, 0)
    """How far its store is known to have come; the node itself refuses an older copy of the store."""
    grant: RoleMessage | None = None
    """Grant by which it can open sums; None for no grant, and once it is known to have it."""
    # Digests: of the model that it keeps, which it evaluated last or began with, and of that which it was
    # sent last.
    held: bytes = b""
    sent: bytes = b""
    ended: int = 0
    """Last round that it went through; :attr:`end` is that round's end until it is known to have it."""
    end: RoleMessage | None = None
    is_unsure: bool = False
    """Whether the client may lack the last message that it was sent."""


class GridClients:
    """The clients by their numbers: sends them messages, and waits for those that answer.

    Every exchange takes seconds in a deployment, so the first message of a round has the client train and
    make the first phase's, and what ends a round travels with the next message: the end of the client's last
    round and, if a message may be lost, all that the client is not known to have.

    Parameters
    ----------
    timeout_seconds : how long a message and its reply are waited for; after that it is not delivered any
        more.
    store : the folder that simulated nodes keep their stores in.
    session : the public set-up's, empty before there is one.
    known : the clients as they were, if a run is resumed.
    """

    told: ToldEvents
    aggregator: CollectingAggregator
    clients_open: bool
    """Whether clients open sums. The session sets it, ``told`` and ``aggregator`` after counting samples."""

    def __init__(
        self,
        grid: Grid,
        timeout_seconds: float,
        store: str = "",
        session: bytes = b"",
        known: Mapping[int, Participant] | None = None,
    ) -> None:
        self._grid, self._timeout, self._store, self._known = grid, timeout_seconds, store, known or {}
        self.session = session
        self.by_index: dict[int, Participant] = {}
        self.bytes_up = self.bytes_down = 0
        """Bytes from and to clients: all messages' contents, as Flower encodes them."""
        self._moved = (0, 0)
        self.app_records: Mapping[int, RecordDict] = {}
        self.asked: dict[str, Any] = {}
        """Further values of a round's first message, by name."""
        self.trained: dict[int, dict[str, MetricRecord]] = {}
        self.failures: dict[int, str] = {}
        self._round = self._participants = 0
        self._first: dict[int, RoleMessage] = {}
        self._made: dict[tuple[int, Any], tuple[RoleMessage, Any]] = {}

    @property
    def by_node(self) -> dict[int, int]:
        return {one.node: index for index, one in self.by_index.items()}

    @property
    def silent(self) -> list[int]:
        """Numbers of the clients that do not state their number of samples."""
        return [index for index, one in self.by_index.items() if one.samples is None]

    def bytes_moved(self) -> str:
        (up, down), self._moved = self._moved, (self.bytes_up, self.bytes_down)
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

    def find(self, clients: int) -> None:
        """Ask all nodes who they are, and number so many of them; in a session, as they took part in it.

        Numbers are the nodes' ``partition-id`` if each has one of its own below ``clients``; otherwise they
        follow the order of Flower's node ids. Nodes whose answer cannot be read, or with another version of
        shieldfl, are left out. Raises PolicyError for too few.
        """
        content = RecordDict({ASK: ask("hello", session=self.session, store=self._store)})
        told: dict[int, dict[str, Any]] = {}
        refused, advice = [], ""
        for reply in self._exchanged("hello", dict.fromkeys(self.nodes(clients), content), "set-up"):
            node = reply.metadata.src_node_id
            try:
                told[node] = _checked_hello(reply)
            except ShieldError as error:
                refused.append(f"node {node}: {error}")
                # An error of the app, or of another mod that was called instead of ShieldMod.
                is_named = str(error).partition(":")[0] in vars(errors)
                if reply.has_error() and reply.error.code in _OF_APPS and not is_named:
                    advice = f". {NO_SHIELD}"
        numbered = self._numbered(told, clients)
        if len(numbered) < clients:
            reasons = "; ".join(refused) or "others do not answer"
            raise PolicyError(f"{len(numbered)} of {clients} clients can take part: {reasons}{advice}")
        for index, node in sorted(numbered.items()):
            one, hello = self._known.get(index, Participant(node)), told[node]
            one.node, one.writes_model, one.held = node, hello["writes-model"], b""
            one.samples = None if hello["samples"] < 0 else hello["samples"]
            one.position, one.is_unsure = max(hello["position"], one.position), bool(self._known)
            self.by_index[index] = one

    def _numbered(self, told: Mapping[int, Mapping[str, Any]], clients: int) -> dict[int, int]:
        if self.session:
            claimed = {(one["index"], node) for node, one in told.items() if 0 <= one["index"] < clients}
            # Of several that say they are one client, the node that it was: anybody can say so.
            was = {(index, one.node) for index, one in self._known.items()}
            return dict(sorted(claimed, reverse=True)) | dict(was & claimed)
        by_partition = {one["partition-id"]: node for node, one in told.items()}
        if len(by_partition) == len(told) and set(range(clients)) <= set(by_partition):
            return {index: by_partition[index] for index in range(clients)}
        return dict(enumerate(sorted(told)[:clients]))

    def count(self, model: RoleMessage, layout: str, arrays: str, records: Mapping[int, RecordDict]) -> None:
        """Have clients that do not state their number of samples train from the first model, and state it.

        ``arrays`` names the model's record for the app. ``records`` has, by node, what the app's strategy
        sends beside it in round 1; a node that is not in that round gets another one's.
        """
        silent = self.silent
        told = "shieldfl: %s clients train to count their samples: ShieldMod(samples=...) saves it"
        log(INFO, told, len(silent))
        others = next(iter(records.values()), RecordDict())
        self.app_records = {index: records.get(self.by_index[index].node, others) for index in silent}
        self._asked_each(
            {
                index: self.content(index, "count", model, index=index, layout=layout, arrays=arrays)
                for index in silent
            },
            "count",
        )

    def set_up(
        self, signed: RoleMessage, model: RoleMessage, layout: str, weights: list[int]
    ) -> dict[int, RoleMessage]:
        brought, contents = RoleMessage({**signed, **model}), {}
        for index in self.by_index:
            values: dict[str, Any] = {"index": index, "weight": weights[index], "layout": layout}
            contents[index] = self.content(index, "set-up", brought, **values)
        replies = self._asked_each(contents, "set-up")
        return {index: message_in(one.content) or RoleMessage() for index, one in replies.items()}

    def _asked_each(self, contents: Mapping[int, RecordDict], kind: Kind) -> dict[int, Message]:
        replies = self.asked_all(kind, contents, kind)
        if self.failures:
            refused = "; ".join(f"client {index}: {why}" for index, why in sorted(self.failures.items()))
            raise PolicyError(f"the run does not begin: {refused}")
        return replies

    def content(
        self, client: int, /, kind: Kind, message: RoleMessage | None = None, **values: Any
    ) -> RecordDict:
        """Return a message's content: what it asks for, a role's message, and what else the client gets."""
        one, parts = self.by_index[client], dict[str, Any]()
        if kind not in ("set-up", "phase"):
            parts |= self.app_records.get(client, {}).items()
            values |= self.asked
        if kind not in ("set-up", "count"):
            values = {"events_known": self.told.kept.get(client, 0), **values}
        if kind in ("train", "model", "finish"):
            values["ended"] = one.ended
            if one.end is not None:
                parts["shieldfl.end"] = self._once(packed, one.end)
            # A round's first message itself brings what the client was not sent.
            missed = one.is_unsure or kind != "train"
            if missed and (found := self.aggregator.missed(client, again=one.is_unsure)):
                parts["shieldfl.missed"] = packed(found)
        asked = ask(kind, session=self.session, position=list(one.position), store=self._store, **values)
        if message is not None:
            parts[MESSAGE] = self._packed_for(one, message)
        if one.grant is not None:
            parts["shieldfl.grant"] = packed(one.grant)
        return RecordDict({ASK: asked, **parts})

    def _packed_for(self, one: Participant, message: RoleMessage) -> ArrayRecord:
        """Return a message, with a digest instead of a model that the client holds."""
        digest = self._once(_digest_of_model, message)
        one.sent = digest or one.sent
        if not digest or one.held != digest:
            whole: ArrayRecord = self._once(packed, message)
            return whole
        rest = {name: part for name, part in message.items() if name not in GlobalModel.parts}
        return packed(RoleMessage({**rest, HELD: digest}))

    def _once(self, make: Callable[[RoleMessage], Any], message: RoleMessage) -> Any:
        """Return what ``make`` makes of a message: once for an object in an exchange, for all clients."""
        key = id(message), make
        if key not in self._made:
            self._made[key] = message, make(message)
        return self._made[key][1]

    def _exchanged(self, kind: Kind, contents: Mapping[int, RecordDict], group: str) -> Sequence[Message]:
        """Send to nodes; return the replies, errors among them, one for a node at most.

        It looks more often than ``Grid.send_and_receive``, every 3 s.
        """
        type_ = MessageType.EVALUATE if kind == "model" else MessageType.TRAIN
        messages = [
            Message(one, node, type_, ttl=self._timeout, group_id=group) for node, one in contents.items()
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

    def asked_all(self, kind: Kind, contents: Mapping[int, RecordDict], group: str) -> dict[int, Message]:
        """Send to clients, and read each reply.

        Return those, and note why others gave none that can be read.
        """
        self._made = {}
        index_of, found, reasons = self.by_node, dict[int, Message](), dict[int, str]()
        if kind in ("train", "phase"):
            self.told.silent |= dict.fromkeys(contents, self._round)
        by_node = {self.by_index[index].node: content for index, content in contents.items()}
        for reply in self._exchanged(kind, by_node, group):
            index = index_of.get(reply.metadata.src_node_id, -1)
            if index in contents and reply.has_error():
                reasons[index] = reply.error.reason or "it failed"
            elif index in contents:
                try:
                    self._read(index, reply, kind)
                    found[index] = reply
                except (ShieldError, KeyError, TypeError, ValueError) as error:
                    reasons[index] = f"its reply cannot be read ({error})"
        for index in contents.keys() - found.keys():
            self._left(index, group, reasons.get(index, "it has not answered in time"))
        return found

    def _read(self, index: int, reply: Message, kind: str) -> None:
        one, told = self.by_index[index], asked_of(reply.content)
        bytes_in(reply.content)
        if kind == "count":
            one.samples = said(told, "samples", Number)
        else:
            one.position, one.grant = max(one.position, said(told, "position", Position)), None
            self.told.take(index, told)
        if kind != "phase":
            one.is_unsure, one.end = False, None
        if kind not in ("phase", "train", "finish"):
            one.held = one.sent

    def _left(self, index: int, group: str, reason: str) -> None:
        # ShieldMod brings the app its arrays.
        if "KeyError" in reason and repr(self.asked.get("arrays")) in reason:
            reason = f"{reason}. {NO_SHIELD}"
        one, self.failures[index] = self.by_index[index], reason
        one.is_unsure, one.held = True, b""
        log(WARNING, "shieldfl: client %s left %s: %s", index, group, reason)

    def begin_round(
        self, clients: Sequence[int], round_number: int, participants: int, message_of: _MessageOf
    ) -> None:
        self._round, self._participants = round_number, participants
        self._first = {index: message_of(index) for index in clients}
        self.trained, self.failures = {}, {}

    def step(
        self, clients: Sequence[int], phase: str, message_of: _MessageOf | None
    ) -> Iterator[tuple[int, bytes | RangeError]]:
        """Have each client make a phase's message.

        Yield them by the clients' numbers, so that sums are repeatable.
        """
        values: dict[str, Any] = {"phase": phase, "round": self._round}
        kind: Kind = "phase"
        if message_of is None:
            kind, values["participants"], message_of = "train", self._participants, self._first.pop
        contents = {index: self.content(index, kind, message_of(index), **values) for index in clients}
        log(INFO, "shieldfl: round %s: %s clients are asked for phase %r", self._round, len(contents), phase)
        replies = self.asked_all(kind, contents, f"round {self._round}")
        for index in sorted(clients):
            if index in replies:
                content = replies[index].content
                if kind == "train":
                    self.trained[index] = dict(content.metric_records.items())
                # The reader refuses what cannot be read, of this client alone.
                yield index, bytes_in(content) or b""
            elif (reason := self.failures.get(index, "")).startswith(_RANGE_ERROR):
                yield index, RangeError(reason.removeprefix(_RANGE_ERROR))

    def end_round(self, clients: Sequence[int], message_of: _MessageOf) -> None:
        """Keep the round's end for the next message to each client, with its model only if clients open."""
        for index in clients:
            end = message_of(index)
            if not self.clients_open:
                end = RoleMessage({name: part for name, part in end.items() if name not in GlobalModel.parts})
            self.by_index[index].ended, self.by_index[index].end = self._round, end


def _digest_of_model(message: RoleMessage) -> bytes:
    model = model_parts(message)
    return b"" if model is None else digest_of_parts(model)


def _bytes_of(message: Message) -> int:
    return 0 if message.has_error() else int(recorddict_to_proto(message.content).ByteSize())


def check_sample(nodes: int, plan: FederationPlan) -> None:
    least, most = plan.min_clients, plan.most_participants
    if nodes < least:
        raise PolicyError(
            f"{nodes} nodes are chosen for a round, and min_clients is {least}: no sum of fewer is opened. "
            f"Give the app's strategy min_train_nodes={least}, or a larger fraction_train"
        )
    if nodes > most:
        raise PolicyError(
            f"{nodes} nodes are chosen for a round, and max_clients is {most}: raise shieldfl.max-clients, "
            "or give the app's strategy a smaller fraction_train"
        )


def _checked_hello(reply: Message) -> dict[str, Any]:
    if reply.has_error():
        raise PolicyError(reply.error.reason)
    told = asked_of(reply.content)
    kinds = {"index": int, "partition-id": int, "samples": int, "position": Position, "writes-model": bool}
    found = {name: said(told, name, kind) for name, kind in kinds.items()}
    if told.get("shieldfl") != shieldfl.__version__:
        raise PolicyError(
            f"the server has shieldfl {shieldfl.__version__}, and the node {str(told.get('shieldfl'))[:20]}: "
            "install the same everywhere"
        )
    return found
