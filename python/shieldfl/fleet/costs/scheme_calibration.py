"""What encrypting, adding and opening a ciphertext takes here, for each scheme."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shieldfl.errors import RangeError
from shieldfl.fleet.costs.device_profile import SchemeProfile
from shieldfl.profiling.stages import median_seconds
from shieldfl.roles.key_authority import KeyAuthority
from shieldfl.scheme.interface import POOLED, Scheme
from shieldfl.scheme.registry import scheme_named

__all__ = ["SchemeWork", "measure_schemes", "scheme_parameters"]


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
    authorities: dict[Any, KeyAuthority] = {}
    profiles = []
    for name in names:
        on_step(name)
        parameters = scheme_parameters(name, work.key_bits)
        if parameters not in authorities:
            # Each repetition opens anew; without the protection against two totals of a round, which costs nothing to
            # check.
            authorities[parameters] = KeyAuthority(
                parameters, min_clients=1, one_total_per_round=False, threads=1
            )
        profiles.append(_measure_scheme(name, work, parameters, authorities[parameters]))
    return profiles


def _measure_scheme(name: str, work: SchemeWork, parameters: Any, authority: KeyAuthority) -> SchemeProfile:
    scheme = scheme_named(name)
    in_one = int(parameters.values_per_ciphertext)
    encrypt_seconds = {}
    pool_seconds = {}
    for threads in work.threads:
        count = in_one * work.slow_ciphertexts * threads if scheme.is_slow else work.update.size
        encryptor = scheme.Encryptor(authority.public_key, threads=threads)
        bench = _Bench(scheme, authority, encryptor, np.resize(work.update, count))
        prepare = None
        if name.endswith(POOLED):
            prepare = bench.fill_pool
            # Used up before each repetition, since a pool keeps what is not taken.
            taken = bench.encrypt
            pool_seconds[threads] = median_seconds(prepare, work.seconds, taken, threads) / (count / in_one)
        seconds = median_seconds(bench.encrypt, work.seconds, prepare, threads)
        encrypt_seconds[threads] = seconds / (count / in_one)
    bench.check(2.0**-parameters.fraction_bits)
    return SchemeProfile(
        name=name,
        setting=repr(parameters),
        values_per_ciphertext=in_one,
        ciphertext_bytes=float(parameters.bytes_per_value) * in_one,
        encrypt_seconds=encrypt_seconds,
        add_seconds=median_seconds(bench.add, work.seconds, bench.prepare_add) / (count / in_one),
        open_seconds=median_seconds(bench.open, work.seconds) / (count / in_one),
        adds_clear_values=scheme.adds_clear_values,
        pool_seconds=pool_seconds,
    )


class _Bench:
    """The roles of one scheme, and the values that they handle."""

    def __init__(
        self, scheme: Scheme, authority: KeyAuthority, encryptor: Any, values: NDArray[np.float32]
    ) -> None:
        self._scheme = scheme
        self._authority = authority
        self._encryptor = encryptor
        self._values = values
        self._frame = self._encryptor.encrypt(values).to_bytes()
        self._aggregator = self._start_sum()
        self._total = self._aggregator.total()

    def fill_pool(self) -> None:
        self._encryptor.precompute(self._encryptor.ciphertexts_for(self._values.size))
        self._encryptor.wait()

    def encrypt(self) -> None:
        self._frame = self._encryptor.encrypt(self._values).to_bytes()

    def prepare_add(self) -> None:
        """Make a frame that is in no sum yet, since equal ones are refused, and see to a sum that has room for it.

        A new sum begins with the frame before: adding to an empty one would be less work.
        """
        if self._aggregator.clients == self._authority.public_key.parameters.max_clients:
            self._aggregator = self._start_sum()
        self.encrypt()

    def add(self) -> None:
        self._aggregator.add(self._frame)

    def open(self) -> None:
        self._authority.open(self._total)

    def check(self, step: float) -> None:
        if not np.allclose(self._authority.open(self._total), self._values, rtol=0.0, atol=step):
            raise RangeError("a sum was opened wrongly: this build cannot be relied on")

    def _start_sum(self) -> Any:
        aggregator = self._scheme.Aggregator(self._authority.public_key, threads=1)
        aggregator.add(self._frame)
        return aggregator
