"""A key authority's side of rounds: what it signs, and a round's keys, in schemes in which nobody enrols."""

from __future__ import annotations

import abc
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, cast

from shieldfl.array_view import as_unsigned
from shieldfl.authority import key_authority, key_file
from shieldfl.authority.key_authority import KeyAuthority
from shieldfl.authority.message import Part
from shieldfl.authority.round_key_check import (
    ANSWER_SIGNATURE,
    SESSION_BYTES,
    RoundKeyCheck,
    ed25519,
    encode_round_key,
    model_signature_name,
    signed_answer,
    signed_bytes,
    signed_model,
)
from shieldfl.authority.total_opener import TotalOpener
from shieldfl.encryption.parameters import SchemeParameters
from shieldfl.encryption.registry import scheme_of
from shieldfl.errors import KeyMismatchError, ParameterError, PolicyError
from shieldfl.stateful import Uncopied, refuse_unless


class RoundSigner(Uncopied, abc.ABC):
    """Holds a federation's secrets, begins its rounds, and signs for the one that was begun last.

    Parameters
    ----------
    signing_key : an Ed25519 private key.
    check : what clients and aggregator hold of the federation.
    """

    changes: ClassVar[Mapping[str, Any]] = {"_round": int}

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


MakePair = Callable[..., KeyAuthority[Any]]
"""Makes a pair of some parameters, as :class:`KeyAuthority` does and of its arguments."""

_SIGNING_KEY_BYTES = 32


