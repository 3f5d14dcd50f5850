"""Enrolment: how a client and the key authority share a key, and what a session makes public.

The client draws the secret and seals it to the authority's public key, which it has pinned: by HPKE (RFC
9180), with ML-KEM-768 and X25519 together, so that the request stays sealed while either of both holds. If
clients open sums, the authority answers with a grant under that secret: the key that opens this session's
answers. An answer is signed for one request, sealed for those who may open it, and holds a total's key.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

import shieldfl._core as _core
from shieldfl.array_view import Buffer, as_frame, as_threads, as_unsigned
from shieldfl.build_info import cryptographic
from shieldfl.encryption.parameters import SchemePublicKey, checked_key
from shieldfl.errors import KeyMismatchError, ParameterError, PolicyError, WireFormatError
from shieldfl.stateful import Uncopied

SECRET_BYTES = 32
"""Length in bytes of the secret that a client and the authority share, and of the key that opens answers."""

MOST_AUTHORITIES: int = _core.ClientKey.most_authorities
"""Largest number of authorities of a session."""
OPENER = "aggregator"
"""Name in which an aggregator asks for the key that opens answers; it is no client, and enrolled as none."""

VERIFYING_KEY_BYTES = 32
"""Length in bytes of the Ed25519 public key for an authority's signatures."""

_MLKEM_BYTES = 1184
_X25519_BYTES = 32
ENROLMENT_KEY_BYTES = _MLKEM_BYTES + _X25519_BYTES
"""Length in bytes of the public key that secrets are sealed to."""

_MOST_NAME_BYTES = 255
_NAMED = 2**31
_NONCE_BYTES = 12

_IDENTITY_DOMAIN = b"shieldfl authority 1\0"
_GROUP_DOMAIN = b"shieldfl authorities 1\0"
_REQUEST_DOMAIN = b"shieldfl enrolment 1\0"
_GRANT_DOMAIN = b"shieldfl grant 1\0"
_HEAD = struct.Struct("<4sBIB")
_MAGIC, _VERSION = b"SHER", 1


@dataclass(frozen=True)
class AuthorityIdentity:
    """The public keys of a key authority, which clients pin.

    Raises ParameterError for keys of other lengths.
    """

    verifying_key: bytes
    """Ed25519 public key, 32 bytes, that checks the authority's signatures."""
    enrolment_key: bytes
    """ML-KEM-768 and X25519 public keys, 1,216 bytes, that secrets are sealed to."""

    def __post_init__(self) -> None:
        if (len(self.verifying_key), len(self.enrolment_key)) != (VERIFYING_KEY_BYTES, ENROLMENT_KEY_BYTES):
            raise ParameterError("an authority's identity has keys of 32 and of 1,216 bytes")

    @property
    def id(self) -> bytes:
        """16 bytes that stand for both keys."""
        both = _IDENTITY_DOMAIN + self.verifying_key + self.enrolment_key
        return hashlib.blake2b(both, digest_size=16).digest()

    @property
    def members(self) -> tuple[AuthorityIdentity, ...]:
        """The authority alone, as in a group."""
        return (self,)

    epochs: ClassVar[tuple[int, ...]] = (0,)
    """Always ``(0,)``: a single authority's epoch stands in its sessions' public keys."""

    def epoch_of(self, member: AuthorityIdentity) -> int | None:
        """Return None: the epoch stands in the sessions' public keys."""
        return None

    def to_bytes(self) -> bytes:
        """Encode: both keys, 1,248 bytes; :func:`read_identity` reads them."""
        return self.verifying_key + self.enrolment_key

    def seal(self, secret: bytes, context: bytes) -> bytes:
        """Seal a secret for the authority alone, bound to a context.

        Raises ParameterError for no valid key.
        """
        mlkem, x25519 = (cryptographic(f"asymmetric.{name}", "enrolments") for name in ("mlkem", "x25519"))
        first, second = self.enrolment_key[:_MLKEM_BYTES], self.enrolment_key[_MLKEM_BYTES:]
        try:
            public_key = hpke().MLKEM768X25519PublicKey(
                mlkem.MLKEM768PublicKey.from_public_bytes(first),
                x25519.X25519PublicKey.from_public_bytes(second),
            )
            return bytes(hpke_suite().encrypt(secret, public_key, context))
        except ValueError:
            raise ParameterError(
                "the authority's enrolment key is no public key: pin the right one"
            ) from None


