"""One key pair for all federations of a method: of keys that take seconds to make, and protect nobody here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from shieldfl.roles.key_authority import KeyAuthority
from shieldfl.roles.key_file import Contents
from shieldfl.roles.round_keys import RoundKeys
from shieldfl.scheme.registry import scheme_of

__all__ = ["kept_pairs"]

_kept: dict[tuple[str, int, tuple[float, float]], Contents] = {}
"""By parameters and policy: a pair as it was made, before it opened anything."""


@contextmanager
def kept_pairs() -> Iterator[None]:
    """Within, a key authority whose pair lasts for a federation gets that of an earlier one of like parameters.

    Pairs of single rounds are made anew. What was opened by an earlier authority this one does not know: each is of a
    federation of its own, with its own session and signing key. A switch of the audit's alone: outside of it, and in
    all other commands, there is no way to have two authorities of one key.
    """
    made = RoundKeys._make

    def make(keys: RoundKeys, purpose: str) -> KeyAuthority[Any]:
        parameters = keys.check.parameters[purpose]
        if not scheme_of(parameters).keys_last:
            return made(keys, purpose)
        which = repr(parameters), keys.min_clients, keys._weight_bounds
        if which not in _kept:
            _kept[which] = made(keys, purpose).contents()
        contents = replace(_kept[which], secret=bytearray(_kept[which].secret), opened={})
        return KeyAuthority.of_contents(contents, threads=keys._threads)

    RoundKeys._make = make  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        RoundKeys._make = made  # type: ignore[method-assign]
