"""The key authority's local steps, and how a round reaches its clients; there is no networking in either.

A round goes through the method's phases. In each phase every client makes a message (``training_client.py``), the
aggregator receives the messages one by one and closes the phase with one message (``collecting_aggregator.py``), and
where the phase says so, the key authority turns that into the answer to the clients. A driver moves the messages; it
may run the roles in one process or on many machines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from shieldfl.authority.message import Message
from shieldfl.errors import RangeError


class Authority(Protocol):
    """What a round needs of the key authority, here or where it is served: see ``authorities.py``."""

    def newest_model(self) -> Message:
        """Return what the next round starts from: the model, and what travels with it."""

    def begin_round(
        self, round_number: int, invited: Iterable[int] | None = None, model: bytes = b""
    ) -> Message:
        """Begin a round, and return its first message."""

    def answer(self, phase: str, message: Message) -> Message:
        """Turn the aggregator's result into the answer to the clients."""

    def sign_answer(self, phase: str, round_number: int, digest: bytes) -> Message:
        """Sign what a phase came to."""


class Clients(Protocol):
    """How a round reaches its clients: in this process, in processes of their own or over a network.

    The driver holds no client. ``message_of`` returns what a client is sent; it is called once for each client, when
    that client is reached.
    """

    def begin_round(
        self,
        clients: Sequence[int],
        round_number: int,
        participants: int,
        message_of: Callable[[int], Message],
    ) -> None:
        """Give each client the round's first message; it trains, and nobody waits for it."""

    def step(
        self, clients: Sequence[int], phase: str, message_of: Callable[[int], Message] | None
    ) -> Iterable[tuple[int, bytes | RangeError]]:
        """Let each client make the phase's message from the last answer (None in the first); yield its bytes.

        In any order, as they arrive, each with the index of its client. A client whose training or update is refused
        yields the RangeError instead, and one that is gone yields nothing.
        """

    def end_round(self, clients: Sequence[int], message_of: Callable[[int], Message]) -> None:
        """Give each client the answer to the last phase: the new global model."""