@dataclass(frozen=True)
class AuthorityGroup:
    """Two or three authorities that all have to answer: an honest one suffices to protect clients.

    Each client shares a secret with each of them, and encrypts under the sum of what follows from these.
    Raises ParameterError for too many or too few, or one that is named twice.
    """

    members: tuple[AuthorityIdentity, ...]
    """The authorities, in the order in which answers are given to the opener."""
    epochs: tuple[int, ...] = ()
    """Epoch of each member's store when the session began; () stands for 0 of all.

    A member whose store was restored since then refuses.
    """

    def __post_init__(self) -> None:
        if not 2 <= len(self.members) <= MOST_AUTHORITIES or len(set(self.members)) != len(self.members):
            raise ParameterError(f"a group is of two to {MOST_AUTHORITIES} different authorities")
        given = self.epochs or (0,) * len(self.members)
        epochs = tuple(as_unsigned(epoch, "an epoch", 32) for epoch in given)
        if len(epochs) != len(self.members):
            raise ParameterError("a group has an epoch for each of its authorities")
        object.__setattr__(self, "epochs", epochs)

    @property
    def id(self) -> bytes:
        """16 bytes that stand for all members and their epochs, in their order."""
        named = self._with_epochs([member.id for member in self.members])
        return hashlib.blake2b(_GROUP_DOMAIN + named, digest_size=16).digest()

    def _with_epochs(self, members: list[bytes]) -> bytes:
        each = zip(members, self.epochs, strict=True)
        return b"".join(member + struct.pack("<I", epoch) for member, epoch in each)

    def epoch_of(self, member: AuthorityIdentity) -> int | None:
        return self.epochs[self.members.index(member)]

    def to_bytes(self) -> bytes:
        return self._with_epochs([member.to_bytes() for member in self.members])

    @classmethod
    def from_bytes(cls, data: bytes) -> AuthorityGroup:
        record = struct.Struct(f"<{VERIFYING_KEY_BYTES}s{ENROLMENT_KEY_BYTES}sI")
        try:
            read = list(record.iter_unpack(data))
            members = tuple(AuthorityIdentity(verifying, enrolment) for verifying, enrolment, _ in read)
            return cls(members, tuple(epoch for _, _, epoch in read))
        except (struct.error, ParameterError):
            raise WireFormatError("these bytes are no group of authorities") from None


Identity = AuthorityIdentity | AuthorityGroup | Buffer
"""Authority or group that has to answer, or the bytes that its ``to_bytes`` returned."""


def read_identity(data: Buffer) -> AuthorityIdentity | AuthorityGroup:
    """Read an authority's identity, or that of a group. Raises WireFormatError."""
    encoded = bytes(as_frame(data))
    if len(encoded) == VERIFYING_KEY_BYTES + ENROLMENT_KEY_BYTES:
        return AuthorityIdentity(encoded[:VERIFYING_KEY_BYTES], encoded[VERIFYING_KEY_BYTES:])
    return AuthorityGroup.from_bytes(encoded)


def hpke() -> Any:
    return cryptographic("hpke", "enrolments")


def hpke_suite() -> Any:
    module = hpke()
    return module.Suite(module.KEM.MLKEM768_X25519, module.KDF.HKDF_SHA256, module.AEAD.AES_256_GCM)


def client_number(client: int | str) -> int:
    """Return a client's number in frames.

    An integer below 2**31 is its own number. A name's number is 31 bits of its SHA-256, above these integers.
    Two names have the same number with a chance of 2**-31: the second client is refused, and takes another
    name. Raises ParameterError for anything else.
    """
    return _numbered(client)[0]


def _numbered(client: int | str) -> tuple[int, bytes]:
    if isinstance(client, str):
        name = client.encode(errors="ignore")
        if name.decode() != client or not 0 < len(name) <= _MOST_NAME_BYTES:
            raise ParameterError(f"a client's name is text of 1 to {_MOST_NAME_BYTES} bytes")
        return _NAMED | int.from_bytes(hashlib.sha256(name).digest()[:4], "big") >> 1, name
    number = as_unsigned(client, "client")
    if number >= _NAMED:
        raise ParameterError(f"a client's number must be below 2**31, not {number}: give it a name")
    return number, b""


def request_context(session: bytes, client: int | str) -> bytes:
    number, name = _numbered(client)
    return _REQUEST_DOMAIN + struct.pack("<HIB", len(session), number, len(name)) + session + name


