"""Ours in which clients enrol: clients with keys of their own, and an authority that answers what opens a sum."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shieldfl import kahe, pads
from shieldfl.benchmarks.scheme import Scheme, Selection
from shieldfl.scheme.answers import open_total
from shieldfl.scheme.registry import scheme_of
from shieldfl.scheme.sum_keys import sum_key

__all__ = [
    "EnrolledScheme",
    "EnrolledSession",
    "kahe_parameter_sets",
    "own_kahe",
    "own_pads",
    "pads_parameter_sets",
]


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


def pads_parameter_sets() -> dict[str, pads.Parameters]:
    """Return the same of one-time pads."""
    return {
        "pads 24/64": pads.Parameters(max_clients=64, value_bits=24, fraction_bits=20),
        "pads 16/32": pads.Parameters(max_clients=32, value_bits=16, fraction_bits=12),
        "pads 16/1000": pads.Parameters(max_clients=1000, value_bits=16, fraction_bits=12),
    }


def own_kahe(threads: int) -> list[Scheme]:
    """Return a scheme for each parameter set, 24-bit values of 64 clients first."""
    return _own(kahe_parameter_sets(), threads)


def own_pads(threads: int) -> list[Scheme]:
    """Return the same of one-time pads."""
    return _own(pads_parameter_sets(), threads)


def _own(parameter_sets: dict[str, Any], threads: int) -> list[Scheme]:
    return [
        EnrolledScheme(name, EnrolledSession(parameters, clients=2), threads)
        for name, parameters in parameter_sets.items()
    ]


class EnrolledSession:
    """Some clients, and the authority that has the keys of all of them, or several; everybody's are random.

    An authority computes its answer and decides nothing: what a real one remembers of its answers is not measured.
    """

    def __init__(self, parameters: Any, clients: int, authorities: int = 1) -> None:
        manifest, authority = secrets.token_bytes(32), secrets.token_bytes(16)
        self.scheme = scheme_of(parameters)
        self.public_key = self.scheme.PublicKey.of_session(parameters, manifest, authority)
        shared = [[secrets.token_bytes(32) for _ in range(authorities)] for _ in range(clients)]
        self.client_keys = [
            self.scheme.ClientKey.of_secret(self.public_key, client, b"".join(own))
            for client, own in enumerate(shared)
        ]
        self._keys_by_authority = [
            [
                self.scheme.ClientKey.of_secret(self.public_key, client, own[authority])
                for client, own in enumerate(shared)
            ]
            for authority in range(authorities)
        ]

    def answer(self, request: bytes, participants: list[int], threads: int) -> bytearray:
        """Derive the one-time secrets of these clients and sum them: what the only authority answers."""
        (answer,) = self.answers(request, participants, threads)
        return answer

    def answers(self, request: bytes, participants: list[int], threads: int) -> list[bytearray]:
        """Return what each authority derives in this way: all of it opens the total that is asked for."""
        return [
            sum_key(self.public_key, request, [keys[client] for client in participants], threads=threads)
            for keys in self._keys_by_authority
        ]


class EnrolledScheme(Scheme):
    """Two clients of a session, its aggregator, its authority, and whoever opens the sum."""

    own = True
    untimed = frozenset()

    def __init__(self, name: str, session: EnrolledSession, threads: int) -> None:
        parameters = session.public_key.parameters
        super().__init__(
            f"shieldfl {name}",
            f"{session.scheme.name}.{parameters!r}",
            values_per_ciphertext=parameters.values_per_ciphertext,
            fraction_bits=parameters.fraction_bits,
        )
        self._session, self._threads = session, threads
        first, other = (session.scheme.Encryptor(key, threads) for key in session.client_keys[:2])
        # A sum holds a client once: the frame that sums begin with is the first one's, all others are the other's.
        self._turns: Iterator[Any] = chain([first], repeat(other))

    def encrypt(self, selection: Selection) -> Any:
        """Encrypt; the frame is made in the same pass."""
        return next(self._turns).encrypt(selection.update, selection.mask)

    def serialise(self, encrypted: Any) -> bytes:
        """Return the frame that is there already, header and checksum included."""
        frame: bytes = encrypted.to_bytes()
        return frame

    def start_sum(self, frame: bytes) -> Any:
        """Make an aggregator that holds one frame."""
        aggregator = self._session.scheme.Aggregator(self._session.public_key, self._threads)
        aggregator.add(frame)
        return aggregator

    def add(self, total: Any, frame: bytes) -> None:
        """Parse, check and add a frame."""
        total.add(frame)

    def close(self, total: Any) -> tuple[Any, bytes]:
        """Return the total's frame and the request for its key, with a digest of the frame."""
        frame = total.total()
        return frame, frame.request()

    def answer(self, closed: tuple[Any, bytes]) -> tuple[Any, bytearray]:
        """Return the total and the key that opens it."""
        total, request = closed
        participants = [client for client, _ in total.participants]
        return total, self._session.answer(request, participants, self._threads)

    def open(self, closed: tuple[Any, bytearray]) -> NDArray[np.float64]:
        """Parse, check and digest the total's frame, as whoever gets it has to, and open it."""
        total, key = closed
        total = self._session.scheme.Total(total.to_bytes())
        opened, _ = open_total(self._session.public_key, total, key, threads=self._threads)
        return opened
