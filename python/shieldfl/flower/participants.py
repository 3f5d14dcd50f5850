"""Which node is which client of a run, and what it takes to make each of them one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from logging import INFO, WARNING
from typing import Any

from flwr.app import Message, RecordDict
from flwr.supercore import log

import shieldfl
from shieldfl.errors import PolicyError, ShieldError, WireFormatError
from shieldfl.flower.exchange import Exchange, is_shields
from shieldfl.flower.held_models import HeldModels
from shieldfl.flower.wire import (
    ASK,
    MESSAGE,
    NO_SHIELD,
    Kind,
    ask,
    asked_of,
    message_in,
    number_in,
    packed,
    position_in,
)
from shieldfl.methods.protocol.plan import FederationPlan
from shieldfl.roles.message import Message as RoleMessage

__all__ = ["Participant", "Participants", "check_sample"]


@dataclass
class Participant:
    """A node that is a client of the run."""

    node: int
    samples: int | None = None
    """None until it says how many it has."""
    writes_model: bool = False
    """Whether it has a folder, and writes the model there at the end."""
    position: tuple[int, int] = (0, 0)
    """How far its store is known to have come: an older copy of it is refused, by the node itself."""
    grant: RoleMessage | None = None
    """What lets it open sums, until it is known to have it."""


@dataclass
class Participants:
    """The clients of a run, by their numbers.

    Parameters
    ----------
    exchange : reaches them.
    session : of the public set-up, 16 bytes; empty before there is one.
    store : the folder that simulated nodes keep their stores in; "" for none.
    """

    exchange: Exchange
    session: bytes = b""
    store: str = ""
    nodes: Mapping[int, int] = field(default_factory=dict)
    """Which node each client was, where a run is gone on with."""
    reached: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """How far each client's store is known to have come by then."""
    by_index: dict[int, Participant] = field(default_factory=dict)
    models: HeldModels = field(default_factory=HeldModels)
    """Which model each client has."""

    def find(self, clients: int) -> None:
        """Ask all nodes who they are, and number so many of them; where there is a session, as they took part in it.

        Numbers are the nodes' ``partition-id`` where each has one of its own below ``clients``; else they follow the
        order of Flower's node ids. Nodes whose answer cannot be read, or with another version of shieldfl, are left
        out. Raises PolicyError for too few.
        """
        nodes = self.exchange.nodes(clients)
        content = RecordDict({ASK: ask(Kind.HELLO, session=self.session, store=self.store)})
        told, refused, advice = {}, [], ""
        for reply in self.exchange.ask(dict.fromkeys(nodes, content), "set-up"):
            node = reply.metadata.src_node_id
            if reply.has_error():
                refused.append(f"node {node}: {reply.error.reason}")
                advice = advice if is_shields(reply.error) else f". {NO_SHIELD}"
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
        self.by_index = {
            index: Participant(
                node,
                None if told[node]["samples"] < 0 else told[node]["samples"],
                told[node].get("writes-model") is True,
                max(position_in(told[node]), self.reached.get(index, (0, 0))),
            )
            for index, node in sorted(numbered.items())
        }

    def _numbered(self, told: Mapping[int, Mapping[str, Any]], clients: int) -> dict[int, int]:
        if self.session:
            claimed: dict[int, list[int]] = {}
            for node, one in told.items():
                if 0 <= one["index"] < clients:
                    claimed.setdefault(one["index"], []).append(node)
            # Of several that say they are one client, the node that it was: anybody can say so.
            return {
                index: self.nodes[index] if self.nodes.get(index) in nodes else min(nodes)
                for index, nodes in claimed.items()
            }
        by_partition = {one["partition-id"]: node for node, one in told.items()}
        if len(by_partition) == len(told) and set(range(clients)) <= set(by_partition):
            return {index: by_partition[index] for index in range(clients)}
        return dict(enumerate(sorted(told)[:clients]))

    def count(self, model: RoleMessage, layout: str, arrays: str, records: Mapping[int, RecordDict]) -> None:
        """Have those that do not say how many samples they have train from the first model, and say it.

        Parameters
        ----------
        model, layout : the first one, with what is planned.
        arrays : the name of its record for the app.
        records : by node, what the app's strategy sends beside it in round 1; a node that is not in that round gets
            what another one does.

        Raises PolicyError where one does not say it.
        """
        silent = {index: one for index, one in self.by_index.items() if one.samples is None}
        if not silent:
            return
        log(
            INFO,
            "shieldfl: %s clients train to count their samples: ShieldMod(samples=...) saves it",
            len(silent),
        )
        others, brought = next(iter(records.values()), RecordDict()), packed(model)
        contents = {}
        for index, one in silent.items():
            self.models.short(index, model)
            asked = self._ask(Kind.COUNT, one, index=index, layout=layout, arrays=arrays)
            parts = dict(records.get(one.node, others).items())
            contents[one.node] = RecordDict({ASK: asked, MESSAGE: brought, **parts})
        index_of, refused = self.by_node, {}
        for reply in self.exchange.ask(contents, "count of samples"):
            index = index_of[reply.metadata.src_node_id]
            if reply.has_error():
                refused[index] = reply.error.reason or "it failed"
                continue
            try:
                silent[index].samples = number_in(asked_of(reply.content), "samples")
                self.models.kept(index)
            except ShieldError as error:
                refused[index] = f"its reply cannot be read ({error})"
        _refuse_without({index for index, one in silent.items() if one.samples is None}, refused)

    def set_up(
        self, signed: RoleMessage, model: RoleMessage, layout: str, weights: list[int]
    ) -> dict[int, RoleMessage]:
        """Have every client take the public set-up and the initial model; return what enrols each.

        Raises PolicyError where one refuses or does not answer: a run begins with all of its clients, or not at all.
        """
        brought = RoleMessage({**signed, **model})
        shorts = {index: self.models.short(index, brought) for index in self.by_index}
        records = {id(one): packed(one) for one in {id(one): one for one in shorts.values()}.values()}
        contents = {
            one.node: RecordDict(
                {
                    ASK: self._ask(Kind.SET_UP, one, index=index, weight=weights[index], layout=layout),
                    MESSAGE: records[id(shorts[index])],
                }
            )
            for index, one in self.by_index.items()
        }
        index_of = self.by_node
        found: dict[int, RoleMessage] = {}
        refused: dict[int, str] = {}
        for reply in self.exchange.ask(contents, "set-up"):
            index = index_of[reply.metadata.src_node_id]
            if reply.has_error():
                refused[index] = reply.error.reason or "it failed"
                continue
            try:
                self.note(index, reply)
                found[index] = message_in(reply.content) or RoleMessage()
                self.models.kept(index)
            except ShieldError as error:
                refused[index] = f"its reply cannot be read ({error})"
        _refuse_without(self.by_index.keys() - found.keys(), refused)
        return found

    def _ask(self, kind: Kind, one: Participant, **values: Any) -> Any:
        return ask(kind, session=self.session, position=list(one.position), store=self.store, **values)

    def content(
        self,
        index: int,
        kind: Kind,
        message: Any = None,
        parts: Mapping[str, Any] | None = None,
        **values: Any,
    ) -> RecordDict:
        """Return what a client is sent; ``message`` is a record with a role's, ``parts`` are further records."""
        one = self.by_index[index]
        content = RecordDict({ASK: self._ask(kind, one, **values)})
        if message is not None:
            content[MESSAGE] = message
        if one.grant is not None:
            content["shieldfl.grant"] = packed(one.grant)
        for name, record in (parts or {}).items():
            content[name] = record
        return content

    def note(self, index: int, reply: Message) -> None:
        """Take note of what a client's reply tells: how far its store has come, and that it has its grant."""
        one, told = self.by_index[index], asked_of(reply.content)
        one.position = max(one.position, position_in(told))
        if told["kind"] != Kind.SET_UP:
            one.grant = None

    @property
    def by_node(self) -> dict[int, int]:
        """By node, which client it is."""
        return {one.node: index for index, one in self.by_index.items()}


def check_sample(nodes: int, plan: FederationPlan) -> None:
    """Raise PolicyError where an app's strategy chooses so many nodes for a round that it cannot take place."""
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


def _refuse_without(missing: Iterable[int], reasons: Mapping[int, str]) -> None:
    said = [f"client {index}: {reasons.get(index, 'it does not answer')}" for index in sorted(missing)]
    if said:
        raise PolicyError(f"the run does not begin: {'; '.join(said)}")


def _checked_hello(reply: Message) -> Mapping[str, Any]:
    """Return what a node says of itself. Raises WireFormatError for what none says, PolicyError for another version."""
    told = asked_of(reply.content)
    numbers = [told.get(name) for name in ("index", "partition-id", "samples")]
    if not all(isinstance(one, int) for one in numbers) or told["samples"] < -1:
        raise WireFormatError("its answer cannot be read")
    position_in(told)
    if told.get("shieldfl") != shieldfl.__version__:
        raise PolicyError(
            f"the server has shieldfl {shieldfl.__version__}, and the node {str(told.get('shieldfl'))[:20]}: install "
            "the same everywhere"
        )
    return told
