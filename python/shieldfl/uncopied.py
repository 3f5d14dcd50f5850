"""What stays where it was made: secret keys, and what may be used once only."""

from __future__ import annotations

from typing import ClassVar, NoReturn

from shieldfl.errors import SecretCopyError

__all__ = ["Uncopied"]


class Uncopied:
    """Base of classes whose objects ``pickle``, ``copy.copy`` and ``copy.deepcopy`` refuse with SecretCopyError."""

    __slots__ = ()
    _why_uncopied: ClassVar[str]
    """What follows the class's name in the message: what it holds, and what to do instead."""

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise SecretCopyError(f"{type(self).__name__} {self._why_uncopied}")
