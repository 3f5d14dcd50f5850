"""Keys that outlive sessions: the service's signs set-ups, clients' sign enrolments; their registry."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

from shieldfl.authority.authority_secrets import read_sealed_file, write_sealed_file
from shieldfl.authority.message import Message, Part, pieces_of_length
from shieldfl.authority.private_file import disk_errors_as, sync_folder, write_private_file
from shieldfl.authority.round_key_check import ed25519, is_signature
from shieldfl.build_info import cryptographic
from shieldfl.encryption.enrolment import MOST_AUTHORITIES
from shieldfl.errors import DataError, KeyMismatchError, ParameterError, PolicyError, WireFormatError
from shieldfl.stateful import Uncopied

__all__ = [
    "NAME",
    "ClientIdentity",
    "ClientRegistry",
    "ServiceKey",
    "check_enrolment",
    "checked_public_key",
    "checked_public_keys",
    "signed_setup_of",
]

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
"""Pattern of the names of clients and aggregators, which also name files."""

_PUBLIC_KEY_BYTES = 32
_SIGNATURE_BYTES = 64
_MAGIC = b"shieldfl service key 1\n"
_SETUP_DOMAIN = b"shieldfl signed set-up 1\0"
_ENROLMENT_DOMAIN = b"shieldfl signed enrolment 1\0"
_STORE_DOMAIN = b"shieldfl session store key 1\0"


def checked_public_key(key: str | Part) -> bytes:
    """Return a public key of 32 bytes, given as bytes or as 64 hexadecimal digits. Raises ParameterError."""
    try:
        raw = bytes.fromhex(key) if isinstance(key, str) else bytes(key)
    except ValueError:
        raw = b""
    if len(raw) != _PUBLIC_KEY_BYTES:
        raise ParameterError(
            f"a public key has {_PUBLIC_KEY_BYTES} bytes: give {2 * _PUBLIC_KEY_BYTES} hexadecimal digits"
        )
    return raw


def checked_public_keys(keys: str | bytes) -> bytes:
    """Return the public keys of one or several authorities, 32 bytes each, from bytes or text with commas.

    Raises ParameterError for invalid keys, for a key that is given twice, and for more keys than a session
    may have.
    """
    each: list[str] | list[Part] = (
        [key.strip() for key in keys.split(",")]
        if isinstance(keys, str)
        else pieces_of_length(keys, _PUBLIC_KEY_BYTES)
    )
    found = [checked_public_key(key) for key in each]
    if len(set(found)) != len(found) or len(found) > MOST_AUTHORITIES:
        raise ParameterError(f"a session has one to {MOST_AUTHORITIES} different key authorities")
    return b"".join(found)


class _SigningKey(Uncopied):
    """A long-lived Ed25519 key."""

    _why_uncopied = "holds a secret key and is neither copied nor pickled"

    def __init__(self, secret: bytes) -> None:
        self._secret, self._key = secret, ed25519().Ed25519PrivateKey.from_private_bytes(secret)
        self.public_key: bytes = self._key.public_key().public_bytes_raw()
        """The public key, 32 bytes."""


class ServiceKey(_SigningKey):
    """The service's long-lived Ed25519 key, from which the keys that seal its sessions' states derive.

    Clients and aggregators pin its public key, and take no set-up that it has not signed.
    """

    @classmethod
    def create(cls, path: Path, passphrase: str) -> ServiceKey:
        """Draw a key and write it, sealed under a passphrase; mode 0600.

        Raises DataError if the file exists.
        """
        if path.exists():
            raise DataError(
                f"there is a file {path} already: a second key would lose every session of the first"
            )
        secret = secrets.token_bytes(32)
        write_sealed_file(path, passphrase, _MAGIC, secret)
        return cls(secret)

    @classmethod
    def load(cls, path: Path, passphrase: str) -> ServiceKey:
        return cls(read_sealed_file(path, passphrase, _MAGIC))

    def store_key(self, session: bytes, facts: bytes) -> bytes:
        """Return the key, 32 bytes, of the store of a session with exactly these facts."""
        return hmac.digest(self._secret, _STORE_DOMAIN + session + hashlib.sha256(facts).digest(), "sha256")

    def sign_setup(self, setup: bytes) -> Message:
        return Message({"setup": setup, "signature": self._key.sign(_SETUP_DOMAIN + setup)})


def signed_setup_of(message: Message, service_keys: str | bytes) -> bytes:
    """Return a message's public set-up, as bytes that all pinned services signed, in any order.

    Raises KeyMismatchError if a pinned service has not signed it, or another service has; ParameterError for
    invalid public keys.
    """
    setup, signatures = bytes(message["setup"]), pieces_of_length(message["signature"], _SIGNATURE_BYTES)
    pinned = pieces_of_length(checked_public_keys(service_keys), _PUBLIC_KEY_BYTES)
    # Their number is checked first, since each is then verified with each key, over the whole set-up.
    if len(signatures) != len(pinned) or not all(
        any(is_signature(bytes(key), bytes(one), _SETUP_DOMAIN + setup) for one in signatures)
        for key in pinned
    ):
        raise KeyMismatchError(
            "this set-up was not signed by the key authority that is pinned here, or not by all of them, or "
            "also by others: ask their operators for their public keys"
        )
    return setup


def _enrolment_content(name: str, setup_digest: bytes, client: int, enrolment: Part) -> bytes:
    parts = (name.encode(), setup_digest, client.to_bytes(8, "little"), hashlib.sha256(enrolment).digest())
    return _ENROLMENT_DOMAIN + b"".join(len(part).to_bytes(8, "little") + part for part in parts)


class ClientIdentity(_SigningKey):
    """A client's long-lived Ed25519 key; an authority's operator registers its public key under a name."""

    @classmethod
    def create(cls, path: Path) -> ClientIdentity:
        """Draw a key and write it as PEM, mode 0600; its node reads it without a passphrase.

        Raises DataError.
        """
        serialization = cryptographic("serialization", "clients' identities")
        if path.exists():
            raise DataError(f"there is a file {path} already: with another key its client would be unknown")
        made = ed25519().Ed25519PrivateKey.generate()
        pem = made.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        write_private_file(path, pem)
        return cls(made.private_bytes_raw())

    @classmethod
    def load(cls, path: Path) -> ClientIdentity:
        """Read a key.

        Raises DataError if the file cannot be read, WireFormatError if it holds no such key.
        """
        serialization = cryptographic("serialization", "clients' identities")
        try:
            made = serialization.load_pem_private_key(path.read_bytes(), None)
            if not isinstance(made, ed25519().Ed25519PrivateKey):
                raise TypeError("another kind of key")
        except OSError as error:
            raise DataError(
                f"the client's key {path} cannot be read: check that it exists, and its permissions"
            ) from error
        except (TypeError, ValueError) as error:
            raise WireFormatError(
                f"{path} is no private Ed25519 key in a PEM file without a passphrase"
            ) from error
        return cls(made.private_bytes_raw())

    def signed_enrolment(self, name: str, setup_digest: bytes, client: int, enrolment: Message) -> Message:
        """Return a client's request to enrol, with the client's name and signature."""
        content = _enrolment_content(name, setup_digest, client, enrolment["enrolment"])
        return Message({**enrolment, "name": name.encode(), "signature": self._key.sign(content)})


def check_enrolment(public_key: bytes, name: str, setup_digest: bytes, client: int, message: Message) -> None:
    """Raise PolicyError unless a registered client has signed that it is this client of a session."""
    content = _enrolment_content(name, setup_digest, client, message["enrolment"])
    if not is_signature(public_key, bytes(message["signature"]), content):
        raise PolicyError(f"the enrolment of client {client} was not signed by {name}, whose name it gives")


_KEY, _REVOKED = ".pub", ".revoked"


class ClientRegistry:
    """A folder of clients' public keys, which commands change while the service reads it.

    Raises DataError if the folder is missing: without it no revoked client would be known.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.revoked()

    def register(self, name: str, public_key: bytes) -> None:
        """Register a client; a second call with the same key changes nothing.

        Raises PolicyError if the name or the key is, or was, another client's.
        """
        key = checked_public_key(public_key)
        path = self._file(name, _KEY)
        with self._locked():
            if self._file(name, _REVOKED).exists():
                raise PolicyError(f"{name} was revoked: register the client's new key under another name")
            if path.exists() and self.public_key(name) != key:
                raise PolicyError(
                    f"there is a client {name} with another key: revoke it, and take another name"
                )
            for suffix in (_KEY, _REVOKED):
                for other in self._named(suffix) - {name}:
                    if self._key_in(self._file(other, suffix)) == key:
                        raise PolicyError(f"the key belongs to {other}: a client has one name, for good")
            write_private_file(path, key.hex().encode() + b"\n")

    def revoke(self, name: str) -> None:
        with self._locked():
            self.public_key(name)
            path = self._file(name, _REVOKED)
            self._file(name, _KEY).rename(path)
            sync_folder(path)

    def public_key(self, name: str) -> bytes:
        if self._file(name, _REVOKED).exists():
            raise PolicyError(
                f"{name} was revoked at this key authority: have its operator enrol it under another name"
            )
        try:
            return self._key_in(self._file(name, _KEY))
        except FileNotFoundError:
            raise PolicyError(
                f"{name} is not registered at this key authority: have its operator enrol it"
            ) from None
        except OSError as error:
            raise DataError(f"the key of {name} cannot be read: mend the disk, then try again") from error

    def names(self) -> list[str]:
        return sorted(self._named(_KEY) - self.revoked())

    def revoked(self) -> set[str]:
        return self._named(_REVOKED)

    def _named(self, suffix: str) -> set[str]:
        with disk_errors_as(f"the registered clients in {self._folder} cannot be read: restore the folder"):
            files = os.listdir(self._folder)
        return {name.removesuffix(suffix) for name in files if name.endswith(suffix)}

    @staticmethod
    def _key_in(path: Path) -> bytes:
        return checked_public_key(path.read_text(encoding="utf-8-sig", errors="replace").strip())

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _file(self, name: str, suffix: str) -> Path:
        if not NAME.fullmatch(name):
            raise ParameterError(
                "a client's name has 1 to 63 letters, digits, dots, dashes and underscores, and begins with "
                "a letter or a digit"
            )
        return self._folder / f"{name}{suffix}"
