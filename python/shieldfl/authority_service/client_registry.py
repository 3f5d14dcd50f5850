"""The clients whom an authority's operator vouches for: a file for each, with its public key."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from shieldfl.authority_service.identity import NAME, checked_public_key
from shieldfl.errors import DataError, ParameterError, PolicyError
from shieldfl.roles.held_file import sync_folder
from shieldfl.roles.private_file import write_private_file

__all__ = ["ClientRegistry"]

_KEY, _REVOKED = ".pub", ".revoked"


class ClientRegistry:
    """A folder of keys, which commands change while the service reads it.

    Parameters
    ----------
    folder : that is there. Raises DataError else: without it nobody would be known to be revoked.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files()

    def register(self, name: str, public_key: bytes) -> None:
        """Take a client. The same again changes nothing.

        Raises PolicyError for a name with another key or one that was revoked, and for a key that another name has or
        had; ParameterError for no name or key.
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
            for other in self._files():
                if other not in {f"{name}{_KEY}"} and self._key_in(self._folder / other) == key:
                    raise PolicyError(
                        f"the key is that of {other.rpartition('.')[0]}: a client has one name, for good"
                    )
            write_private_file(path, key.hex().encode() + b"\n")

    def revoke(self, name: str) -> None:
        """Take a client out, for good. Raises PolicyError for one that is not registered."""
        with self._locked():
            self.public_key(name)
            path = self._file(name, _REVOKED)
            self._file(name, _KEY).rename(path)
            sync_folder(path)

    def public_key(self, name: str) -> bytes:
        """Return a client's key, 32 bytes. Raises PolicyError for one that is not registered, or was revoked."""
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
        """Return who is registered."""
        return sorted(
            {name.removesuffix(_KEY) for name in self._files() if name.endswith(_KEY)} - self.revoked()
        )

    def revoked(self) -> frozenset[str]:
        """Return who was, and is not any more. Raises DataError where the folder cannot be read."""
        return frozenset(name.removesuffix(_REVOKED) for name in self._files() if name.endswith(_REVOKED))

    def _files(self) -> list[str]:
        try:
            return [name for name in os.listdir(self._folder) if name.endswith((_KEY, _REVOKED))]
        except OSError as error:
            raise DataError(
                f"the registered clients in {self._folder} cannot be read: restore the folder"
            ) from error

    @staticmethod
    def _key_in(path: Path) -> bytes:
        return checked_public_key(path.read_text(encoding="utf-8-sig", errors="replace").strip())

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other commands from the folder."""
        descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _file(self, name: str, suffix: str) -> Path:
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise ParameterError(
                "a client's name has 1 to 63 letters, digits, dots, dashes and underscores, and begins with a letter "
                "or a digit"
            )
        return self._folder / f"{name}{suffix}"
