"""The aggregator's side of a served authority: each of the authority's steps is a call over HTTPS."""

from __future__ import annotations

import abc
import hashlib
import ssl
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Self, TypeVar

import httpx

import shieldfl.errors
from shieldfl.authority.message import Message
from shieldfl.authority.round_key_check import ANSWER_SIGNATURE, digest_of_parts, model_signature_name
from shieldfl.authority_service.identity import checked_public_key, checked_public_keys, signed_setup_of
from shieldfl.authority_service.served_session import SessionRequest, asked
from shieldfl.encryption.enrolment import (
    MOST_AUTHORITIES,
    VERIFYING_KEY_BYTES,
    AuthorityGroup,
    AuthorityIdentity,
)
from shieldfl.errors import KeyMismatchError, ParameterError, PolicyError, ShieldError, UnreachableError
from shieldfl.methods.registry import method_of
from shieldfl.privacy.events import OpenedSum
from shieldfl.rounds.opening_rule import ANSWER, ANSWERED_ROUND
from shieldfl.rounds.plan import PublicSetup
from shieldfl.rounds.reports import Reporter
from shieldfl.stateful import Uncopied

__all__ = ["AuthorityClient", "AuthorityConnection", "RemoteAuthority", "SeveralAuthorities"]

T = TypeVar("T")


