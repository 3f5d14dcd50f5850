"""Which model each node has by now, so that none is sent twice."""

from __future__ import annotations

from shieldfl.methods.protocol.global_model import GlobalModel
from shieldfl.roles.message import Message
from shieldfl.roles.round_key_check import digest_of_parts

__all__ = ["HELD", "HeldModels", "model_parts", "with_held"]

HELD = "held model"
"""The part of a role's message that stands for a model which the node has: its digest."""


def model_parts(message: Message) -> Message | None:
    """Return the model's own parts of a message; None for one without."""
    if not message.keys() >= GlobalModel.parts:
        return None
    return Message({name: message[name] for name in sorted(GlobalModel.parts)})


def with_held(message: Message, model: Message | None) -> Message | None:
    """Return a message with the model that it stands for, where that is this one; else None."""
    if model is None or digest_of_parts(model) != bytes(message[HELD]):
        return None
    return Message({**{name: part for name, part in message.items() if name != HELD}, **model})


class HeldModels:
    """The server's knowledge of what nodes keep: the model that they evaluated last, or began with."""

    def __init__(self) -> None:
        self._held: dict[int, bytes] = {}
        self._sent: dict[int, bytes] = {}
        self._short: dict[int, tuple[Message, bytes, Message]] = {}
        """By a message's identity, in one exchange: itself, its model's digest, and what stands for it."""

    def short(self, client: int, message: Message) -> Message:
        """Return what a client is sent of a message: one object for all that get the same in an exchange."""
        if id(message) not in self._short:
            model = model_parts(message)
            if model is None:
                return message
            rest = {name: part for name, part in message.items() if name not in model}
            digest = digest_of_parts(model)
            self._short[id(message)] = message, digest, Message({**rest, HELD: digest})
        _, digest, short = self._short[id(message)]
        self._sent[client] = digest
        return short if self._held.get(client) == digest else message

    def end_exchange(self) -> None:
        """Let go of the messages of an exchange."""
        self._short = {}

    def kept(self, client: int) -> None:
        """Take note that a client keeps the model that it was sent last."""
        if client in self._sent:
            self._held[client] = self._sent[client]

    def lost(self, client: int) -> None:
        """Take note that nobody knows what a client has."""
        self._held.pop(client, None)
