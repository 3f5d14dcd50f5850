"""Methods get Paillier keys that were made once: a search for safe primes would take seconds in each test.

And one that was read once: that its primes are safe is not tried again for each authority that is restored.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

import shieldfl as sf
from core.paillier_keys import authority_for, decryptor_of
from shieldfl import _core
from shieldfl.paillier import opening
from shieldfl.roles import round_keys
from shieldfl.roles.key_authority import KeyAuthority
from shieldfl.roles.total_opener import checked_min_clients

_TURN = itertools.count()


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
    checked_min_clients(params, min_clients)
    made = authority_for(params, which=next(_TURN) % 2)
    authority = KeyAuthority.__new__(KeyAuthority)
    authority._set_up(
        made._scheme, made._decryptor, min_clients, True, {}, threads, weight_bounds=weight_bounds
    )
    return authority


class _Decryptor(_core.PaillierDecryptor):
    @staticmethod
    def import_secret(public_key: _core.PaillierPublicKey, secret: bytearray) -> _core.PaillierDecryptor:
        return decryptor_of(public_key.to_bytes(), bytes(secret))


@contextlib.contextmanager
def ready_keys() -> Iterator[None]:
    """Within it, methods get the keys that were made once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(round_keys, "KeyAuthority", _authority)
        patch.setattr(opening, "Decryptor", _Decryptor)
        yield


@pytest.fixture(scope="session", autouse=True)
def keys_made_once() -> Iterator[None]:
    with ready_keys():
        yield
