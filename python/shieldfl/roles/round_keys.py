"""The key authority's pairs by round: a new one for each unless the scheme's last, public halves signed."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, cast

from shieldfl.array_view import as_unsigned
from shieldfl.errors import KeyMismatchError, PolicyError
from shieldfl.roles import key_authority, key_file
from shieldfl.roles.key_authority import KeyAuthority
from shieldfl.roles.round_key_check import (
    SESSION_BYTES,
    RoundKeyCheck,
    ed25519,
    encode_round_key,
    signed_bytes,
)
from shieldfl.roles.round_signer import RoundSigner
from shieldfl.scheme.parameters import SchemeParameters
from shieldfl.scheme.registry import scheme_of
from shieldfl.stateful import refuse_unless

__all__ = ["MakePair", "RoundKeys"]

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
    weight_bounds : of encrypted weights, as for :class:`~shieldfl.roles.key_authority.KeyAuthority`.
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
        super().check_changed()
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
