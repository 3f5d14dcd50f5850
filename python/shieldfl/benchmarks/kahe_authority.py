"""What the authority of key-additive encryption takes: it costs by the clients of a sum, hardly by their values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shieldfl import kahe
from shieldfl.benchmarks.own_kahe import KaheSession, kahe_parameter_sets
from shieldfl.benchmarks.scheme import WrongSumError, from_fixed_point, select, to_fixed_point
from shieldfl.benchmarks.target import Target, at_most
from shieldfl.benchmarks.turns import median_seconds_in_turns
from shieldfl.scheme.enrolled_opening import open_total

__all__ = ["AuthorityFigure", "authority_lines", "measure_authority"]

_VALUES = 100
"""Of each update: one ciphertext, and so one secret of each client, as up to 32 ciphertexts have."""


@dataclass(frozen=True)
class AuthorityFigure:
    """The key of one total, with one secret of each client in it."""

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
    parameters: kahe.Parameters, clients: int, threads: int, repetitions: int
) -> AuthorityFigure:
    """Encrypt and add for all clients, time the authority, and open. Raises WrongSumError."""
    session = KaheSession(parameters, clients)
    update = select(_VALUES, 1.0).update
    aggregator = kahe.Aggregator(session.public_key, threads)
    for key in session.client_keys:
        aggregator.add(kahe.Encryptor(key, threads).encrypt(update))
    total = aggregator.total()
    request = total.request()
    participants = [client for client, _ in total.participants]
    answers: list[bytearray] = []

    def answer() -> None:
        answers[:] = [session.answer(request, participants, threads)]

    seconds = median_seconds_in_turns({"answer": answer}, repetitions)
    opened, _ = open_total(session.public_key, total, answers[0], threads=threads)
    fraction_bits = parameters.fraction_bits
    if not np.array_equal(
        opened, from_fixed_point(clients * to_fixed_point(update, fraction_bits), fraction_bits)
    ):
        raise WrongSumError(f"the key of {clients:,} clients opened a wrong sum")
    return AuthorityFigure(clients, seconds["answer"], len(answers[0]), len(request))


def authority_lines(threads: int, repetitions: int) -> Iterator[Target]:
    """Yield a line for each parameter set, with as many clients as it is for; nothing is asked of them."""
    for name, parameters in kahe_parameter_sets().items():
        figure = measure_authority(parameters, parameters.max_clients, threads, repetitions)
        on = "1 thread" if threads == 1 else f"{threads} threads"
        yield at_most(
            f"authority of {name}: answer for {figure.clients:,} clients, {on}",
            1e3 * figure.seconds,
            None,
            unit="ms",
            note=figure.note,
        )
