"""A key authority's secrets, and files under a passphrase that hold secrets.

A key file is a line of magic, a line of JSON (public, authenticated) and the encrypted secret. scrypt
derives a key from the passphrase and AES-256-GCM encrypts the secret, both from ``cryptography``.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shieldfl.array_view import Buffer
from shieldfl.authority.authority_store import ENROLMENT_HAS_ENDED
from shieldfl.authority.private_file import write_private_file
from shieldfl.authority.total_opener import WEIGHT_BOUNDS, WeightBounds
from shieldfl.build_info import cryptographic
from shieldfl.encryption.enrolment import (
    SECRET_BYTES,
    AuthorityGroup,
    AuthorityIdentity,
    hpke,
    hpke_suite,
    read_request,
    request_context,
)
from shieldfl.errors import DataError, KeyMismatchError, ParameterError, PolicyError, WireFormatError
from shieldfl.stateful import Uncopied

_OPENING_DOMAIN = b"shieldfl opening key 1\0"
_EXPORTED = struct.Struct(f"32s1216s{SECRET_BYTES}s{SECRET_BYTES}s")
"""Layout: the signing key, the public enrolment key, the root of opening keys, and the store's key."""
EXPORTED_BYTES = _EXPORTED.size
_MLKEM_BYTES = 64
_MAGIC = b"shieldfl key file 1\n"
_MOST_BYTES = 2**28
"""Largest key file that is read: more than a key and the digests of a million rounds take."""


class AuthoritySecrets(Uncopied):
    """A key authority's secrets: signing key, enrolment key, root of opening keys and store key.

    They are drawn from the operating system, or taken from :meth:`export`, then without the enrolment key.
    The enrolment key is erased before the others: with it and recorded requests, a thief has every client's
    first key, and from it the keys of all rounds. Raises ParameterError; ShieldError.
    """

    _why_uncopied = "hold secret keys and are neither copied nor pickled"

    def __init__(self, exported: bytes | None = None) -> None:
        ed25519 = cryptographic("asymmetric.ed25519", "key authorities")
        self._enrolment: tuple[Any, Any] | None = None
        if exported is None:
            self.signing_key: Any = ed25519.Ed25519PrivateKey.generate()
            mlkem, x25519 = _enrolment_modules()
            self._enrolment = mlkem.MLKEM768PrivateKey.generate(), x25519.X25519PrivateKey.generate()
            public_key = _public_bytes(self._enrolment)
            self._opening_root = secrets.token_bytes(SECRET_BYTES)
            self.store_key = secrets.token_bytes(SECRET_BYTES)
        else:
            if len(exported) != EXPORTED_BYTES:
                raise ParameterError(f"an authority's secrets have {EXPORTED_BYTES} bytes")
            signing, public_key, self._opening_root, self.store_key = _EXPORTED.unpack(exported)
            self.signing_key = ed25519.Ed25519PrivateKey.from_private_bytes(signing)
        self.identity = AuthorityIdentity(self.signing_key.public_key().public_bytes_raw(), public_key)
        """The public keys that belong to these secrets."""

    @property
    def store_id(self) -> bytes:
        """The owner id of the authority's store, 32 bytes."""
        return hashlib.sha256(self.identity.id).digest()

    def export(self) -> bytes:
        """Return all secrets except the enrolment key, for a sealed file."""
        signing: bytes = self.signing_key.private_bytes_raw()
        return signing + self.identity.enrolment_key + self._opening_root + self.store_key

    def opening_key(self, manifest_digest: bytes) -> bytes:
        """Return the secret key, 32 bytes, that opens answers of sessions with this manifest only."""
        return hmac.digest(self._opening_root, _OPENING_DOMAIN + manifest_digest, "sha256")

    @property
    def enrolment_key(self) -> bytes | None:
        """The key that opens requests, 96 bytes; secret. None before it was taken, and once it is erased."""
        enrolment = self._enrolment  # read once: it may be erased meanwhile
        if enrolment is None:
            return None
        mlkem, x25519 = enrolment
        return bytes(mlkem.private_bytes_raw() + x25519.private_bytes_raw())

    def take_enrolment_key(self, key: bytes | None) -> None:
        """Take the key that opens requests; None erases it.

        Raises ParameterError for another authority's key.
        """
        if key is None:
            self._enrolment = None
            return
        held = self.enrolment_key
        if held is not None and isinstance(key, bytes) and hmac.compare_digest(held, key):
            # As at each enrolment: deriving the public key takes a third of an enrolment's time.
            return
        mlkem, x25519 = _enrolment_modules()
        try:
            taken = (
                mlkem.MLKEM768PrivateKey.from_seed_bytes(key[:_MLKEM_BYTES]),
                x25519.X25519PrivateKey.from_private_bytes(key[_MLKEM_BYTES:]),
            )
            is_own = _public_bytes(taken) == self.identity.enrolment_key
        except (TypeError, ValueError):
            is_own = False
        if not is_own:
            raise ParameterError(
                "this key opens no requests to this key authority: it belongs to another one"
            )
        self._enrolment = taken

    def unseal(self, request: Buffer, session: bytes) -> tuple[int | str, bytes]:
        """Return the client that asks to enrol in a session, and the secret, 32 bytes, that it shares.

        Raises WireFormatError for bytes that are no request; KeyMismatchError for an altered request, and for
        one that was sealed to another authority or for another session; PolicyError once the enrolment key is
        erased.
        """
        client, sealed = read_request(request)
        enrolment = self._enrolment  # read once: it may be erased meanwhile
        if enrolment is None:
            raise PolicyError(ENROLMENT_HAS_ENDED)
        private_key, suite = hpke().MLKEM768X25519PrivateKey(*enrolment), hpke_suite()
        from cryptography.exceptions import InvalidTag

        try:
            secret = suite.decrypt(sealed, private_key, request_context(session, client))
        except (InvalidTag, ValueError):  # ValueError: too short
            secret = b""
        if len(secret) != SECRET_BYTES:
            raise KeyMismatchError(
                "the request was sealed to another key authority or for another session, or was altered: "
                "make a new one from this session's public key"
            )
        return client, bytes(secret)


