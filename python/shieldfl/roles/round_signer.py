"""A key authority's side of rounds, whatever the scheme: what it signs, so that nobody goes on with another one."""

from __future__ import annotations

import abc
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from shieldfl.errors import ParameterError
from shieldfl.roles.message import Part
from shieldfl.roles.round_key_check import (
    ANSWER_SIGNATURE,
    RoundKeyCheck,
    model_signature_name,
    signed_answer,
    signed_model,
)
from shieldfl.roles.total_opener import TotalOpener
from shieldfl.stateful import Stateful, Uncopied

__all__ = ["RoundSigner"]


class RoundSigner(Stateful, Uncopied, abc.ABC):
    """Holds a federation's secrets, begins its rounds, and signs for the one that was begun last.

    Parameters
    ----------
    signing_key : an Ed25519 private key.
    check : what clients and aggregator hold of the federation.
    """

    changes: ClassVar = {"_round": int}

    def __init__(self, signing_key: Any, check: RoundKeyCheck) -> None:
        self._signing_key = signing_key
        self.check = check
        """What clients and aggregator hold from set-up."""
        self._lock = threading.Lock()
        self._round = -1

    @property
    def newest_round(self) -> int:
        """The round that was begun last; -1 before the first."""
        return self._round

    def settle(self, check: RoundKeyCheck) -> None:
        """Take what the public set-up, which was made since, says besides."""
        self.check = check

    def sign_model(self, digest: bytes, invited: Part, client: int | None = None) -> dict[str, bytes]:
        """Return, as a part of its first message, what binds the newest round to a model: for one client or for all.

        ``digest`` is what :func:`digest_of_parts` returns of the model, ``invited`` the part that says which clients
        are asked. Whoever signs a second model of a round undoes the first.
        """
        name = model_signature_name(client)
        with self._lock:
            signed = signed_model(self.check.session, self._round, name, invited, digest)
            return {name: self._signing_key.sign(signed)}

    def sign_answer(self, phase: str, digest: bytes) -> dict[str, bytes]:
        """Return, as a part of it, what binds an answer, of which ``digest`` is, to the newest round and a phase."""
        with self._lock:
            signed = signed_answer(self.check.session, self._round, phase, digest)
            return {ANSWER_SIGNATURE: self._signing_key.sign(signed)}

    def enrol(self, client: int, request: Part) -> bytes:
        """Take what a client shares with the authority from now on; return what lets it open answers.

        Raises ParameterError where none enrols.
        """
        raise ParameterError("clients of this federation encrypt to public keys: none enrols")

    def grant_opener(self, request: Part) -> bytes:
        """Return, sealed for the aggregator whose request this is, what opens answers.

        Raises KeyMismatchError for a request of others, PolicyError for a second one; ParameterError where none enrols.
        """
        raise ParameterError("clients of this federation encrypt to public keys: no answers are granted")

    def revoke(self, client: int) -> None:
        """Answer no list any more that has a client in it. Raises ParameterError where none enrols."""
        raise ParameterError("clients of this federation encrypt to public keys: none can be revoked")

    def close(self) -> None:
        """Give up the file of this one's memory, where it has one."""

    def keep_first_message(self, round_number: int, digest: bytes) -> None:
        """Keep, before it leaves, what a round's first message is, of which ``digest`` is.

        Raises PolicyError where the memory that goes on beside older states of this has another one.
        """

    @contextmanager
    def replying(self, phase: str, round_number: int) -> Iterator[Callable[[bytes], None]]:
        """Reply to a phase of a round in ``with``: yields what keeps the digest of the reply, before that leaves.

        Where it ends without an error, whoever asked has the reply in its state. Raises PolicyError, at its begin,
        while replies that were kept before this one are not in there, and, on keeping, for another reply.
        """
        yield lambda digest: None

    @abc.abstractmethod
    def begin_round(self, round_number: int, purposes: Iterable[str] = ("update",)) -> dict[str, bytes]:
        """Begin a round, and return what its first message has to bring of keys for these purposes.

        Secrets of the round before are wiped. A round that is begun again has the same keys. Raises PolicyError for a
        round before the newest: rounds only go up.
        """

    @abc.abstractmethod
    def opener(self, round_number: int, purpose: str = "update") -> TotalOpener[Any]:
        """Return what opens the round's total. Raises PolicyError for other rounds than the newest, and wiped keys."""

    def sum_key(self, round_number: int, purpose: str, request: Part) -> bytes:
        """Answer a list of participants with what opens their total. Raises ParameterError where none enrols."""
        raise ParameterError(
            "clients of this federation encrypt to public keys: lists of them are not answered"
        )

    @abc.abstractmethod
    def wipe(self, round_number: int, purpose: str = "update") -> None:
        """Open no more for a purpose of the newest round, once its one total was answered."""
