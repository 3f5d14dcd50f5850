"""Methods get Paillier keys that were made once: a search for safe primes would take seconds in each test.

And one that was read once: that its primes are safe is not tried again for each authority that is restored.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

import pytest

from shieldfl import _core
from shieldfl.encryption import opening

_TURN = itertools.count()


class _Decryptor:
    """In the place of the core's: of two that are made one after the other, the keys differ."""

    # Imported where a key is wanted: it takes packages that an environment of one example's own has not.
    def __new__(cls, parameters: _core.PaillierParameters) -> _core.PaillierDecryptor:
        from encryption.paillier_keys import decryptor_of, primes, public_key_frame, secret_of

        p, q = primes(parameters.facts["key_bits"], next(_TURN) % 2)
        return decryptor_of(public_key_frame(parameters, p * q), secret_of(p, q))

    @staticmethod
    def import_secret(public_key: _core.PaillierPublicKey, secret: bytearray) -> _core.PaillierDecryptor:
        from encryption.paillier_keys import decryptor_of

        return decryptor_of(public_key.to_bytes(), bytes(secret))


@contextlib.contextmanager
def ready_keys() -> Iterator[None]:
    """Within it, methods get the keys that were made once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(opening.DECRYPTORS, _core.PaillierPublicKey, _Decryptor)
        yield


@pytest.fixture(scope="session", autouse=True)
def keys_made_once() -> Iterator[None]:
    with ready_keys():
        yield
