"""Methods get Paillier keys that were made once: a search for safe primes would take seconds in each test."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

import shieldfl as sf
from core.paillier_keys import authority_for
from shieldfl.roles import round_keys
from shieldfl.roles.key_authority import KeyAuthority

_TURN = itertools.count()


@functools.cache
def _made_once(params: sf.paillier.Parameters, which: int) -> KeyAuthority:
    return authority_for(params, which=which)


def _authority(
    params: Any,
    min_clients: int = 2,
    *,
    threads: int | None = None,
    weight_bounds: tuple[float, float] = (1.0, 1.0),
) -> KeyAuthority:
    """Make an authority; of two that are made one after the other, the keys differ."""
    if not isinstance(params, sf.paillier.Parameters):
        return KeyAuthority(params, min_clients, threads=threads, weight_bounds=weight_bounds)
    KeyAuthority._check_min_clients(params, min_clients)
    made = _made_once(params, next(_TURN) % 2)
    authority = KeyAuthority.__new__(KeyAuthority)
    authority._set_up(
        made._scheme, made._decryptor, min_clients, True, {}, threads, weight_bounds=weight_bounds
    )
    return authority


@contextlib.contextmanager
def ready_keys() -> Iterator[None]:
    """Within it, methods get the keys that were made once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(round_keys, "KeyAuthority", _authority)
        yield


@pytest.fixture(scope="session", autouse=True)
def keys_made_once() -> Iterator[None]:
    with ready_keys():
        yield
