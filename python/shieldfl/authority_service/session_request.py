"""What an aggregator asks for to begin a session: a method, its settings, a plan, and the model that it starts from."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from shieldfl.authority.message import Message
from shieldfl.encryption.enrolment import AuthorityGroup
from shieldfl.errors import ParameterError, WireFormatError
from shieldfl.methods.registry import MethodSettings, make_method
from shieldfl.rounds.method import Method
from shieldfl.rounds.plan import FederationPlan, GlobalModel

__all__ = ["SessionRequest"]

SESSION_ID_BYTES = 16
_OFFERS = "offers"
_NONCE_BYTES = 16
_MOST_ASKED_BYTES = 2**20  # a list of numbers takes some thirty times as much memory once it was read


@dataclass(frozen=True)
class SessionRequest:
    """One session. The same request, nonce and all, begins it once: a lost answer is asked for again.

    Parameters
    ----------
    method : under its plan.
    initial : the model before the first round.
    nonce : 16 random bytes, which tell this session from one that is alike; by default new ones.
    group : of several authorities, what each has offered for this session; None for one authority alone.

    Raises ParameterError for another nonce.
    """

    method: Method
    initial: GlobalModel
    nonce: bytes = b""
    group: AuthorityGroup | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "nonce", self.nonce or secrets.token_bytes(_NONCE_BYTES))
        if len(self.nonce) != _NONCE_BYTES:
            raise ParameterError(f"a session's nonce has {_NONCE_BYTES} random bytes")

    @property
    def id(self) -> bytes:
        """What names the session at its authority: 16 bytes."""
        return hashlib.sha256(self.to_message().to_bytes()).digest()[:SESSION_ID_BYTES]

    def to_message(self) -> Message:
        method = self.method
        asked = {"method": method.name, "settings": method.own_settings, "plan": method.plan}
        parts = {"asked": msgspec.json.encode(asked, order="sorted"), "nonce": self.nonce}
        offers = {} if self.group is None else {_OFFERS: self.group.to_bytes()}
        return Message({**parts, **offers, **self.initial.to_message()})

    @classmethod
    def from_message(
        cls, message: Message, check_plan: Callable[[FederationPlan], None] = lambda plan: None
    ) -> SessionRequest:
        """Read what :meth:`to_message` wrote. Raises WireFormatError, and ParameterError for what no method takes.

        ``check_plan`` raises for a plan that is not allowed, before anything is made of its numbers.
        """
        if len(message["asked"]) > _MOST_ASKED_BYTES:
            raise WireFormatError(
                f"a method, its settings and a plan take at most {_MOST_ASKED_BYTES:,} bytes as JSON"
            )
        try:
            asked = msgspec.json.decode(message["asked"], type=dict[str, Any])
            parts = [asked.get(name) for name in ("method", "settings", "plan")]
            name, changed, plan = msgspec.convert(parts, tuple[str, dict[str, Any], FederationPlan])
        except (ValueError, RecursionError, ParameterError) as error:
            raise WireFormatError(f"these bytes ask for no session of this version: {error}") from error
        check_plan(plan)
        settings = MethodSettings().changed(name, changed) if changed else MethodSettings()
        initial = GlobalModel.from_message(message, plan.parameters, plan.buffers)
        nonce = bytes(message["nonce"])
        if len(nonce) != _NONCE_BYTES:
            raise WireFormatError(f"a session's nonce has {_NONCE_BYTES} bytes")
        group = AuthorityGroup.from_bytes(bytes(message[_OFFERS])) if _OFFERS in message else None
        return cls(make_method(name, settings, plan), initial, nonce, group)
