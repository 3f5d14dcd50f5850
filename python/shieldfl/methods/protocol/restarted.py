"""A role that starts anew for each of its steps: what a process that ends after every message goes through."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from shieldfl.methods.protocol.reports import Reporter

__all__ = ["restarted"]

Role = TypeVar("Role", bound=Reporter)


def restarted(role: Role, make: Callable[[], Role], key: bytes | None = None) -> Role:
    """Return what does as a role does, each call of a method in a new object, restored from the state of the last one.

    Parameters
    ----------
    role : the first object: its state is where the second goes on.
    make : makes an object of the same role, from the public set-up alone.
    key : seals the states.
    """
    return cast(Role, _Restarted(role, make, key))


class _Restarted:
    def __init__(self, role: Any, make: Callable[[], Any], key: bytes | None) -> None:
        self._role, self._make, self._key = role, make, key

    def __getattr__(self, name: str) -> Any:
        if not callable(getattr(self._role, name)):
            return getattr(self._role, name)

        def step(*arguments: Any) -> Any:
            state = self._role.state(self._key)
            self._role = self._make()
            self._role.restore(state, self._key)
            return getattr(self._role, name)(*arguments)

        return step
