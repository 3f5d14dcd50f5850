"""A client's store with a key in it, what it encrypts, and a session that is the same in every process."""

from __future__ import annotations

import numpy as np

from shieldfl.authority.client_store import ClientStore
from shieldfl.encryption import kahe

KEY = bytes(range(32))
PUBLIC_KEY = kahe.PublicKey.of_session(kahe.Parameters(max_clients=8, ring_degree=2048), bytes(32), bytes(16))
CLIENT, SECRET = 7, bytes(reversed(range(32)))
SIZE = 300


def update(number: int = 0):
    """Return values that differ by number."""
    return np.random.default_rng(number).integers(-1000, 1000, SIZE).astype(np.float32) / 1024


def opened(path, **options) -> ClientStore:
    return ClientStore(path, KEY, **options)


def begun(path) -> ClientStore:
    """Return a new store with a key that is known."""
    store = ClientStore.create(path, KEY)
    store.add_key(kahe.ClientKey(PUBLIC_KEY, CLIENT, SECRET))
    return store


def encrypt(store, round_number, number=None, **options) -> bytes:
    """Return the frame of a round: of values of its own, if nothing else is said."""
    values = update(round_number if number is None else number)
    return store.encrypt(PUBLIC_KEY, values, round=round_number, threads=1, **options)


def kept(store, round_number, **options):
    return store.frame(PUBLIC_KEY, round=round_number, **options)