class AuthorityConnection(Uncopied, abc.ABC):
    """Reaches the key authority of sessions, one or several, over HTTPS. Use it in ``with``."""

    _why_uncopied = "holds connections and is neither copied nor pickled"

    service_keys: bytes
    """Public key of each authority, 32 bytes, one after the other; set-ups of others are refused."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abc.abstractmethod
    def close(self) -> None:
        """Close the connections."""

    @abc.abstractmethod
    def begun(self, request: SessionRequest) -> tuple[SessionRequest, Message]:
        """Begin a session; return the request that began it, and its public set-up, signed."""

    @abc.abstractmethod
    def call(self, session_id: bytes, name: str, message: Message) -> Message:
        """Make one of the calls in :data:`~shieldfl.authority_service.served_session.CALLS`.

        Raises what the authority raises.
        """

    def begin_session(self, request: SessionRequest) -> RemoteAuthority:
        """Begin a session, or continue it if the same request has begun it.

        Raises PolicyError if the authority's policy does not allow the session; KeyMismatchError for a set-up
        that the pinned key has not signed, or that belongs to another request; ParameterError for a set-up
        with other facts than this side derives; UnreachableError, DataError.
        """
        asked_with, signed = self.begun(request)
        remote = RemoteAuthority(self, asked_with.id, signed)
        method = request.method
        asked_for = method.name, method.own_settings, method.plan
        if asked_for != (remote.setup.method, dict(remote.setup.settings), remote.setup.plan):
            raise KeyMismatchError("the authority has set up another session than was asked for")
        remote.setup.check_method(*asked_for, method.derived)
        remote.setup.check_model(request.initial)
        return remote

    def session(self, session_id: bytes) -> RemoteAuthority:
        """Continue a session by its id, 16 bytes. Raises what :meth:`begin_session` raises."""
        return RemoteAuthority(self, session_id, self.call(session_id, "set-up", asked()))


class AuthorityClient(AuthorityConnection):
    """Connects to one served authority. Threads may share it; close it, or use it in ``with``.

    Every call may be repeated: the same call gets the same answer. A call without an answer is repeated a few
    times, with pauses.

    Parameters
    ----------
    address : the authority's address, such as ``https://authority.example:7443``.
    tls : this side's certificate and the issuer that it trusts, see ``certificates.client_tls``.
    service_key : the authority's public key, 32 bytes or 64 hexadecimal digits; set-ups of other authorities
        are refused.
    timeout_seconds : the seconds that one attempt may take.
    attempts : the most attempts of one call, at least 1.
    pause_seconds : the seconds before the second attempt; twice as long before each further one.

    Raises ParameterError for an address or key of another kind, and for no attempt.
    """

    def __init__(
        self,
        address: str,
        tls: ssl.SSLContext,
        service_key: str | bytes,
        *,
        timeout_seconds: float = 120.0,
        attempts: int = 4,
        pause_seconds: float = 0.5,
    ) -> None:
        self.service_keys = checked_public_key(service_key)
        if not address.startswith("https://"):
            raise ParameterError(f"a key authority is reached by https://, not by {address!r}")
        if attempts < 1:
            raise ParameterError("a call takes at least one attempt")
        self.address = address
        self._attempts, self._pause = attempts, pause_seconds
        self._http = httpx.Client(base_url=address, verify=tls, timeout=timeout_seconds, trust_env=False)

    def close(self) -> None:
        self._http.close()

    def begun(self, request: SessionRequest) -> tuple[SessionRequest, Message]:
        return request, self._posted("/v1/sessions", request.to_message())

    def offer(self) -> AuthorityIdentity:
        """Ask for keys of one session in which other authorities have to answer, too.

        Raises what a call raises.
        """
        offered = self._posted("/v1/offers", asked())
        return AuthorityIdentity(bytes(offered["verifying key"]), bytes(offered["enrolment key"]))

    def call(self, session_id: bytes, name: str, message: Message) -> Message:
        return self._posted(f"/v1/sessions/{session_id.hex()}/{name}", message)

    def _posted(self, path: str, message: Message) -> Message:
        content, pause = message.to_bytes(), self._pause
        for attempt in range(1, self._attempts + 1):
            try:
                response = self._http.post(path, content=content)
                if response.status_code != httpx.codes.SERVICE_UNAVAILABLE or attempt == self._attempts:
                    return _read(response)
            except httpx.TransportError as error:
                if attempt == self._attempts:
                    raise UnreachableError(
                        f"the key authority at {self._http.base_url} does not answer ({error}): check that "
                        "it is served there and trusts this side's certificate, then repeat the call"
                    ) from error
            time.sleep(pause)
            pause *= 2.0
        raise AssertionError("attempts is at least 1")


def _read(response: httpx.Response) -> Message:
    if response.status_code == httpx.codes.OK:
        return Message.from_bytes(response.content)
    try:
        stated: Any = response.json()
        name, text = str(stated["error"]), str(stated["message"])
    except (ValueError, KeyError, TypeError):
        name, text = "", f"the key authority answered with status {response.status_code}"
    kind = getattr(shieldfl.errors, name, ShieldError)
    is_own = isinstance(kind, type) and issubclass(kind, ShieldError)
    raise (kind if is_own else ShieldError)(text)


class RemoteAuthority(Reporter):
    """A served authority's session, which drivers of rounds use like an embedded authority.

    Its state is on the authority's disk. Openings are reported when they are asked for, even if no answer
    comes. ``signed`` is the public set-up with the authority's signature. Raises KeyMismatchError if the
    pinned key has not signed it, WireFormatError.
    """

    def __init__(self, connection: AuthorityConnection, session_id: bytes, signed: Message) -> None:
        super().__init__()
        self._connection = connection
        self.session_id = session_id
        self.signed_setup = signed
        """The signed set-up for clients, which check the signature themselves."""
        content = signed_setup_of(signed, connection.service_keys)
        self.setup = PublicSetup.trusted(content)
        method = method_of(self.setup)
        self._opening = {phase.name for phase in method.phases if phase.answered_by_authority and phase.opens}
        self._signs_together = method.clients_open and len(self.setup.verifying_key) > VERIFYING_KEY_BYTES
        """Whether several authorities sign, for clients to open, what all of them have answered."""
        self._round = -1
        self._reported: dict[str, int] = {}  # by phase, the newest round of which an opened sum was reported
        self.bind(hashlib.sha256(content).digest(), "aggregator's view of the key authority", 0)

    def _call(self, name: str, message: Message) -> Message:
        return self._connection.call(self.session_id, name, message)

    def enrol(self, client: int, enrolment: Message) -> Message:
        return self._call("enrol", asked(client=client, message=enrolment))

    def grant(self, request: Message) -> Message:
        return self._call("grant", asked(message=request))

    def newest_model(self) -> Message:
        return self._call("newest-model", asked())

    def begin_round(
        self, round_number: int, invited: Iterable[int] | None = None, model: bytes = b""
    ) -> Message:
        first = self._call("begin-round", asked(round=round_number, invited=invited, model=model))
        self._round = round_number
        return first

    def answer(self, phase: str, message: Message) -> Message:
        if phase in self._opening:
            number = message.number("round") if "round" in message else self._round
            if number < 0:
                raise PolicyError(
                    "no round was begun here: begin the round, if need be again, before its sums are opened"
                )
            if self._reported.get(phase) != number:
                self._reported[phase] = number
                self.record(OpenedSum(number))
        reply = self._call("answer", asked(phase=phase, message=message))
        if self._signs_together:
            number, digest = reply.number(ANSWERED_ROUND), digest_of_parts(reply)
            reply = Message({**reply, **self.sign_answer(phase, number, digest)})
        return reply

    def revoke(self, client: int) -> None:
        """Raise PolicyError: an aggregator cannot revoke clients."""
        raise PolicyError("only the authority's operator revokes clients: `shieldfl authority revoke`")

    def sign_answer(self, phase: str, round_number: int, digest: bytes) -> Message:
        """Have a phase's result signed, if the aggregator opens it or several authorities answered."""
        return self._call("sign-answer", asked(phase=phase, round=round_number, digest=digest))


