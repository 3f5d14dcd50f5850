"""What ShieldStrategy and shield_mod say to each other, in Flower's records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

import msgspec
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from shieldfl.authority.message import Message
from shieldfl.authority.round_key_check import digest_of_parts
from shieldfl.errors import WireFormatError
from shieldfl.rounds.plan import GlobalModel

# Names of records: what a message asks for or a reply is of, and the role's message.
ASK = "shieldfl"
MESSAGE = "shieldfl.message"
TRAINING = "shieldfl.learning"  # what training a round asks for, and what was done

COUNTED_METRIC = "num-examples"
"""The one metric that a node counts its samples by: were the name the server's choice, it would learn about any."""
HELD = "held model"
"""The part of a role's message that stands for a model which the node has: its digest."""

NO_SHIELD = (
    "no ShieldMod has handled the message: give the app ClientApp(mods=[ShieldMod(), ...]), for all of its functions "
    "and before every other mod"
)

Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Position = tuple[Number, Number]
"""How far a node's store has come: its epoch, and rows."""

NamedEvents = list[tuple[str, dict[str, Any]]]
MOST_EVENTS = 256
"""Of a client, in a reply: what is left comes with the next one."""

_MISSING = object()
_STYPE = "shieldfl.message 1"
_VERSION = 4


Kind = Literal[
    "hello",  # who it is
    "count",  # to train from the first model, and to say on how many samples
    "set-up",  # to take a public set-up and to enrol
    "train",  # to begin a round, to train, and to make the first phase's message
    "phase",  # to make a further phase's
    "model",  # to have the app evaluate the client's model
    "finish",  # to take what is left, after the last round
]


def packed(message: Message) -> ArrayRecord:
    """Return a role's message as an array, which Flower divides where it is too large for one of its messages."""
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
    found = bytes_in(content, name)
    return None if found is None else Message.from_bytes(found)


def ask(kind: Kind, **values: Any) -> ConfigRecord:
    """Return the record that asks for something, without what is empty: message_size_mod counts no empty value."""
    named = {name.replace("_", "-"): value for name, value in values.items() if value not in ("", b"", [])}
    return ConfigRecord({"version": _VERSION, "kind": kind, **named})


def said(record: Mapping[str, Any], name: str, kind: Any, default: Any = _MISSING) -> Any:
    try:
        return msgspec.convert(record.get(name, default), kind)
    except msgspec.ValidationError:
        raise WireFormatError(f"the message does not say {name.replace('-', ' ')} as it has to") from None


def asked_of(content: RecordDict) -> Mapping[str, Any]:
    """Return what a message asks for. Raises WireFormatError for nothing, or another version's."""
    record = content.config_records.get(ASK)
    if record is None:
        raise WireFormatError(NO_SHIELD)
    if record.get("version") != _VERSION or record.get("kind") not in get_args(Kind):
        raise WireFormatError(
            "the message is of another version of shieldfl: install the same one on the server and on all nodes"
        )
    return record


def model_parts(message: Message) -> Message | None:
    if not message.keys() >= GlobalModel.parts:
        return None
    return Message({name: message[name] for name in sorted(GlobalModel.parts)})


def with_held(message: Message, model: Message | None) -> Message | None:
    """Return a message with the model that it stands for, where that is this one; else None."""
    if model is None or digest_of_parts(model) != bytes(message[HELD]):
        return None
    return Message({**{name: part for name, part in message.items() if name != HELD}, **model})
