"""Which node is which client of a run, and what it takes to make each of them one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from logging import WARNING
from typing import Any

from flwr.app import Message, RecordDict
from flwr.supercore import log

import shieldfl
from shieldfl.errors import PolicyError, ShieldError
from shieldfl.flower.exchange import Exchange
from shieldfl.flower.wire import ASK, MESSAGE, Kind, ask, asked_of, message_in, packed
from shieldfl.roles.message import Message as RoleMessage

__all__ = ["Participant", "Participants"]


@dataclass
class Participant:
    """A node that is a client of the run."""

    node: int
    samples: int = 0
    position: tuple[int, int] = (0, 0)
    """How far its store is known to have come: an older copy of it is refused, by the node itself."""
    grant: RoleMessage | None = None
    """What lets it open sums, until it is known to have it."""


@dataclass(frozen=True)
class _Told:
    """What a node says of itself, which need not be true."""

    partition_id: int
    index: int
    samples: int
    version: str
    position: tuple[int, int]

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> _Told:
        """Raises KeyError, TypeError or ValueError for what is none."""
        samples = int(told["samples"])
        if not 0 <= samples < 2**32:
            raise ValueError(f"it says that it has {samples} samples")
        return cls(
            int(told["partition-id"]), int(told["index"]), samples, str(told["shieldfl"]), _position_of(told)
        )


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
    """Where there is a session, the node that each client was when it began."""
    by_index: dict[int, Participant] = field(default_factory=dict)

    def find(self, clients: int) -> None:
        """Ask all nodes who they are, and number so many of them; where there is a session, as they took part in it.

        Numbers are the nodes' ``partition-id`` where each has one of its own below ``clients``; else they follow the
        order of Flower's node ids. Raises PolicyError for too few that answer, or have another version of shieldfl.
        """
        nodes = self.exchange.nodes(clients)
        content = RecordDict({ASK: ask(Kind.HELLO, session=self.session, store=self.store)})
        told: dict[int, _Told] = {}
        refused: list[str] = []
        for reply in self.exchange.ask(dict.fromkeys(nodes, content), "set-up"):
            node = reply.metadata.src_node_id
            try:
                if reply.has_error():
                    raise PolicyError(reply.error.reason or "it failed")
                told[node] = _Told.of(asked_of(reply.content))
            except (ShieldError, KeyError, TypeError, ValueError) as error:
                refused.append(f"node {node}: {error}")
        others = {one.version for one in told.values()} - {shieldfl.__version__}
        if others:
            refused.append(
                f"the server has shieldfl {shieldfl.__version__}, and nodes have {', '.join(sorted(others))}: install "
                "the same everywhere"
            )
        numbered = self._numbered(told, clients)
        if others or len(numbered) < clients:
            for reason in refused:
                log(WARNING, "shieldfl: %s", reason)
            raise PolicyError(
                f"{len(numbered)} of {clients} clients can take part: {'; '.join(refused) or 'others do not answer'}"
            )
        self.by_index = {
            index: Participant(node, told[node].samples, told[node].position)
            for index, node in numbered.items()
        }

    def _numbered(self, told: Mapping[int, _Told], clients: int) -> dict[int, int]:
        if self.session:
            found = {one.index: node for node, one in told.items() if 0 <= one.index < clients}
            # Of two that say they are one client, the one that was it.
            return found | {
                index: node
                for index, node in self.nodes.items()
                if node in told and told[node].index == index
            }
        by_partition = {one.partition_id: node for node, one in told.items()}
        if len(by_partition) == len(told) and set(range(clients)) <= set(by_partition):
            return {index: by_partition[index] for index in range(clients)}
        return dict(enumerate(sorted(told)[:clients]))

    def set_up(
        self, signed: RoleMessage, model: RoleMessage, layout: str, weights: list[int]
    ) -> dict[int, RoleMessage]:
        """Have every client take the public set-up and the initial model; return what enrols each.

        Raises PolicyError where one refuses or does not answer: a run begins with all of its clients, or not at all.
        """
        brought = packed(RoleMessage({**signed, **model}))
        contents = {
            one.node: RecordDict(
                {
                    ASK: self._ask(Kind.SET_UP, one, index=index, weight=weights[index], layout=layout),
                    MESSAGE: brought,
                }
            )
            for index, one in self.by_index.items()
        }
        index_of = {one.node: index for index, one in self.by_index.items()}
        found: dict[int, RoleMessage] = {}
        refused: dict[int, str] = {}
        for reply in self.exchange.ask(contents, "set-up"):
            index = index_of[reply.metadata.src_node_id]
            try:
                if reply.has_error():
                    raise PolicyError(reply.error.reason or "it failed")
                self.note(index, reply)
                found[index] = message_in(reply.content) or RoleMessage()
            except (ShieldError, KeyError, TypeError, ValueError) as error:
                refused[index] = str(error)
        if len(found) < len(self.by_index):
            silent = dict.fromkeys(self.by_index.keys() - found.keys(), "it does not answer")
            reasons = [f"client {index}: {why}" for index, why in sorted((silent | refused).items())]
            raise PolicyError(f"the run does not begin: {'; '.join(reasons)}")
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
        one.position = max(one.position, _position_of(told))
        if told["kind"] != Kind.SET_UP:
            one.grant = None

    def index_of(self, node: int) -> int | None:
        """Return which client a node is; None for none."""
        return next((index for index, one in self.by_index.items() if one.node == node), None)


def _position_of(told: Mapping[str, Any]) -> tuple[int, int]:
    epoch, rows = told["position"]
    return int(epoch), int(rows)