class RoundKeys(RoundSigner):
    """Makes, signs and wipes the keys of one federation's rounds.

    CKKS pairs live for one round: an opened sum with a ciphertext in it that was not made honestly can tell the secret
    key, which then opens what was encrypted under it, but nothing of other rounds. Paillier pairs, which take seconds
    to make and have no such weakness, serve all rounds; they are signed for each round like the others.

    Parameters
    ----------
    parameters : by purpose: ``"update"``, and what else is encrypted under a key of its own.
    min_clients : the fewest clients of a total that is opened.
    weight_bounds : of encrypted weights, as for :class:`~shieldfl.authority.key_authority.KeyAuthority`.
    threads : for opening; None for as many as the work is worth.
    make_pair : what makes pairs; None for what makes each anew.
    check : of a federation that was set up before: no keys are made then, and no round begins until the state of the
        one that made them was taken. None makes them.

    Raises ParameterError, and ShieldError where the ``cryptography`` package is missing.
    """

    _why_uncopied = "hold secret keys and are neither copied nor pickled"

    changes: ClassVar = {
        "_secret_signing_key": bytes,
        "_pairs": dict[str, tuple[bool, key_file.Contents]],
        "_parts": dict[str, dict[str, bytes]],
    }

    def __init__(
        self,
        parameters: Mapping[str, SchemeParameters[Any, Any]],
        min_clients: int,
        *,
        weight_bounds: tuple[float, float] = (1.0, 1.0),
        threads: int | None = None,
        make_pair: MakePair | None = None,
        check: RoundKeyCheck | None = None,
    ) -> None:
        signing_key = ed25519().Ed25519PrivateKey.generate()
        verifying_key = signing_key.public_key().public_bytes_raw()
        session = secrets.token_bytes(SESSION_BYTES)
        super().__init__(signing_key, check or RoundKeyCheck(verifying_key, session, dict(parameters)))
        self.min_clients = min_clients
        self._weight_bounds = weight_bounds
        self._threads = threads
        self._make_pair = make_pair or cast(
            MakePair, KeyAuthority
        )  # of none of these schemes is there an enrolment
        # Made at once, so that what is out of range is refused at set-up; the first round takes these pairs.
        self._made = {} if check else {purpose: self._make(purpose) for purpose in parameters}
        self._lasting = {
            purpose: authority
            for purpose, authority in self._made.items()
            if scheme_of(parameters[purpose]).keys_last
        }
        self._authorities: dict[str, KeyAuthority] = {}
        self._parts: dict[str, dict[str, bytes]] = {}
        self._has_keys = check is None

    @property
    def _secret_signing_key(self) -> bytes:
        self._check_keys()
        return bytes(self._signing_key.private_bytes_raw())

    @_secret_signing_key.setter
    def _secret_signing_key(self, secret: bytes) -> None:
        refuse_unless(len(secret) == _SIGNING_KEY_BYTES)
        self._signing_key = ed25519().Ed25519PrivateKey.from_private_bytes(secret)
        if self._signing_key.public_key().public_bytes_raw() != self.check.verifying_key:
            raise KeyMismatchError("the state has the signing key of another federation")
        self._has_keys = True

    @property
    def _pairs(self) -> dict[str, tuple[bool, key_file.Contents]]:
        """Every pair whose secret is held, by purpose, and whether the round that runs has it."""
        held = self._made | self._lasting | self._authorities
        return {purpose: (purpose in self._authorities, one.contents()) for purpose, one in held.items()}

    @_pairs.setter
    def _pairs(self, pairs: dict[str, tuple[bool, key_file.Contents]]) -> None:
        refuse_unless(pairs.keys() <= self.check.parameters.keys())
        self._made, self._lasting, self._authorities = {}, {}, {}
        for purpose, (taken, contents) in pairs.items():
            authority = key_authority.KeyAuthority.of_contents(contents, threads=self._threads)
            if scheme_of(self.check.parameters[purpose]).keys_last:
                self._lasting[purpose] = authority
            if taken:
                self._authorities[purpose] = authority
            elif purpose not in self._lasting:
                self._made[purpose] = authority

    def check_changed(self) -> None:
        """Raise WireFormatError for pairs of other parameters or policy than the federation's."""
        own = self.check.parameters
        for purpose, one in (self._made | self._lasting | self._authorities).items():
            policy = one.min_clients, one.weight_bounds, one.one_total_per_round
            refuse_unless(policy == (self.min_clients, self._weight_bounds, True))
            refuse_unless(one.public_key.parameters == own[purpose])
        refuse_unless(self._parts.keys() <= own.keys())

    def _check_keys(self) -> None:
        if not self._has_keys:
            raise PolicyError("this key authority has no keys: restore the state of the one that made them")

    def _make(self, purpose: str) -> KeyAuthority[Any]:
        parameters = self.check.parameters[purpose]
        return self._make_pair(
            parameters, self.min_clients, threads=self._threads, weight_bounds=self._weight_bounds
        )

    def begin_round(self, round_number: int, purposes: Iterable[str] = ("update",)) -> dict[str, bytes]:
        """Return the round's public keys for these purposes, signed."""
        number = as_unsigned(round_number, "round_number")
        with self._lock:
            self._check_keys()
            if number < self._round:
                raise PolicyError(
                    f"round {number} is over since round {self._round} began, and its keys were wiped: begin a later "
                    "round"
                )
            if number > self._round:
                self._wipe(list(self._authorities))
                self._round, self._parts = number, {}
            parts: dict[str, bytes] = {}
            for purpose in purposes:
                if purpose not in self._parts:
                    self._parts[purpose] = self._open_purpose(purpose)
                parts |= self._parts[purpose]
            return parts

    def _open_purpose(self, purpose: str) -> dict[str, bytes]:
        authority = self._lasting.get(purpose) or self._made.pop(purpose, None) or self._make(purpose)
        self._authorities[purpose] = authority
        frame = authority.public_key.to_bytes()
        signed = signed_bytes(self.check.session, self._round, purpose, frame)
        return encode_round_key(purpose, frame, self._signing_key.sign(signed))

    def opener(self, round_number: int, purpose: str = "update") -> KeyAuthority:
        """Return the pair of a purpose."""
        with self._lock:
            authority = self._authorities.get(purpose)
            if round_number == self._round and authority is not None:
                return authority
        raise PolicyError(
            f"there is no secret key for {purpose!r} of round {round_number}: the round was not begun, or is over and "
            "its key wiped. Begin a later round"
        )

    def wipe(self, round_number: int, purpose: str = "update") -> None:
        """Give up a secret of the newest round, once its one total was answered. Other rounds' are gone already."""
        with self._lock:
            if round_number == self._round:
                self._wipe([purpose])

    def _wipe(self, purposes: Iterable[str]) -> None:
        for purpose in purposes:
            authority = self._authorities.pop(purpose, None)
            if authority is not None and purpose not in self._lasting:
                authority.wipe()
