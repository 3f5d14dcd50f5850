"""The aggregator's side of sessions in which two or three served authorities have to answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from shieldfl.authority.message import Message
from shieldfl.authority.round_key_check import ANSWER_SIGNATURE, model_signature_name
from shieldfl.authority_service.authority_client import AuthorityClient, AuthorityConnection
from shieldfl.authority_service.identity import checked_public_keys
from shieldfl.authority_service.session_request import SessionRequest
from shieldfl.encryption.enrolment import MOST_AUTHORITIES, AuthorityGroup
from shieldfl.errors import ParameterError, PolicyError, ShieldError, UnreachableError
from shieldfl.rounds.messages import ANSWER

__all__ = ["SeveralAuthorities"]

T = TypeVar("T")

_OF_EACH = {ANSWER, ANSWER_SIGNATURE, "grant", "signature"}
"""Parts of answers in which something of each authority stands, one after the other."""


class SeveralAuthorities(AuthorityConnection):
    """Asks each of several authorities, one after the other, and joins what they answer: one that is honest suffices.

    Each has a part of every client's secret, keeps to its own policy and memory, and signs what it has agreed to;
    clients take what all have signed. Where one refuses, those after it are not asked.

    Parameters
    ----------
    clients : two or three, in whatever order; closed together with this.

    Raises ParameterError for other numbers, or the same authority twice.
    """

    def __init__(self, clients: Sequence[AuthorityClient]) -> None:
        if not 2 <= len(clients) <= MOST_AUTHORITIES:
            raise ParameterError(f"several authorities are two to {MOST_AUTHORITIES}, and not {len(clients)}")
        # In one order, whichever they are named in: it is that of the parts of all answers.
        self._clients = sorted(clients, key=lambda client: client.service_keys)
        self.service_keys = checked_public_keys(b"".join(client.service_keys for client in self._clients))
        self._groups: dict[bytes, AuthorityGroup] = {}
        """By a request's nonce, with what it was asked for: again so, where no answer came."""

    def close(self) -> None:
        """Close the connections."""
        for client in self._clients:
            client.close()

    def begun(self, request: SessionRequest) -> tuple[SessionRequest, Message]:
        """Have each authority offer keys, and begin a session with those of all.

        The same request has the same offers, unless an authority has refused them: those are good for one attempt.
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
        """Carry a call out at each. Raises what one of them does, and PolicyError where they answer differently."""
        return _joined(self._of_each(lambda client: client.call(session_id, name, message)))

    def _of_each(self, ask: Callable[[AuthorityClient], T]) -> list[T]:
        answers = []
        for client in self._clients:
            with _named(client):
                answers.append(ask(client))
        return answers


def _joined(answers: Sequence[Message]) -> Message:
    first, *others = answers
    if any(other.keys() != first.keys() for other in others):
        raise PolicyError(_DIFFERENT)
    return Message({name: _joined_part(name, answers) for name in first})


@contextmanager
def _named(client: AuthorityClient) -> Iterator[None]:
    """Say of a refusal whose it is."""
    try:
        yield
    except UnreachableError:
        raise  # it names the address
    except ShieldError as error:
        raise type(error)(f"{client.address}: {error}") from error


_DIFFERENT = (
    "the key authorities have not answered the same: one of them has refused, or not got, a call that another one has "
    "answered, or they are of different versions. Repeat that call; where it is still refused, begin another session "
    "from the newest model, with one version of shieldfl at all of them"
)


def _joined_part(name: str, answers: Sequence[Message]) -> bytes:
    parts = [bytes(answer[name]) for answer in answers]
    if name in _OF_EACH or name.startswith(model_signature_name()):
        return b"".join(parts)
    if len(set(parts)) > 1:
        raise PolicyError(_DIFFERENT)
    return parts[0]