def request_frame(client: int | str, sealed: bytes) -> bytes:
    """Return what a client sends to the authority once: who it is, and a secret, sealed for the authority."""
    number, name = _numbered(client)
    return _HEAD.pack(_MAGIC, _VERSION, number, len(name)) + name + sealed


def sealed_request(identity: AuthorityIdentity, session: bytes, client: int | str, secret: bytes) -> bytes:
    """Return a request with a secret of 32 bytes, sealed and bound to the session's id and the client."""
    return request_frame(client, identity.seal(secret, request_context(session, client)))


def read_request(data: Buffer) -> tuple[int | str, bytes]:
    """Return client and sealed secret of a request, which anybody can make. Raises WireFormatError."""
    frame = bytes(as_frame(data))
    with suppress(struct.error, UnicodeDecodeError, ParameterError):
        _, _, number, length = _HEAD.unpack_from(frame)
        name_end = _HEAD.size + length
        client, sealed = frame[_HEAD.size : name_end].decode() or number, frame[name_end:]
        if request_frame(client, sealed) == frame:
            return client, sealed
    raise WireFormatError("these bytes are no enrolment request that this version can read")


def grant_key(secret: Buffer, session: bytes) -> bytes:
    """Return the key of grants to a client, from the secret that it shares with the authority."""
    return hmac.digest(bytes(as_frame(secret)), _GRANT_DOMAIN + session, "sha256")


def sealed_grant(key: bytes, session: bytes, opening_key: bytes) -> bytes:
    """Seal the key that opens a session's answers; ``key`` is what :func:`grant_key` gave."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    cipher = cryptographic("ciphers.aead", "enrolments").AESGCM(key)
    return nonce + bytes(cipher.encrypt(nonce, opening_key, _GRANT_DOMAIN + session))


def read_grant(key: bytes, session: bytes, grant: Buffer) -> bytes:
    """Return the key that opens a session's answers.

    Raises KeyMismatchError for a grant to others, and for an altered one.
    """
    frame = bytes(as_frame(grant))
    cipher = cryptographic("ciphers.aead", "enrolments").AESGCM(key)
    from cryptography.exceptions import InvalidTag

    try:
        return bytes(cipher.decrypt(frame[:_NONCE_BYTES], frame[_NONCE_BYTES:], _GRANT_DOMAIN + session))
    except (InvalidTag, ValueError):  # ValueError: too short
        raise KeyMismatchError(
            "the grant is for another client or session, or was altered: ask the key authority for it again"
        ) from None


class EnrolledPublicKey(SchemePublicKey):
    """The public facts of a session: parameters, digest of its manifest, authority and epoch; no key.

    Clients share keys of their own with the authority, or with each of several. What is drawn for all, such
    as the uniform polynomials of a ring, is drawn from these facts, so nobody chooses it.
    """

    _scheme = "a session"
    identity: AuthorityIdentity | AuthorityGroup | None = None
    """Authority of the session, or group; None if the key was read from a frame alone, which has just its id.

    Keys of one session are equal with and without it.
    """

    @classmethod
    def of_session(
        cls,
        parameters: Any,
        manifest_digest: Buffer,
        authority: AuthorityIdentity | AuthorityGroup | Buffer,
        epoch: int = 0,
    ) -> Self:
        """Make a session's public key from its manifest.

        Parameters
        ----------
        parameters : the session's, of this scheme.
        manifest_digest : 32 bytes of the manifest that the authority signed.
        authority : the authority, the group of those that have to answer, or 16 bytes that identify either.
        epoch : the authority's, below 2**32; it rises when its memory is restored. For a group, the highest.

        Raises ParameterError.
        """
        if not isinstance(parameters, cls._parameters_class):
            raise ParameterError(
                f"parameters must be {cls._scheme}.Parameters, not {type(parameters).__name__}"
            )
        as_unsigned(epoch, "epoch", 32)
        identity = authority if isinstance(authority, AuthorityIdentity | AuthorityGroup) else None
        of_authority = identity.id if identity else as_frame(authority)
        key = cls(cls._core_class(parameters._handle, as_frame(manifest_digest), of_authority, epoch))
        key.identity = identity
        return key

    @classmethod
    def from_bytes(cls, frame: Buffer, identity: Identity | None = None) -> Self:
        """Read a public key frame, which has only the authority's id.

        Parameters
        ----------
        frame : what :meth:`to_bytes` gave.
        identity : the authority's, or the bytes that ``public_key.identity.to_bytes()`` gave; clients enrol
            with it.

        Raises WireFormatError; KeyMismatchError for another authority's identity; ParameterError for an
        invalid key.
        """
        key = super().from_bytes(frame)
        return key if identity is None else key.with_identity(identity)

    @property
    def manifest_digest(self) -> bytes:
        return bytes(self._core.manifest)

    @property
    def epoch(self) -> int:
        """The authority's epoch when the session began."""
        return int(self._core.epoch)

    @property
    def authorities(self) -> Sequence[AuthorityIdentity]:
        """The authorities that have to answer, in the order of their group.

        Raises ParameterError if they are unknown.
        """
        if self.identity is None:
            raise ParameterError(
                "the public key does not say whose it is, as a frame has the authority's id alone: read it "
                "by PublicKey.from_bytes(frame, identity=...), which takes what "
                "public_key.identity.to_bytes() gives"
            )
        return self.identity.members

    def with_identity(self, identity: Identity) -> Self:
        """Return the same key with its authority's identity.

        Raises KeyMismatchError for another authority's, WireFormatError.
        """
        if not isinstance(identity, AuthorityIdentity | AuthorityGroup):
            identity = read_identity(identity)
        if identity.id != self._core.authority:
            raise KeyMismatchError("the session belongs to another key authority")
        key = type(self)(self._core)
        key.identity = identity
        return key

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return type(self).from_bytes, (self.to_bytes(), self.identity)

    @classmethod
    def read_request(cls, frame: Buffer) -> Any:
        """Read what ``Total.request`` gave: the core's object, with what is asked for.

        Raises WireFormatError.
        """
        return cls._total_class._core_request.from_bytes(as_frame(frame))


