"""A store on a client's side, which belongs to whoever has its key: its owner is its kind."""

from __future__ import annotations

import hashlib
from os import PathLike
from typing import ClassVar, Self

from shieldfl.roles.store import Store

__all__ = ["StoreOfClient"]


class StoreOfClient(Store):
    """What is told from a key authority's, and from one of another kind, when it is opened."""

    _kind: ClassVar[bytes]

    def __init__(
        self,
        path: str | PathLike[str],
        key: bytes,
        *,
        at_least: tuple[int, int] = (0, 0),
        restored: bool = False,
    ) -> None:
        """Open what :meth:`create` made, and verify all of it.

        Parameters
        ----------
        path : of the file.
        key : 32 random bytes, those that it was created with.
        at_least : a :attr:`position` that the store is known to have reached. An older file is refused.
        restored : the file is a backup: every session has ended for this client, which takes part in new ones.

        Raises as :class:`~shieldfl.roles.store.Store` does.
        """
        super().__init__(path, key, self._owner(), at_least=at_least, restored=restored)

    @classmethod
    def create(cls, path: str | PathLike[str], key: bytes) -> Self:
        """Make an empty store, file mode 0600, and open it; ``key`` is 32 random bytes, kept elsewhere.

        Raises PolicyError where there is a file already; DataError; OSError for a folder that cannot be written;
        ParameterError.
        """
        cls._create(path, key, cls._owner())
        return cls(path, key)

    @classmethod
    def _owner(cls) -> bytes:
        return hashlib.sha256(cls._kind).digest()
