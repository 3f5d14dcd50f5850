"""What an authority's answers take where clients enrol.

Under kahe the authority's time grows with clients, hardly with values; under pads with both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from shieldfl.encryption.enrolment import open_total
from shieldfl.lab.bench.comparison import EnrolledSession
from shieldfl.lab.bench.measurement import WrongSumError, from_fixed_point, select, to_fixed_point
from target import median_seconds_in_turns

_ONE_SECRET = 100
"""Values of an update: under kahe one ciphertext, and so one secret of each client, as up to 32 ciphertexts have."""


@dataclass(frozen=True)
class AuthorityFigure:
    """The key of one total."""

    clients: int
    seconds: float
    """To derive all secrets and to sum them."""
    answer_bytes: int
    request_bytes: int

    @property
    def note(self) -> str:
        """What the time is made of, in words."""
        return (
            f"{1e6 * self.seconds / self.clients:.2f} µs a client; request of {self.request_bytes:,} bytes, "
            f"answer of {self.answer_bytes:,}"
        )


def measure_authority(
    parameters: Any, clients: int, threads: int, repetitions: int, values: int = _ONE_SECRET
) -> AuthorityFigure:
    """Encrypt and add for all clients, time the authority, and open. Raises WrongSumError."""
    return measure_authorities({"alone": parameters}, clients, threads, repetitions, values)["alone"]


def measure_authorities(
    parameter_sets: Mapping[str, Any],
    clients: int,
    threads: int,
    repetitions: int,
    values: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, AuthorityFigure]:
    """Do what :func:`measure_authority` does for each parameter set; authorities answer in turns.

    ``clock`` : as for :func:`median_seconds_in_turns`.
    """
    sums = {
        name: _AskedSum(parameters, clients, threads, values) for name, parameters in parameter_sets.items()
    }
    seconds = median_seconds_in_turns(
        {name: one.answer for name, one in sums.items()}, repetitions, clock=clock
    )
    for one in sums.values():
        one.check()
    return {
        name: AuthorityFigure(clients, seconds[name], len(one.answered), len(one.request))
        for name, one in sums.items()
    }


class _AskedSum:
    """A total of the same update of all clients, and the request for its key."""

    def __init__(self, parameters: Any, clients: int, threads: int, values: int) -> None:
        self._clients, self._threads = clients, threads
        self._session = EnrolledSession(parameters, clients)
        self._update = select(values, 1.0).update
        scheme = self._session.scheme
        aggregator = scheme.Aggregator(self._session.public_key, threads)
        for key in self._session.client_keys:
            aggregator.add(scheme.Encryptor(key, threads).encrypt(self._update))
        self._total = aggregator.total()
        self.request = self._total.request()
        self._participants = [client for client, _ in self._total.participants]
        self.answered = bytearray()

    def answer(self) -> None:
        """Do what is timed."""
        self.answered = self._session.answer(self.request, self._participants, self._threads)

    def check(self) -> None:
        """Open with the last answer. Raises WrongSumError."""
        public_key = self._session.public_key
        fraction_bits = public_key.parameters.fraction_bits
        opened, _ = open_total(public_key, self._total, self.answered, threads=self._threads)
        expected = from_fixed_point(
            self._clients * to_fixed_point(self._update, fraction_bits), fraction_bits
        )
        if not np.array_equal(opened, expected):
            raise WrongSumError(f"the key of {self._clients:,} clients opened a wrong sum")
