"""One key pair for all federations of a method: of keys that take seconds to make, and protect nobody here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from shieldfl.roles.key_authority import KeyAuthority
from shieldfl.roles.key_file import Contents
from shieldfl.scheme.parameters import SchemeParameters
from shieldfl.scheme.registry import scheme_of

__all__ = ["kept_pair"]

_kept: dict[tuple[str, int, tuple[float, float]], Contents] = {}
"""By parameters and policy: a pair as it was made, before it opened anything."""


def kept_pair(
    parameters: SchemeParameters[Any, Any],
    min_clients: int,
    *,
    threads: int | None,
    weight_bounds: tuple[float, float],
) -> KeyAuthority[Any]:
    """Return a key authority as :class:`KeyAuthority` makes it; where pairs last, with that of an earlier one.

    Pairs of single rounds are made anew. What was opened by an earlier authority this one does not know: each is of a
    federation of its own, with its own session and signing key. It is for the audit alone: no command, and no other
    part of the package, has two authorities of one key. Raises as :class:`KeyAuthority` does.
    """

    def made() -> KeyAuthority[Any]:
        new = KeyAuthority(parameters, min_clients, threads=threads, weight_bounds=weight_bounds)
        return cast("KeyAuthority[Any]", new)

    if not scheme_of(parameters).keys_last:
        return made()
    which = repr(parameters), min_clients, weight_bounds
    if which not in _kept:
        _kept[which] = made().contents()
    contents = replace(_kept[which], secret=bytearray(_kept[which].secret), opened={})
    return KeyAuthority.of_contents(contents, threads=threads)