class ClientKey(Uncopied):
    """A client's key in a session, at a round. Its owner keeps it from everybody but the key authority.

    It advances with the number of the round, and its earlier states are wiped: a thief opens nothing of
    earlier rounds. In a session of several authorities it is a secret with each of them, and each has to
    answer.
    """

    _why_uncopied = "holds a secret and is neither copied nor pickled"

    def __init__(self, public_key: SchemePublicKey, client: int, secret: Buffer, round: int = 0) -> None:
        """Take a key that stands at a round, as :meth:`export_secret` gives it: 32 bytes for each authority.

        Raises ParameterError.
        """
        self.public_key = checked_key(public_key, EnrolledPublicKey)
        key_id, number = public_key.id, as_unsigned(client, "client", 32)
        scheme, at = public_key._scheme, as_unsigned(round, "round")
        self._cores = [_core.ClientKey(scheme, key_id, number, at, part) for part in _parts(secret)]
        """The core's keys, one for each authority."""
        self._grant_keys: list[bytes] = []
        self._opening_keys: dict[int, bytes] = {}

    @classmethod
    def of_secret(cls, public_key: SchemePublicKey, client: int | str, secret: Buffer) -> Self:
        """Make the key of round 0 from the secret, 32 bytes, that client and authority share.

        The secrets of several authorities are given one after the other. Raises ParameterError.
        """
        key, shared = cls(public_key, number := client_number(client), secret), _parts(secret)
        scheme, key_id = public_key._scheme, public_key.id
        key._cores = [_core.ClientKey.of_session(scheme, part, key_id, number) for part in shared]
        key._grant_keys = [grant_key(part, key_id) for part in shared]
        return key

    @classmethod
    def requests(
        cls,
        public_key: EnrolledPublicKey,
        client: int | str,
        identity: Identity | None = None,
    ) -> tuple[Self, list[bytes]]:
        """Draw secrets; return the key of round 0 with a sealed request for each authority that enrols it.

        Arguments and errors are those of :meth:`request`; requests are in the order of the group.
        """
        checked_key(public_key, EnrolledPublicKey)
        if identity is not None:
            public_key = public_key.with_identity(identity)
        authorities = public_key.authorities
        drawn = bytearray(secrets.token_bytes(SECRET_BYTES * len(authorities)))
        try:
            key = cls.of_secret(public_key, client, drawn)
            sealed = [
                sealed_request(authority, public_key.id, client, bytes(part))
                for authority, part in zip(authorities, _parts(drawn), strict=True)
            ]
            return key, sealed
        finally:
            drawn[:] = bytes(len(drawn))

    @classmethod
    def request(
        cls, public_key: EnrolledPublicKey, client: int | str, identity: Identity | None = None
    ) -> tuple[Self, bytes]:
        """Draw a secret; return the key of round 0 with the request that enrols it, sealed for the authority.

        Parameters
        ----------
        public_key : the session's, as the client has pinned it.
        client : a number below 2**31, or a name.
        identity : the authority's, or what its ``to_bytes`` gave, for a public key that was read from a frame
            alone.

        Raises ParameterError if neither says who the authority is, or if there are several: take
        :meth:`requests`; KeyMismatchError if the session is another authority's.
        """
        key, sealed = cls.requests(public_key, client, identity)
        if len(sealed) != 1:
            raise ParameterError("the session has several authorities: take requests(), one for each")
        return key, sealed[0]

    def take_grant(self, grant: Buffer) -> None:
        """Take an authority's grant, by which this client opens its answers.

        Raises PolicyError for a key that was not made at enrolment, such as one of an exported secret;
        KeyMismatchError for a grant of another client or session.
        """
        if not self._grant_keys:
            raise PolicyError("a grant is taken by the key that was made at enrolment")
        for number, key in enumerate(self._grant_keys, 1):
            try:
                self._opening_keys[number - 1] = read_grant(key, self.public_key.id, grant)
                return
            except KeyMismatchError:
                if number == len(self._grant_keys):
                    raise

    @property
    def opening_keys(self) -> Sequence[bytes]:
        """Keys that open answers, 32 bytes for each authority; secret.

        Raises PolicyError before all authorities have granted them.
        """
        if not self._opening_keys or len(self._opening_keys) < len(self._cores):
            raise PolicyError("this client was granted no answers: take the key authority's grant first")
        return [self._opening_keys[number] for number in range(len(self._cores))]

    @property
    def client(self) -> int:
        """The client's number in the session."""
        return self._cores[0].client

    @property
    def round(self) -> int:
        """The round of the key; earlier ones are over."""
        return self._cores[0].round

    def advance_to(self, round: int) -> None:
        """Advance to a round. Raises PolicyError for an earlier one, or one more than 2**16 rounds later."""
        number = as_unsigned(round, "round")
        for core in self._cores:
            core.advance_to(number)

    def _go_on_to(self, round: int) -> None:
        """Advance to a round unless the key is past it already, since another thread was faster."""
        for core in self._cores:
            if core.round < round:
                core.advance_to(round)

    def export_secret(self) -> bytearray:
        """Return the key at its round, 32 bytes for each authority, for a store.

        The receiver overwrites it.
        """
        exported = bytearray()
        for core in self._cores:
            part = core.export_secret()
            exported += part
            part[:] = bytes(len(part))
        return exported

    def __repr__(self) -> str:
        return f"ClientKey(client={self.client}, round={self.round})"


