"""The clients whom an authority's operator vouches for: a file for each, with its public key."""

from __future__ import annotations

import re
from pathlib import Path

from shieldfl.authority_service.identity import checked_public_key
from shieldfl.errors import DataError, ParameterError, PolicyError
from shieldfl.roles.private_file import write_private_file

__all__ = ["ClientRegistry"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_KEY, _REVOKED = ".pub", ".revoked"


class ClientRegistry:
    """A folder of keys, which commands change while the service reads it.

    Parameters
    ----------
    folder : made where there is none.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, exist_ok=True)

    def register(self, name: str, public_key: bytes) -> None:
        """Take a client. The same again changes nothing.

        Raises PolicyError for a name with another key, or one that was revoked; ParameterError for no name or key.
        """
        key = checked_public_key(public_key)
        if self._file(name, _REVOKED).exists():
            raise PolicyError(f"{name} was revoked: register the client's new key under another name")
        path = self._file(name, _KEY)
        if path.exists() and self.public_key(name) != key:
            raise PolicyError(f"there is a client {name} with another key: revoke it, and take another name")
        write_private_file(path, key.hex().encode() + b"\n")

    def revoke(self, name: str) -> None:
        """Take a client's key away, for good. Raises PolicyError for one that is not registered."""
        self.public_key(name)
        self._file(name, _KEY).rename(self._file(name, _REVOKED))

    def public_key(self, name: str) -> bytes:
        """Return a client's key, 32 bytes. Raises PolicyError for one that is not registered, or was revoked."""
        try:
            return checked_public_key(self._file(name, _KEY).read_text().strip())
        except FileNotFoundError:
            what = "was revoked" if self._file(name, _REVOKED).exists() else "is not registered"
            raise PolicyError(f"{name} {what} at this key authority: have its operator enrol it") from None
        except OSError as error:
            raise DataError(f"the key of {name} cannot be read: mend the disk, then try again") from error

    def names(self) -> list[str]:
        """Return who is registered."""
        return sorted(path.name.removesuffix(_KEY) for path in self._folder.glob(f"*{_KEY}"))

    def revoked(self) -> frozenset[str]:
        """Return who was, and is not any more."""
        return frozenset(path.name.removesuffix(_REVOKED) for path in self._folder.glob(f"*{_REVOKED}"))

    def _file(self, name: str, suffix: str) -> Path:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ParameterError(
                "a client's name has 1 to 63 letters, digits, dots, dashes and underscores, and begins with a letter "
                "or a digit"
            )
        return self._folder / f"{name}{suffix}"
