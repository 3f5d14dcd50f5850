"""The aggregator's side of sessions in which two or three served authorities have to answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from shieldfl.authority_service.authority_client import AuthorityClient, AuthorityConnection
from shieldfl.authority_service.identity import checked_public_keys
from shieldfl.authority_service.session_request import SessionRequest
from shieldfl.errors import PolicyError, ShieldError, UnreachableError
from shieldfl.methods.protocol.list_authority import ANSWER
from shieldfl.roles.message import Message
from shieldfl.roles.round_key_check import ANSWER_SIGNATURE, model_signature_name
from shieldfl.scheme.enrolment import AuthorityGroup

__all__ = ["SeveralAuthorities"]

_OF_EACH = {ANSWER, ANSWER_SIGNATURE, "grant", "signature"}
"""Parts of answers in which something of each authority stands, one after the other."""


class SeveralAuthorities(AuthorityConnection):
    """Asks each of several authorities, one after the other, and joins what they answer: one that is honest suffices.

    Each has a part of every client's secret, keeps to its own policy and memory, and signs what it has agreed to;
    clients take what all have signed. Where one refuses, those after it are not asked.

    Parameters
    ----------
    clients : two or three, in the order of their sessions; closed together with this.

    Raises ParameterError for other numbers, or the same authority twice.
    """

    def __init__(self, clients: Sequence[AuthorityClient]) -> None:
        self.service_keys = checked_public_keys(b"".join(client.service_keys for client in clients))
        self._clients = list(clients)

    def close(self) -> None:
        """Close the connections."""
        for client in self._clients:
            client.close()

    def begun(self, request: SessionRequest) -> tuple[SessionRequest, Message]:
        """Have each authority offer keys, and begin a session with those of all.

        A request that has a group was begun before, and is asked for again.
        """
        if request.group is None:
            offers = [client.offer() for client in self._clients]
            request = replace(request, group=AuthorityGroup(tuple(offers)))
        answers = []
        for client in self._clients:
            with _named(client):
                answers.append(client.begun(request)[1])
        return request, self._joined(answers)

    def call(self, session_id: bytes, name: str, message: Message) -> Message:
        """Carry a call out at each. Raises what one of them does, and PolicyError where they answer differently."""
        answers = []
        for client in self._clients:
            with _named(client):
                answers.append(client.call(session_id, name, message))
        return self._joined(answers)

    def _joined(self, answers: Sequence[Message]) -> Message:
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
    "answered. Repeat that call; where it is still refused, begin another session from the newest model"
)


def _joined_part(name: str, answers: Sequence[Message]) -> bytes:
    parts = [bytes(answer[name]) for answer in answers]
    if name in _OF_EACH or name.startswith(model_signature_name()):
        return b"".join(parts)
    if len(set(parts)) > 1:
        raise PolicyError(_DIFFERENT)
    return parts[0]