_OF_EACH = {ANSWER, ANSWER_SIGNATURE, "grant", "signature"}
"""Parts of answers that hold a piece of each authority, one after the other."""


class SeveralAuthorities(AuthorityConnection):
    """Asks several authorities in turn, and joins their answers: a single honest one suffices.

    Each authority has a part of every client's secret, keeps to its own policy and memory, and signs what it
    has agreed to; clients take what all have signed. If one refuses, those after it are not asked.
    ``clients`` may be in any order, and are closed together with this object. Raises ParameterError for fewer
    than two or more than three, and for the same authority twice.
    """

    def __init__(self, clients: Sequence[AuthorityClient]) -> None:
        if not 2 <= len(clients) <= MOST_AUTHORITIES:
            raise ParameterError(f"give two to {MOST_AUTHORITIES} authorities, not {len(clients)}")
        # The order of pieces in all answers, in whatever order the authorities are given.
        self._clients = sorted(clients, key=lambda client: client.service_keys)
        self.service_keys = checked_public_keys(b"".join(client.service_keys for client in self._clients))
        # By a request's nonce: the group for which a session was asked, to ask the same after a lost answer.
        self._groups: dict[bytes, AuthorityGroup] = {}

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def begun(self, request: SessionRequest) -> tuple[SessionRequest, Message]:
        """Have each authority offer keys, and begin a session with the keys of all.

        The same request uses the same offers, unless an authority has refused them: offers are good for one
        attempt.
        """
        if request.nonce not in self._groups:
            self._groups[request.nonce] = AuthorityGroup(tuple(self._of_each(AuthorityClient.offer)))
        request = replace(request, group=self._groups[request.nonce])
        try:
            return request, _joined(self._of_each(lambda client: client.begun(request)[1]))
        except UnreachableError:
            raise  # it may have been begun
        except ShieldError:
            del self._groups[request.nonce]
            raise

    def call(self, session_id: bytes, name: str, message: Message) -> Message:
        """Make a call at each authority.

        Raises what one of them raises, and PolicyError if their answers differ.
        """
        return _joined(self._of_each(lambda client: client.call(session_id, name, message)))

    def _of_each(self, ask: Callable[[AuthorityClient], T]) -> list[T]:
        answers = []
        for client in self._clients:
            try:
                answers.append(ask(client))
            except UnreachableError:
                raise  # it names the address
            except ShieldError as error:
                raise type(error)(f"{client.address}: {error}") from error
        return answers


_DIFFERENT = (
    "the key authorities have not answered the same: one has refused or missed a call, or they have "
    "different versions. Repeat that call; if it is still refused, begin another session from the newest "
    "model, with one version of shieldfl at all of them"
)


def _joined(answers: Sequence[Message]) -> Message:
    joined: dict[str, bytes] = {}
    if any(other.keys() != answers[0].keys() for other in answers):
        raise PolicyError(_DIFFERENT)
    for name in answers[0]:
        parts = [bytes(answer[name]) for answer in answers]
        if name in _OF_EACH or name.startswith(model_signature_name()):
            joined[name] = b"".join(parts)
        elif len(set(parts)) > 1:
            raise PolicyError(_DIFFERENT)
        else:
            joined[name] = parts[0]
    return Message(joined)
