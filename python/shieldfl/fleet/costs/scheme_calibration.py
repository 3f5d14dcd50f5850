"""What encrypting, adding and opening a ciphertext takes here, for each scheme."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shieldfl.errors import RangeError
from shieldfl.fleet.costs.device_profile import SchemeProfile
from shieldfl.profiling.stages import median_seconds
from shieldfl.roles.answer_opener import AnswerOpener
from shieldfl.roles.key_authority import KeyAuthority
from shieldfl.scheme.interface import POOLED, Scheme
from shieldfl.scheme.registry import scheme_named

__all__ = ["SchemeWork", "measure_schemes", "scheme_parameters"]

# Of the totals that are opened: where an authority answers lists of clients, its work grows with them.
_FEW_CLIENTS, _MANY_CLIENTS = 2, 18


@dataclass(frozen=True)
class SchemeWork:
    """What each scheme is measured on."""

    update: NDArray[np.float32]
    """Encrypted whole; repeated or cut by slow schemes."""
    slow_ciphertexts: int
    """That slow schemes encrypt at a time, for each thread."""
    key_bits: int
    """For schemes with a choice of it."""
    threads: tuple[int, ...]
    seconds: float
    """For each figure, at least."""


def scheme_parameters(name: str, key_bits: int) -> Any:
    """Return the parameters that one of :func:`shieldfl.scheme.registry.calibrations` is measured with."""
    return scheme_named(name).calibrated_parameters(name.removesuffix(POOLED), key_bits)


def measure_schemes(
    names: Iterable[str], work: SchemeWork, on_step: Callable[[str], None] = lambda _: None
) -> list[SchemeProfile]:
    """Measure some of :func:`shieldfl.scheme.registry.calibrations`; a slow scheme takes seconds more for a key.

    ``on_step`` is told the name of each before it is measured.

    Adding and opening are measured with one thread, without integer weights and clear values.
    Raises RangeError should a sum be opened wrongly.
    """
    federations: dict[Any, _Federation] = {}
    profiles = []
    for name in names:
        on_step(name)
        parameters = scheme_parameters(name, work.key_bits)
        if parameters not in federations:
            federations[parameters] = _Federation(scheme_named(name), parameters)
        profiles.append(_measure_scheme(name, work, parameters, federations[parameters]))
    return profiles


class _Federation:
    """A key authority, and what its clients encrypt under; rounds only go up, whoever has them."""

    def __init__(self, scheme: Scheme, parameters: Any) -> None:
        self.scheme = scheme
        # Each repetition opens anew. Where an authority answers a list once, each is a round of its own; elsewhere
        # without the protection against two totals of a round, which costs nothing to check.
        self.authority: Any = KeyAuthority(
            parameters, min_clients=_FEW_CLIENTS, one_total_per_round=scheme.enrols, threads=1
        )
        self.public_key = self.authority.public_key
        self.round = 0

    @cached_property
    def keys(self) -> list[Any]:
        """Of each client: where they enrol its own, elsewhere the public one."""
        if not self.scheme.enrols:
            return [self.public_key] * _FEW_CLIENTS
        return [self.authority.enrol(client) for client in range(_MANY_CLIENTS)]


def _measure_scheme(name: str, work: SchemeWork, parameters: Any, federation: _Federation) -> SchemeProfile:
    scheme = federation.scheme
    in_one = int(parameters.values_per_ciphertext)
    encrypt_seconds = {}
    pool_seconds = {}
    for threads in work.threads:
        count = in_one * work.slow_ciphertexts * threads if scheme.is_slow else work.update.size
        bench = _Bench(federation, threads, np.resize(work.update, count))
        prepare = None
        if name.endswith(POOLED):
            prepare = bench.fill_pool
            # Used up before each repetition, since a pool keeps what is not taken.
            taken = bench.encrypt
            pool_seconds[threads] = median_seconds(prepare, work.seconds, taken, threads) / (count / in_one)
        seconds = median_seconds(bench.encrypt, work.seconds, prepare, threads)
        encrypt_seconds[threads] = seconds / (count / in_one)
    bench.check(2.0**-parameters.fraction_bits)
    ciphertexts = count / in_one
    answer_seconds, answer_seconds_per_client = (
        (seconds / ciphertexts for seconds in bench.answer_seconds(work.seconds))
        if scheme.enrols
        else (0.0, 0.0)
    )
    return SchemeProfile(
        name=name,
        setting=repr(parameters),
        values_per_ciphertext=in_one,
        ciphertext_bytes=float(parameters.bytes_per_value) * in_one,
        encrypt_seconds=encrypt_seconds,
        add_seconds=median_seconds(bench.add, work.seconds, bench.start_sum) / ciphertexts,
        open_seconds=bench.open_seconds(work.seconds) / ciphertexts,
        answer_seconds=answer_seconds,
        answer_seconds_per_client=answer_seconds_per_client,
        clients_open=scheme.enrols,
        adds_clear_values=scheme.adds_clear_values,
        pool_seconds=pool_seconds,
    )


class _Bench:
    """The roles of one scheme, and the values that they handle."""

    def __init__(self, federation: _Federation, threads: int, values: NDArray[np.float32]) -> None:
        self._federation = federation
        scheme = federation.scheme
        self._encryptors = [scheme.Encryptor(key, threads=threads) for key in federation.keys]
        self._values = values
        self._frames = [self._encrypted(client) for client in range(_FEW_CLIENTS)]
        self._aggregator: Any = None
        self._total: Any = None

    def _encrypted(self, client: int) -> bytes:
        frame: bytes = self._encryptors[client].encrypt(self._values, round=self._federation.round).to_bytes()
        return frame

    def fill_pool(self) -> None:
        encryptor = self._encryptors[-1]
        encryptor.precompute(encryptor.ciphertexts_for(self._values.size))
        encryptor.wait()

    def encrypt(self) -> None:
        self._encrypted(-1)

    def start_sum(self) -> None:
        """Begin a sum with the first client's frame: adding to an empty one would be less work."""
        self._aggregator = self._federation.scheme.Aggregator(self._federation.public_key, threads=1)
        self._aggregator.add(self._frames[0])

    def add(self) -> None:
        self._aggregator.add(self._frames[1])

    def _sum_up_anew(self, clients: int) -> None:
        """Sum up another round of so many clients."""
        self._federation.round += 1
        self._aggregator = self._federation.scheme.Aggregator(self._federation.public_key, threads=1)
        for client in range(clients):
            self._aggregator.add(self._encrypted(client))
        self._total = self._aggregator.total()

    def answer_seconds(self, seconds: float) -> tuple[float, float]:
        """Time a request and its answer: what both take whoever is in the total, and for each client in it.

        An authority answers a list once, and repeats that answer for nothing: each repetition is a round of its own.
        """

        def answer() -> None:
            self._federation.authority.sum_key(self._total.request())

        few, many = (
            median_seconds(answer, seconds, partial(self._sum_up_anew, clients))
            for clients in (_FEW_CLIENTS, _MANY_CLIENTS)
        )
        # Noise can make more clients seem faster where there is next to nothing to answer.
        per_client = max(0.0, many - few) / (_MANY_CLIENTS - _FEW_CLIENTS)
        return max(0.0, few - _FEW_CLIENTS * per_client), per_client

    def open_seconds(self, seconds: float) -> float:
        """Time what whoever opens does: an authority, or, where clients enrol, one of them that has the answer."""
        self._sum_up_anew(_FEW_CLIENTS)
        return median_seconds(self._opener(), seconds)

    def _opener(self) -> Callable[[], NDArray[np.float64]]:
        opener = self._federation.authority
        if self._federation.scheme.enrols:
            key = self._federation.keys[0]
            opener = AnswerOpener(
                self._federation.public_key, key.opening_keys[0], _FEW_CLIENTS, (1.0, 1.0), 1
            )
            opener.take(self._federation.authority.sum_key(self._total.request()))
        return lambda: opener.open(self._total)

    def check(self, step: float) -> None:
        self._sum_up_anew(_FEW_CLIENTS)
        sums = self._opener()()
        if not np.allclose(sums, _FEW_CLIENTS * self._values, rtol=0.0, atol=_FEW_CLIENTS * step):
            raise RangeError("a sum was opened wrongly: this build cannot be relied on")