def _parts(secret: Buffer) -> list[memoryview]:
    frame = memoryview(as_frame(secret)).cast("B")
    count, rest = divmod(len(frame), SECRET_BYTES)
    if rest or not 1 <= count <= MOST_AUTHORITIES:
        raise ParameterError(
            f"a client's secret must have 32 bytes for each authority, {MOST_AUTHORITIES} at most"
        )
    return [frame[SECRET_BYTES * n : SECRET_BYTES * (n + 1)] for n in range(count)]


_ANSWER_DOMAIN = b"shieldfl answer 2\0"
_SIGNATURE_BYTES = 64
_SALT_BYTES = 32
_COMMITMENT_BYTES = 32


def _bound(key_id: bytes, request: bytes) -> bytes:
    return _ANSWER_DOMAIN + key_id + hashlib.sha256(request).digest()


def _commitment(bound: bytes, salted: bytes) -> bytes:
    return hashlib.sha256(bound + salted).digest()


def sealed_answer(
    signing_key: Any, opening_key: bytes, key_id: bytes, request: Buffer, sum_key: Buffer
) -> bytes:
    """Seal a total's key by AES-256-GCM, commit to it, and sign the result.

    The answer is a signature (64 bytes), a nonce (12), the commitment (32), then the ciphertext. AES-GCM
    alone commits to nothing: someone who chooses the keys of two clients can make one ciphertext that opens
    differently for each.

    ``signing_key`` is the authority's Ed25519 private key, ``opening_key`` the 32 bytes of those who may open
    the answer, ``key_id`` the id of the session's public key; the answer is to this ``request`` alone.
    """
    bound, nonce = _bound(key_id, bytes(request)), secrets.token_bytes(_NONCE_BYTES)
    salted = secrets.token_bytes(_SALT_BYTES) + bytes(sum_key)
    cipher = cryptographic("ciphers.aead", "answers").AESGCM(opening_key)
    sealed = nonce + _commitment(bound, salted) + bytes(cipher.encrypt(nonce, salted, bound))
    return bytes(signing_key.sign(bound + sealed)) + sealed


