"""Secret keys at rest: scrypt for the passphrase, AES-256-GCM for the secret, both from ``cryptography``.

The file is a line of magic, a line of JSON (public, authenticated) and the encrypted secret.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shieldfl.errors import KeyMismatchError, ParameterError, ShieldError, WireFormatError
from shieldfl.installing import how_to_install
from shieldfl.uncopied import Uncopied

__all__ = ["WEIGHT_BOUNDS", "Contents", "read", "write"]

WEIGHT_BOUNDS = (2.0**-6, 1.0)
"""Of encrypted weights, where nothing else is said."""

_MAGIC = b"shieldfl key file 1\n"
_SCRYPT_COST = 2**17  # 128 MiB and a fraction of a second for each guess
_SCRYPT_BLOCK_SIZE = 8
_SALT_BYTES = 16
_NONCE_BYTES = 12


@dataclass
class Contents(Uncopied):
    """What a key file holds. ``secret`` is a bytearray so that its owner can overwrite it."""

    _why_uncopied = "holds a secret key and is neither copied nor pickled"

    public_key: bytes
    min_clients: int
    one_total_per_round: bool
    opened: dict[int, str]
    secret: bytearray
    weight_bounds: tuple[float, float] = WEIGHT_BOUNDS

    def __repr__(self) -> str:
        return f"Contents(secret of {len(self.secret)} bytes)"


def _cipher(passphrase: str, salt: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
    except ImportError as error:
        raise ShieldError(f"key files need the package 'cryptography': {how_to_install('keys')}") from error
    if not isinstance(passphrase, str):
        raise ParameterError(f"the passphrase must be a str, not {type(passphrase).__name__}")
    kdf = Scrypt(salt=salt, length=32, n=_SCRYPT_COST, r=_SCRYPT_BLOCK_SIZE, p=1)
    return AESGCM(kdf.derive(passphrase.encode()))


def write(path: Path, passphrase: str, contents: Contents) -> None:
    """Write a key file with mode 0600; an existing one is replaced in one step."""
    if not passphrase:
        raise ParameterError("the passphrase is empty: a key file needs one")
    salt, nonce = secrets.token_bytes(_SALT_BYTES), secrets.token_bytes(_NONCE_BYTES)
    header = {
        "salt": salt.hex(),
        "nonce": nonce.hex(),
        "public_key": base64.b64encode(contents.public_key).decode(),
        "min_clients": contents.min_clients,
        "one_total_per_round": contents.one_total_per_round,
        "weight_bounds": contents.weight_bounds,
        "opened": {str(number): digest for number, digest in contents.opened.items()},
    }
    head = _MAGIC + json.dumps(header).encode() + b"\n"
    sealed = _cipher(passphrase, salt).encrypt(nonce, contents.secret, head)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(head + sealed)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _read_bounds(pair: Any) -> tuple[float, float]:
    """Return bounds that make sense. Raises ValueError, TypeError."""
    smallest, largest = (float(bound) for bound in pair)
    if not 0.0 < smallest <= largest < float("inf"):
        raise ValueError("no bounds of weights")
    return smallest, largest


def read(path: Path, passphrase: str) -> Contents:
    """Read a key file. Raises WireFormatError, KeyMismatchError, OSError."""
    data = path.read_bytes()
    head_end = data.find(b"\n", len(_MAGIC)) + 1
    if not data.startswith(_MAGIC) or head_end == 0:
        raise WireFormatError(f"{path} is not a shieldfl key file")
    try:
        header = json.loads(data[len(_MAGIC) : head_end])
        salt, nonce = bytes.fromhex(header["salt"]), bytes.fromhex(header["nonce"])
        contents = Contents(
            public_key=base64.b64decode(header["public_key"], validate=True),
            min_clients=int(header["min_clients"]),
            one_total_per_round=bool(header["one_total_per_round"]),
            opened={int(number): str(digest) for number, digest in header["opened"].items()},
            secret=bytearray(),
            weight_bounds=_read_bounds(header.get("weight_bounds", WEIGHT_BOUNDS)),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise WireFormatError(f"{path} is a damaged key file") from error
    if len(salt) != _SALT_BYTES or len(nonce) != _NONCE_BYTES:
        raise WireFormatError(f"{path} is a damaged key file")
    cipher = _cipher(passphrase, salt)
    from cryptography.exceptions import InvalidTag

    try:
        contents.secret = bytearray(cipher.decrypt(nonce, data[head_end:], data[:head_end]))
    except InvalidTag:
        raise KeyMismatchError(f"wrong passphrase for {path}, or the file was altered") from None
    return contents
