"""What an aggregator asks of a served authority's session, as messages: both sides of the wire, call by call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

import numpy as np

from shieldfl.authority_service.served_session import ServedSession
from shieldfl.errors import ParameterError, WireFormatError
from shieldfl.roles.message import Message, Part

__all__ = ["CALLS", "answered", "asked"]

_INVITED, _MODEL, _DIGEST = "invited", "model", "digest"
_CLIENT, _ROUND, _PHASE, _MESSAGE = "client", "round", "phase", "message"


def asked(
    *,
    client: int | None = None,
    round_number: int | None = None,
    phase: str | None = None,
    invited: Iterable[int] | None = None,
    model: bytes = b"",
    digest: bytes = b"",
    message: Message | None = None,
) -> Message:
    """Return a call's message, of the arguments that it has."""
    parts: dict[str, Part] = {}
    if client is not None:
        parts[_CLIENT] = Message.from_number(client)
    if round_number is not None:
        parts[_ROUND] = Message.from_number(round_number)
    if phase is not None:
        parts[_PHASE] = phase.encode()
    if invited is not None:
        parts[_INVITED] = np.array([*invited], dtype="<u8").tobytes()
    if model:
        parts[_MODEL] = model
    if digest:
        parts[_DIGEST] = digest
    if message is not None:
        parts[_MESSAGE] = message.to_bytes()
    return Message(parts)


def _phase_of(call: Message) -> str:
    try:
        return bytes(call[_PHASE]).decode()
    except UnicodeDecodeError as error:
        raise WireFormatError("the call names a phase that is no text") from error


def _invited_of(call: Message) -> list[int] | None:
    if _INVITED not in call:
        return None
    part = call[_INVITED]
    return [int(one) for one in call.vector(_INVITED, np.uint64, len(part) // 8)]


def _inner(call: Message) -> Message:
    return Message.from_bytes(call[_MESSAGE])


def _model_of(call: Message) -> bytes:
    return bytes(call[_MODEL]) if _MODEL in call else b""


CALLS: Mapping[str, Callable[[ServedSession, Message], Message]] = MappingProxyType(
    {
        "set-up": lambda session, call: session.setup,
        "enrol": lambda session, call: session.enrol(call.number(_CLIENT), _inner(call)),
        "grant": lambda session, call: session.grant(_inner(call)),
        "begin-round": lambda session, call: session.begin_round(
            call.number(_ROUND), _invited_of(call), _model_of(call)
        ),
        "answer": lambda session, call: session.answer(_phase_of(call), _inner(call)),
        "sign-answer": lambda session, call: session.sign_answer(
            _phase_of(call), call.number(_ROUND), bytes(call[_DIGEST])
        ),
        "newest-model": lambda session, call: session.newest_model(),
    }
)
"""What a session does for each call, by its name in addresses."""


def answered(session: ServedSession, name: str, call: Message) -> Message:
    """Carry a call out. Raises ParameterError for one that there is not, and as the session does."""
    if name not in CALLS:
        raise ParameterError(f"a session has no call {name!r}: it has {', '.join(CALLS)}")
    return CALLS[name](session, call)