def read_answer(
    verifying_key: bytes, opening_key: bytes, key_id: bytes, request: bytes, answer: Buffer
) -> bytes:
    """Return the key that opens a total; secret. All who can read an answer get the same key from it.

    Raises KeyMismatchError for an answer that the authority did not sign for this request; PolicyError for
    one that was sealed for others.
    """
    frame = bytes(as_frame(answer))
    signature, sealed = frame[:_SIGNATURE_BYTES], frame[_SIGNATURE_BYTES:]
    bound = _bound(key_id, request)
    ed25519 = cryptographic("asymmetric.ed25519", "answers")
    from cryptography.exceptions import InvalidSignature, InvalidTag

    try:
        ed25519.Ed25519PublicKey.from_public_bytes(verifying_key).verify(signature, bound + sealed)
    except InvalidSignature:
        raise KeyMismatchError(
            "the answer was not signed by this session's key authority for this total: ask it again, with "
            "this total's own request"
        ) from None
    nonce, rest = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
    commitment, ciphertext = rest[:_COMMITMENT_BYTES], rest[_COMMITMENT_BYTES:]
    cipher = cryptographic("ciphers.aead", "answers").AESGCM(opening_key)
    with suppress(InvalidTag, ValueError):  # ValueError: too short, where an authority has signed that
        salted = bytes(cipher.decrypt(nonce, ciphertext, bound))
        if len(salted) >= _SALT_BYTES and hmac.compare_digest(commitment, _commitment(bound, salted)):
            return salted[_SALT_BYTES:]
    raise PolicyError(
        "the answer is sealed for others: who opens is settled by whom the key authority gives a grant"
    )


Answers = Buffer | Sequence[Buffer]
"""Bytes of the authority, or a list with those of several in the order of their group."""


def _checked(total: Any, answers: Answers) -> list[Buffer]:
    if not hasattr(total, "request"):
        raise PolicyError("only totals are opened, never a single client's batch: add it to an Aggregator")
    return list(answers) if isinstance(answers, list | tuple) else [answers]  # type: ignore[list-item]


def open_answered(
    total: Any,
    answers: Answers,
    key: ClientKey,
    *,
    threads: int | None = None,
) -> NDArray[np.float64]:
    """Open a total with the key authority's answer: the sums, float64 (count,), by ascending position.

    Parameters
    ----------
    total : what the aggregator gave.
    answers : to ``total.request()``; of several authorities a list, in the order of their group.
    key : key of a client that took each authority's grant.
    threads : None for as many as the work is worth.

    Raises KeyMismatchError for an answer that the authority did not sign for this very total; PolicyError
    before a grant was taken; ParameterError for too few or too many answers; WireFormatError for what does
    not open to sums in range.
    """
    public_key, given = key.public_key, _checked(total, answers)
    authorities = public_key.authorities
    if len(given) != len(authorities):
        raise ParameterError(
            f"the session has {len(authorities)} authorities, each of which has to answer, and there are "
            f"{len(given)} answers"
        )
    request = total.request()
    sum_keys = [
        read_answer(authority.verifying_key, opening_key, public_key.id, request, answer)
        for authority, opening_key, answer in zip(authorities, key.opening_keys, given, strict=True)
    ]
    return open_total(public_key, total, sum_keys, threads=threads)[0]


def open_total(
    public_key: EnrolledPublicKey,
    total: Any,
    keys: Answers,
    *,
    beside: bytes = b"",
    threads: int | None = None,
) -> tuple[NDArray[np.float64], float | None]:
    """Open a total: float64 sums (count,) by ascending position, and the sum of encrypted weights, if any.

    ``keys`` is what ``sum_key`` gave for this very total, of several authorities a list; ``beside`` what the
    request was made with.

    Raises KeyMismatchError for a key of another total, WireFormatError for what does not open to sums in
    range: the list of clients is not that of the ciphertexts, or one of them was altered.
    """
    given = _checked(total, keys)
    if not isinstance(total, checked_key(public_key, EnrolledPublicKey)._total_class):
        raise KeyMismatchError("the total has another scheme than the session")
    opened: tuple[NDArray[np.float64], float | None] = total.parse(threads).open(
        public_key._core,
        total.digest(beside, threads),
        list(map(as_frame, given)),
        as_threads(threads),
    )
    return opened