def _enrolment_modules() -> tuple[Any, Any]:
    mlkem, x25519 = (cryptographic(f"asymmetric.{name}", "key authorities") for name in ("mlkem", "x25519"))
    return mlkem, x25519


def _public_bytes(enrolment: tuple[Any, Any]) -> bytes:
    return b"".join(key.public_key().public_bytes_raw() for key in enrolment)


JointKeys = tuple[AuthoritySecrets, AuthorityGroup]
"""An authority's secrets, drawn for one session alone, and the group of authorities that have to answer."""


@dataclass(repr=False)
class Contents(Uncopied):
    """The contents of a key file. ``secret`` is a bytearray so that its owner can overwrite it."""

    _why_uncopied = "holds a secret key and is neither copied nor pickled"

    public_key: bytes
    min_clients: int
    one_total_per_round: bool
    opened: dict[int, str]
    secret: bytearray = field(default_factory=bytearray)
    opened_coefficients: int = 0
    weight_bounds: WeightBounds = WEIGHT_BOUNDS

    def __del__(self) -> None:
        """Overwrite the secret, even if its owner forgot to."""
        secret = getattr(self, "secret", bytearray())
        secret[:] = bytes(len(secret))


_SALT_BYTES = 16
_NONCE_BYTES = 12
_SCRYPT_COST = 2**17  # 128 MiB and a fraction of a second for each guess
_SCRYPT_BLOCK_SIZE = 8


