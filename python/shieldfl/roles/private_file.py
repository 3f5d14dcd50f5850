"""Files that their owner alone reads: put into place whole, and sealed by a passphrase where they hold keys."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shieldfl.errors import DataError, KeyMismatchError, ParameterError, ShieldError, WireFormatError
from shieldfl.installing import how_to_install
from shieldfl.roles.held_file import sync_folder

__all__ = [
    "NONCE_BYTES",
    "SALT_BYTES",
    "disk_errors_as",
    "drawn_key",
    "passphrase_cipher",
    "read_sealed_file",
    "write_private_file",
    "write_sealed_file",
]

SALT_BYTES = 16
NONCE_BYTES = 12
_SCRYPT_COST = 2**17  # 128 MiB and a fraction of a second for each guess
_SCRYPT_BLOCK_SIZE = 8


def passphrase_cipher(passphrase: str, salt: bytes) -> Any:
    """Return AES-256-GCM under the key that scrypt derives from a passphrase.

    Raises ParameterError for a passphrase that is empty or no text, ShieldError where ``cryptography`` is missing.
    """
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
    except ImportError as error:
        raise ShieldError(f"key files need the package 'cryptography': {how_to_install('keys')}") from error
    if not isinstance(passphrase, str):
        raise ParameterError(f"the passphrase must be a str, not {type(passphrase).__name__}")
    if not passphrase:
        raise ParameterError("the passphrase is empty: a key file needs one")
    kdf = Scrypt(salt=salt, length=32, n=_SCRYPT_COST, r=_SCRYPT_BLOCK_SIZE, p=1)
    try:
        encoded = passphrase.encode()
    except UnicodeEncodeError:
        raise ParameterError("the passphrase is no text that can be encoded: give another one") from None
    return AESGCM(kdf.derive(encoded))


def write_private_file(path: Path, *pieces: bytes) -> None:
    """Write a file with mode 0600; an existing one is replaced in one step, and is there after a power failure."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def drawn_key(path: Path, length: int) -> bytes:
    """Return a file's random bytes, which are drawn the first time; of several processes the first one's count.

    What one has sealed would be lost under another's key. Raises DataError for a file of another length, OSError.
    """
    if not path.exists():
        drawn = path.with_name(f"{path.name}.{secrets.token_hex(4)}.drawn")
        write_private_file(drawn, secrets.token_bytes(length))
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(drawn)
        drawn.unlink()
    key = path.read_bytes()
    if len(key) != length:
        raise DataError(f"{path} is no key of {length} bytes: restore the folder")
    return key


@contextlib.contextmanager
def disk_errors_as(text: str) -> Iterator[None]:
    """Have what a disk refuses raised as DataError with this text; one that says more already passes as it is."""
    try:
        yield
    except DataError:
        raise
    except OSError as error:
        raise DataError(text) from error


def write_sealed_file(path: Path, passphrase: str, magic: bytes, secret: bytes) -> None:
    """Write a secret alone, sealed under a passphrase: the magic, salt, nonce, then AES-256-GCM with its tag."""
    salt, nonce = secrets.token_bytes(SALT_BYTES), secrets.token_bytes(NONCE_BYTES)
    head = magic + salt + nonce
    write_private_file(path, head + passphrase_cipher(passphrase, salt).encrypt(nonce, secret, head))


def read_sealed_file(path: Path, passphrase: str, magic: bytes) -> bytes:
    """Return what :func:`write_sealed_file` wrote.

    Raises DataError for a file that cannot be read, WireFormatError for another one, KeyMismatchError for a wrong
    passphrase.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: look whether it is there, and its permissions") from error
    start = len(magic) + SALT_BYTES
    head, sealed = content[: start + NONCE_BYTES], content[start + NONCE_BYTES :]
    if not content.startswith(magic) or not sealed:
        raise WireFormatError(f"{path} is no such key file of this version")
    cipher = passphrase_cipher(passphrase, head[len(magic) : start])
    from cryptography.exceptions import InvalidTag

    try:
        return bytes(cipher.decrypt(head[start:], sealed, head))
    except InvalidTag:
        raise KeyMismatchError(f"wrong passphrase for {path}, or the file was altered") from None
