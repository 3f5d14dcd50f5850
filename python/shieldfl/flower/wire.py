"""What ShieldStrategy and shield_mod say to each other, in Flower's records."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from shieldfl.authority.message import Message
from shieldfl.authority.round_key_check import digest_of_parts
from shieldfl.errors import WireFormatError
from shieldfl.rounds.global_model import GlobalModel

ASK = "shieldfl"
"""The name of the record that says what a message asks for, or what a reply is of."""
MESSAGE = "shieldfl.message"
"""The name of the record with the role's message."""
TRAINING = "shieldfl.learning"
"""The name of the record that says what training a round asks for, and of the one that says what was done."""

COUNTED_METRIC = "num-examples"
"""The one metric that a node counts its samples by: were the name the server's choice, it would learn about any."""

HELD = "held model"
"""The part of a role's message that stands for a model which the node has: its digest."""

NO_SHIELD = (
    "no ShieldMod has handled the message: give the app ClientApp(mods=[ShieldMod(), ...]), for all of its functions "
    "and before every other mod"
)

_STYPE = "shieldfl.message 1"
_VERSION = 4


class Kind(StrEnum):
    """What a message asks of a node."""

    HELLO = "hello"
    """Who it is."""
    COUNT = "count"
    """To train from the first model, and to say on how many samples."""
    SET_UP = "set-up"
    """To take a public set-up and to enrol."""
    TRAIN = "train"
    """To begin a round, to train, and to make the first phase's message."""
    PHASE = "phase"
    """To make a further phase's."""
    MODEL = "model"
    """To have the app evaluate the client's model."""
    FINISH = "finish"
    """To take what is left, after the last round."""


def packed(message: Message) -> ArrayRecord:
    """Return a role's message as a record: Flower divides an array that is too large for one of its own messages."""
    data = message.to_bytes()
    return ArrayRecord({"message": Array("uint8", (len(data),), _STYPE, data)})


def bytes_in(content: RecordDict, name: str = MESSAGE) -> bytes | None:
    """Return the bytes of a role's message under a name; None where there is none. Raises WireFormatError."""
    record = content.array_records.get(name)
    if record is None:
        return None
    array = record.get("message")
    if len(record) != 1 or array is None or array.stype != _STYPE:
        raise WireFormatError(f"the record {name!r} holds no message of this version of shieldfl")
    return array.data


def message_in(content: RecordDict, name: str = MESSAGE) -> Message | None:
    """Return the role's message under a name; None where there is none. Raises WireFormatError for what is none."""
    found = bytes_in(content, name)
    return None if found is None else Message.from_bytes(found)


def ask(kind: Kind, **values: Any) -> ConfigRecord:
    """Return the record that asks for something; underscores of names become hyphens.

    What is empty is left out: Flower's message_size_mod counts no empty value.
    """
    named = {name.replace("_", "-"): value for name, value in values.items() if value not in ("", b"", [])}
    return ConfigRecord({"version": _VERSION, "kind": str(kind), **named})


def number_in(record: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """Return a whole number that a message says, at least 0 and below 2**63. Raises WireFormatError."""
    found = record.get(name, default)
    if type(found) is not int or not 0 <= found < 2**63:
        raise WireFormatError(f"the message does not say {name.replace('-', ' ')} as a number")
    return found


def text_in(record: Mapping[str, Any], name: str) -> str:
    """Return a text that a message says. Raises WireFormatError."""
    found = record.get(name)
    if not isinstance(found, str):
        raise WireFormatError(f"the message does not say {name.replace('-', ' ')} as text")
    return found


def session_in(record: Mapping[str, Any]) -> bytes:
    """Return of which session a message is; empty before there is one. Raises WireFormatError."""
    found = record.get("session", b"")
    if not isinstance(found, bytes):
        raise WireFormatError("the message does not say session as bytes")
    return found


def position_in(record: Mapping[str, Any]) -> tuple[int, int]:
    """Return how far a node's store has come, as a message says. Raises WireFormatError."""
    position = record.get("position")
    if (
        not isinstance(position, list)
        or len(position) != 2
        or not all(type(one) is int and 0 <= one < 2**63 for one in position)
    ):
        raise WireFormatError("the message does not say how far a store has come")
    epoch, rows = position
    return epoch, rows


def asked_of(content: RecordDict) -> Mapping[str, Any]:
    """Return what a message asks for. Raises WireFormatError for nothing, or another version's."""
    record = content.config_records.get(ASK)
    if record is None:
        raise WireFormatError(NO_SHIELD)
    if record.get("version") != _VERSION or record.get("kind") not in list(Kind):
        raise WireFormatError(
            "the message is of another version of shieldfl: install the same one on the server and on all nodes"
        )
    return record


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
