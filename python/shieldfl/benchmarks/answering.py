"""What the authority takes where clients enrol: under kahe by clients, hardly by values; under pads by both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from shieldfl.benchmarks.own_enrolled import EnrolledSession, kahe_parameter_sets, pads_parameter_sets
from shieldfl.benchmarks.scheme import WrongSumError, from_fixed_point, select, to_fixed_point
from shieldfl.benchmarks.target import Target, at_most
from shieldfl.benchmarks.turns import median_seconds_in_turns
from shieldfl.scheme.enrolled_opening import open_total

__all__ = ["AuthorityFigure", "kahe_authority_lines", "measure_authority", "pads_authority_lines"]

_ONE_SECRET = 100
"""Values of an update: under kahe one ciphertext, and so one secret of each client, as up to 32 ciphertexts have."""
_MANY = 1_000_000
"""Values of an update under pads, where each costs the authority."""


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
    session = EnrolledSession(parameters, clients)
    update = select(values, 1.0).update
    aggregator = session.scheme.Aggregator(session.public_key, threads)
    for key in session.client_keys:
        aggregator.add(session.scheme.Encryptor(key, threads).encrypt(update))
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


def kahe_authority_lines(threads: int, repetitions: int) -> Iterator[Target]:
    """Yield a line for each parameter set, with as many clients as it is for; nothing is asked of them."""
    for name, parameters in kahe_parameter_sets().items():
        yield _line(name, parameters, parameters.max_clients, threads, repetitions, _ONE_SECRET)


def pads_authority_lines(threads: int, repetitions: int) -> Iterator[Target]:
    """Yield a line for some numbers of clients, each with many values."""
    name, parameters = next(iter(pads_parameter_sets().items()))
    for clients in (4, parameters.max_clients):
        yield _line(name, parameters, clients, threads, repetitions, _MANY)


def _line(name: str, parameters: Any, clients: int, threads: int, repetitions: int, values: int) -> Target:
    figure = measure_authority(parameters, clients, threads, repetitions, values)
    on = "1 thread" if threads == 1 else f"{threads} threads"
    return at_most(
        f"authority of {name}: answer for {figure.clients:,} clients with {values:,} values, {on}",
        1e3 * figure.seconds,
        None,
        unit="ms",
        note=figure.note,
    )
