"""Secret keys at rest: scrypt for the passphrase, AES-256-GCM for the secret, both from ``cryptography``.

The file is a line of magic, a line of JSON (public, authenticated) and the encrypted secret.
"""

from __future__ import annotations

import base64
import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shieldfl.authority.private_file import NONCE_BYTES, SALT_BYTES, passphrase_cipher, write_private_file
from shieldfl.authority.total_opener import WEIGHT_BOUNDS
from shieldfl.errors import KeyMismatchError, WireFormatError
from shieldfl.stateful import Uncopied

_MAGIC = b"shieldfl key file 1\n"
_TAG_BYTES = 16
_DIGEST_BYTES = 32
_MOST_BYTES = 2**28
"""More than a key and the digests of a million rounds take."""


@dataclass
class Contents(Uncopied):
    """What a key file holds. ``secret`` is a bytearray so that its owner can overwrite it."""

    _why_uncopied = "holds a secret key and is neither copied nor pickled"

    public_key: bytes
    min_clients: int
    one_total_per_round: bool
    opened: dict[int, str]
    secret: bytearray
    opened_coefficients: int = 0
    weight_bounds: tuple[float, float] = WEIGHT_BOUNDS

    def __del__(self) -> None:
        """Overwrite the secret, whoever forgot it."""
        secret = getattr(self, "secret", bytearray())
        secret[:] = bytes(len(secret))

    def __repr__(self) -> str:
        return f"Contents(secret of {len(self.secret)} bytes)"


def write(path: Path, passphrase: str, contents: Contents) -> None:
    """Write a key file with mode 0600; an existing one is replaced in one step."""
    salt, nonce = secrets.token_bytes(SALT_BYTES), secrets.token_bytes(NONCE_BYTES)
    cipher = passphrase_cipher(passphrase, salt)
    header = {
        "salt": salt.hex(),
        "nonce": nonce.hex(),
        "public_key": base64.b64encode(contents.public_key).decode(),
        "min_clients": contents.min_clients,
        "one_total_per_round": contents.one_total_per_round,
        "weight_bounds": contents.weight_bounds,
        "opened_coefficients": contents.opened_coefficients,
        "opened": {str(number): digest for number, digest in contents.opened.items()},
    }
    head = _MAGIC + json.dumps(header).encode() + b"\n"
    sealed = cipher.encrypt(nonce, contents.secret, head)
    write_private_file(path, head + sealed)


@dataclass(frozen=True)
class _Head:
    """The public lines of a key file, every field checked."""

    contents: Contents
    salt: bytes
    nonce: bytes
    length: int


def read(path: Path, passphrase: str) -> Contents:
    """Read a key file. Raises WireFormatError, KeyMismatchError, OSError."""
    with path.open("rb") as file:
        data = file.read(_MOST_BYTES + 1)
    head = parse_head(data, str(path))
    cipher = passphrase_cipher(passphrase, head.salt)
    from cryptography.exceptions import InvalidTag

    contents = head.contents
    try:
        contents.secret = bytearray(cipher.decrypt(head.nonce, data[head.length :], data[: head.length]))
    except InvalidTag:
        raise KeyMismatchError(f"wrong passphrase for {path}, or the file was altered") from None
    return contents


def parse_head(data: bytes, name: str) -> _Head:
    """Check all of a file, called ``name`` in errors, that takes no passphrase. Raises WireFormatError."""
    end = data.find(b"\n", len(_MAGIC)) + 1
    if not data.startswith(_MAGIC) or end == 0 or len(data) > _MOST_BYTES:
        raise WireFormatError(f"{name} is not a shieldfl key file")
    try:
        header = json.loads(data[len(_MAGIC) : end], object_pairs_hook=_without_duplicates)
        head = _Head(
            _read_contents(header), bytes.fromhex(header["salt"]), bytes.fromhex(header["nonce"]), end
        )
    # RecursionError: brackets in brackets. ValueError: what is no JSON, no UTF-8, no hex, no base64.
    except (KeyError, RecursionError, TypeError, ValueError) as error:
        raise WireFormatError(f"{name} is a damaged key file") from error
    if (len(head.salt), len(head.nonce)) != (SALT_BYTES, NONCE_BYTES) or len(data) - end < _TAG_BYTES:
        raise WireFormatError(f"{name} is a damaged key file")
    return head


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice")
    return found


def _read_contents(header: Any) -> Contents:
    """Read the fields; ValueError or TypeError for any that :func:`write` does not write."""
    opened = _of_type(header["opened"], dict)
    one_total_per_round = _of_type(header["one_total_per_round"], bool)
    return Contents(
        public_key=base64.b64decode(_of_type(header["public_key"], str), validate=True),
        min_clients=_count(header["min_clients"], least=1),
        one_total_per_round=one_total_per_round,
        opened={_round(number): _digest(digest) for number, digest in opened.items()},
        secret=bytearray(),
        # Older files lack both.
        opened_coefficients=_count(header.get("opened_coefficients", 0), least=0),
        weight_bounds=_bounds(header.get("weight_bounds", list(WEIGHT_BOUNDS))),
    )


def _of_type(value: Any, expected: type) -> Any:
    if type(value) is not expected:
        raise TypeError(f"expected {expected.__name__}")
    return value


def _count(value: Any, least: int) -> int:
    number = _of_type(value, int)
    if not least <= number < 2**64:
        raise ValueError("a number is out of range")
    return int(number)


def _bounds(value: Any) -> tuple[float, float]:
    smallest, largest = (_of_type(bound, float) for bound in _of_type(value, list))
    if not 0.0 < smallest <= largest < float("inf"):
        raise ValueError("no bounds of weights")
    return smallest, largest


def _round(text: str) -> int:
    number = _count(int(text), least=0)
    if str(number) != text:
        raise ValueError("a round is no plain number")
    return number


def _digest(value: Any) -> str:
    if len(bytes.fromhex(_of_type(value, str))) != _DIGEST_BYTES:
        raise ValueError("a digest has another length")
    return str(value)
