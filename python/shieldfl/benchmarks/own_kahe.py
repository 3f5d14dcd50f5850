"""Our key-additive encryption: clients with keys of their own, and an authority that answers what opens a sum."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from itertools import chain, repeat

import numpy as np
from numpy.typing import NDArray

from shieldfl import kahe
from shieldfl.benchmarks.scheme import Scheme, Selection
from shieldfl.kahe.opening import sum_key
from shieldfl.scheme.enrolled_opening import open_total

__all__ = ["KaheScheme", "KaheSession", "kahe_parameter_sets", "own_kahe"]


def kahe_parameter_sets() -> dict[str, kahe.Parameters]:
    """Return what of key-additive encryption is compared, by name: bits of a value and clients of a sum."""
    return {
        "kahe 24/64": kahe.Parameters(max_clients=64, value_bits=24, fraction_bits=20),
        "kahe 16/32": kahe.Parameters(max_clients=32, value_bits=16, fraction_bits=12),
        "kahe 16/1000": kahe.Parameters(max_clients=1000, value_bits=16, fraction_bits=12),
        "kahe 24/64, N = 8192": kahe.Parameters(
            max_clients=64, value_bits=24, fraction_bits=20, ring_degree=8192
        ),
    }


def own_kahe(threads: int) -> list[Scheme]:
    """Return a scheme for each parameter set, 24-bit values of 64 clients first."""
    return [
        KaheScheme(name, KaheSession(parameters, clients=2), threads)
        for name, parameters in kahe_parameter_sets().items()
    ]


class KaheSession:
    """Some clients, and the authority that has the keys of all of them; everybody's are random.

    The authority computes its answer and decides nothing: what a real one remembers of its answers is not measured.
    """

    def __init__(self, parameters: kahe.Parameters, clients: int) -> None:
        manifest, authority = secrets.token_bytes(32), secrets.token_bytes(16)
        self.public_key = kahe.PublicKey.of_session(parameters, manifest, authority)
        self.client_keys = [
            kahe.ClientKey.of_secret(self.public_key, client, secrets.token_bytes(32))
            for client in range(clients)
        ]

    def answer(self, request: bytes, participants: list[int], threads: int) -> bytearray:
        """Derive the one-time secrets of these clients and sum them: the key of the total that is asked for."""
        keys = [self.client_keys[client] for client in participants]
        return sum_key(self.public_key, request, keys, threads=threads)


class KaheScheme(Scheme):
    """Two clients of a session, its aggregator, its authority, and whoever opens the sum."""

    own = True
    untimed = frozenset()

    def __init__(self, name: str, session: KaheSession, threads: int) -> None:
        parameters = session.public_key.parameters
        super().__init__(
            f"shieldfl {name}",
            f"kahe.{parameters!r}",
            values_per_ciphertext=parameters.values_per_ciphertext,
            fraction_bits=parameters.fraction_bits,
        )
        self._session, self._threads = session, threads
        first, other = (kahe.Encryptor(key, threads) for key in session.client_keys[:2])
        # A sum holds a client once: the frame that sums begin with is the first one's, all others are the other's.
        self._turns: Iterator[kahe.Encryptor] = chain([first], repeat(other))

    def encrypt(self, selection: Selection) -> kahe.CiphertextBatch:
        """Encrypt; the frame is made in the same pass."""
        return next(self._turns).encrypt(selection.update, selection.mask)

    def serialise(self, encrypted: kahe.CiphertextBatch) -> bytes:
        """Return the frame that is there already, header and checksum included."""
        return encrypted.to_bytes()

    def start_sum(self, frame: bytes) -> kahe.Aggregator:
        """Make an aggregator that holds one frame."""
        aggregator = kahe.Aggregator(self._session.public_key, self._threads)
        aggregator.add(frame)
        return aggregator

    def add(self, total: kahe.Aggregator, frame: bytes) -> None:
        """Parse, check and add a frame."""
        total.add(frame)

    def close(self, total: kahe.Aggregator) -> tuple[kahe.Total, bytes]:
        """Return the total's frame and the request for its key, with a digest of the frame."""
        frame = total.total()
        return frame, frame.request()

    def answer(self, closed: tuple[kahe.Total, bytes]) -> tuple[kahe.Total, bytearray]:
        """Return the total and the key that opens it."""
        total, request = closed
        participants = [client for client, _ in total.participants]
        return total, self._session.answer(request, participants, self._threads)

    def open(self, closed: tuple[kahe.Total, bytearray]) -> NDArray[np.float64]:
        """Parse, check and digest the total's frame, and open it."""
        total, key = closed
        opened, _ = open_total(self._session.public_key, total, key, threads=self._threads)
        return opened