def passphrase_cipher(passphrase: str, salt: bytes) -> Any:
    """Return AES-256-GCM under the key that scrypt derives from a passphrase.

    Raises ParameterError for an empty passphrase, and for one that is not encodable text.
    """
    aead, scrypt = (cryptographic(name, "key files") for name in ("ciphers.aead", "kdf.scrypt"))
    if not isinstance(passphrase, str):
        raise ParameterError(f"the passphrase must be a str, not {type(passphrase).__name__}")
    if not passphrase:
        raise ParameterError("the passphrase is empty: a key file needs one")
    kdf = scrypt.Scrypt(salt=salt, length=32, n=_SCRYPT_COST, r=_SCRYPT_BLOCK_SIZE, p=1)
    try:
        encoded = passphrase.encode()
    except UnicodeEncodeError:
        raise ParameterError(
            "the passphrase has characters that cannot be encoded: give another one"
        ) from None
    return aead.AESGCM(kdf.derive(encoded))


def _unsealed(path: Path, passphrase: str, salt: bytes, nonce: bytes, sealed: bytes, head: bytes) -> bytes:
    cipher = passphrase_cipher(passphrase, salt)
    from cryptography.exceptions import InvalidTag

    try:
        return bytes(cipher.decrypt(nonce, sealed, head))
    except InvalidTag:
        raise KeyMismatchError(f"wrong passphrase for {path}, or the file was altered") from None


def write_sealed_file(path: Path, passphrase: str, magic: bytes, secret: bytes) -> None:
    """Write a single secret, sealed under a passphrase: magic, salt, nonce, then AES-256-GCM with its tag."""
    salt, nonce = secrets.token_bytes(_SALT_BYTES), secrets.token_bytes(_NONCE_BYTES)
    head = magic + salt + nonce
    write_private_file(path, head + passphrase_cipher(passphrase, salt).encrypt(nonce, secret, head))


def read_sealed_file(path: Path, passphrase: str, magic: bytes) -> bytes:
    """Return the secret that :func:`write_sealed_file` wrote.

    Raises DataError, WireFormatError; KeyMismatchError for a wrong passphrase.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: check that it exists, and its permissions") from error
    start = len(magic) + _SALT_BYTES
    head, sealed = content[: start + _NONCE_BYTES], content[start + _NONCE_BYTES :]
    if not content.startswith(magic) or not sealed:
        raise WireFormatError(f"{path} is not a key file of this kind, or another version wrote it")
    return _unsealed(path, passphrase, head[len(magic) : start], head[start:], sealed, head)


def write_key_file(path: Path, passphrase: str, contents: Contents) -> None:
    """Write a key file with mode 0600; an existing one is replaced in one step."""
    import msgspec

    salt, nonce = secrets.token_bytes(_SALT_BYTES), secrets.token_bytes(_NONCE_BYTES)
    cipher = passphrase_cipher(passphrase, salt)
    public = {name: value for name, value in vars(contents).items() if name != "secret"}
    header = msgspec.json.encode({"salt": salt.hex(), "nonce": nonce.hex(), **public})
    head = _MAGIC + header + b"\n"
    write_private_file(path, head + cipher.encrypt(nonce, contents.secret, head))


def read_key_file(path: Path, passphrase: str) -> Contents:
    """Read a key file; only authenticated contents are used.

    Raises WireFormatError, KeyMismatchError, OSError.
    """
    import msgspec

    with path.open("rb") as file:
        data = file.read(_MOST_BYTES + 1)
    end = data.find(b"\n", len(_MAGIC)) + 1
    if not data.startswith(_MAGIC) or end == 0 or len(data) > _MOST_BYTES:
        raise WireFormatError(f"{path} is not a shieldfl key file")
    try:
        header = msgspec.json.decode(data[len(_MAGIC) : end])
        salt, nonce = bytes.fromhex(header["salt"]), bytes.fromhex(header["nonce"])
    # RecursionError: brackets in brackets. ValueError: what is no JSON, no UTF-8, no hex.
    except (KeyError, RecursionError, TypeError, ValueError) as error:
        raise WireFormatError(f"{path} is a damaged key file") from error
    if (len(salt), len(nonce)) != (_SALT_BYTES, _NONCE_BYTES):
        raise WireFormatError(f"{path} is a damaged key file")
    secret = bytearray(_unsealed(path, passphrase, salt, nonce, data[end:], data[:end]))
    contents = msgspec.json.decode(data[len(_MAGIC) : end], type=Contents)
    contents.secret = secret
    return contents
