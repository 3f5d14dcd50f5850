"""Compression of updates that are summed: a random rotation, few levels, and a step that follows opened sums.

After a random rotation the values of an update are about normal. One step for all clients then fits all
values: each is rounded to the nearest of few levels. Levels are whole numbers, and their encrypted sum is
exact: its bits have room for all clients.

The step follows the mean of the clients' norms, on a logarithmic scale, which 64 more levels of each client
tell. No client's own values decide it alone. Rotation and step are public, and protect nothing.

A round can send one in several of the rotated values, and multiply their sum by so many. Each rotated value
tells of all values of the update. The rotation then stays for as many rounds, and each of these sends others.
Together they tell what one sum of whole updates does: this protects nothing either.

Sources: Suresh, Yu, Kumar and McMahan, "Distributed Mean Estimation with Limited Communication" (ICML 2017),
section 3, the rotation; Konečný et al., "Federated Learning: Strategies for Improving Communication
Efficiency" (2016), section 3, subsampling; Vargaftik et al., "DRIVE: One-bit Distributed Mean Estimation"
(NeurIPS 2021), rounding after rotation without further randomness. Their scales are each client's own, which
sums cannot have.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

import shieldfl._core as _core
from shieldfl.array_view import FloatVector, as_count, as_positive, as_threads, as_unsigned, as_vector
from shieldfl.errors import ParameterError, PrecisionWarning
from shieldfl.privacy.noise import LEAST_FIRST_NORM, MOST_EXPONENT, MOST_FIRST_NORM, MovingNorm
from shieldfl.settings import Settings, about

__all__ = ["CompressedBits", "Compression", "CompressionOption"]

CompressedBits = Literal[1, 2, 4, 8]
"""Bits of a level: two levels, 3, 15 or 255."""

_STEPS = {1: math.sqrt(math.pi / 2.0), 2: 1.5, 4: 0.42, 8: 0.03}
"""Step, in deviations of a rotated value, by bits; bench/compression.py has the errors beside others.

One bit: the scale with which signs are unbiased. More bits: near the least error, and wide enough that a
client whose norm is above the mean loses little.
"""
_OCTAVES = 2.0
"""Largest change of the norm that one sum can tell, up or down: four times."""
_MOST_ONE_IN = 100
"""Largest ``one_in``: the squared error of a round's mean grows with it."""
_NORM_LEVELS = 64
"""Levels of each client that tell of its norm: one bit of a few clients would tell too little."""


@dataclass(frozen=True)
class Compression:
    """How updates become few whole numbers, and the sum of these a mean: public, and the same for all.

    Parameters
    ----------
    bits : 8, 4, 2 or 1 for 255, 15, 3 or 2 levels.
    clients : number of the federation's clients, K.
    first_norm : L2 norm of an update that is expected in the first round, 2**-84 to 2**84.
    seed : makes the rotations, with the round's number; it is public.
    one_in : each round sends one in so many rotated values, 1 to 100, and their sum counts so many times.
        The rotation stays for so many rounds, which together send all. Run a multiple of so many rounds.

    Raises ParameterError for values out of range.

    Example
    -------
    >>> import numpy as np
    >>> import shieldfl as sf
    >>> compression = sf.Compression(bits=4, clients=3)
    >>> updates = [np.full(1000, value, np.float32) for value in (0.01, 0.02, 0.03)]
    >>> levels = [compression.levels(one, client, round=1) for client, one in enumerate(updates)]
    >>> mean, exponent = compression.mean(sum(levels), clients=[0, 1, 2], round=1)
    >>> assert abs(mean - 0.02).max() < 0.01
    """

    bits: CompressedBits
    clients: int
    first_norm: float = 1.0
    seed: int = 0
    one_in: int = 1

    def __post_init__(self) -> None:
        bits = as_unsigned(self.bits, "bits")
        if bits not in _STEPS:
            raise ParameterError("an update is compressed to 8, 4, 2 or 1 bits")
        norm = as_positive(self.first_norm, "first_norm")
        if not LEAST_FIRST_NORM <= norm <= MOST_FIRST_NORM:
            raise ParameterError("the norm that is expected in the first round must be from 2^-84 to 2^84")
        if (one_in := as_count(self.one_in, "one_in")) > _MOST_ONE_IN:
            raise ParameterError(f"one_in must be at most {_MOST_ONE_IN}")
        clients, seed = as_count(self.clients, "clients"), as_unsigned(self.seed, "seed")
        checked = {"bits": bits, "clients": clients, "first_norm": norm, "seed": seed, "one_in": one_in}
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def value_bits(self) -> int:
        """Bits of a level, sign included, as schemes count them: 2 for one bit."""
        return max(2, self.bits)

    def range_of(self, client: int) -> tuple[int, int]:
        """Return a client's lowest and highest level.

        With one bit, clients of even numbers have -1 and 0, others 0 and 1: a sum of both takes a bit less.
        """
        number = as_unsigned(client, "client")
        if number >= self.clients:
            raise ParameterError(f"there are clients 0 to {self.clients - 1}, not {number}")
        if self.bits == 1:
            return number % 2 - 1, number % 2
        most = (1 << (self.bits - 1)) - 1
        return -most, most

    def sum_bits(self, clients: int) -> int:
        """Return the bits of a sum over at most so many clients, sign included: exact whatever they send."""
        together = as_count(clients, "clients")
        if self.bits == 1:  # those whose level can be -1
            together = min(together, (self.clients + 1) // 2)
        return 1 + (together * -self.range_of(0)[0]).bit_length()

    def levels(
        self, update: FloatVector, client: int, round: int, exponent: int = 0, threads: int | None = None
    ) -> FloatVector:
        """Return a client's levels, float32 (:meth:`count` of n,), for its update, float32 (n,).

        The last 64 tell of the update's norm, in an order that only the client knows. ``exponent`` is what
        :meth:`mean` returned in the round before.

        A PrecisionWarning says if the update is more than twice as long as its step is for: values beyond the
        highest level are cut, and the mean loses them.

        Raises RangeError for NaN, infinity and a norm above 2**100, ArrayTypeError for what is no float32
        vector.
        """
        values, number = as_vector(update, (np.float32,), "the update"), as_unsigned(client, "client")
        least, most = self.range_of(number)
        levels = np.zeros(self.count(values.size), dtype=np.float32)
        # Where all are sent they are made in place: long updates are not copied.
        rotated = levels[: values.size] if self.one_in == 1 else np.empty_like(values)
        steps, (seed, turn) = 1.0 / self._step(exponent, values.size), self._turn(round)
        of_zeros = int.from_bytes(hashlib.sha256(seed + number.to_bytes(8, "little")).digest()[:4], "little")
        own = (seed, of_zeros, steps, least, most, as_threads(threads))
        norm = _core.rotate_to_levels(values, rotated, *own)
        expected = self._norm_at(exponent)
        if norm > 2.0 * expected:
            # Without figures, so that Python shows it once and not for each client.
            warnings.warn(
                "an update is more than twice as long as the round's step is for: values beyond the highest "
                "level are cut, and the mean loses them. The step follows in the next round; for the first "
                "one, set the norm that is expected: compressed_norm, or first_norm of a Compression",
                PrecisionWarning,
                stacklevel=2,
            )
        octaves = math.log2(norm / expected) if norm else -_OCTAVES
        part = min(max(octaves / _OCTAVES, -1.0), 1.0)
        middle = (least + most + (most - least) * part) / 2.0
        of_norm = np.floor(middle + self._phases([number], seed)[0])
        levels[-_NORM_LEVELS:] = of_norm[_secret_order(values, norm)]
        if self.one_in > 1:
            sent = rotated[turn :: self.one_in]
            levels[: sent.size] = sent
        return levels

    def mean(
        self,
        total: NDArray[np.floating],
        clients: Sequence[int],
        round: int,
        exponent: int = 0,
        threads: int | None = None,
        size: int | None = None,
    ) -> tuple[NDArray[np.float64], int]:
        """Return the mean update, float64 (n,), and the next round's exponent.

        ``total`` is the sum of levels, float64 or float32 (:meth:`count` of n,). ``clients`` are the numbers
        of those in the sum, each once. ``exponent`` is this round's, with which the levels were made.
        ``size`` is n; it is needed unless ``one_in`` is 1.

        Raises ParameterError for no clients, one twice, NaN, infinity, and another number of values.
        """
        numbers = [as_unsigned(client, "client") for client in clients]
        count = as_count(len(numbers), "the number of clients in the sum")
        ends = list(map(self.range_of, numbers))
        sums = as_vector(total, (np.float32, np.float64), "the sum").astype(np.float64)
        if size is None:
            if self.one_in > 1:
                raise ParameterError("give size, the number of the update's values: the sum does not tell it")
            size = max(sums.size - _NORM_LEVELS, 0)
        size = as_unsigned(size, "size")
        if len(set(numbers)) < count:
            raise ParameterError("name each client of the sum once")
        if sums.size != self.count(size) or not np.isfinite(sums).all():
            raise ParameterError(
                f"the sum is of {self.count(size):,} finite numbers, for an update of {size:,} values"
            )
        # What all levels together would be if each were in the middle of its client's range.
        middle, (least, most) = sum(map(sum, ends)) / 2.0, ends[0]
        sums -= middle
        # One bit is a step up or down, from a middle between two levels.
        step, (seed, turn) = self._step(exponent, size) * (2.0 if self.bits == 1 else 1.0), self._turn(round)
        rotated = sums[:size]
        if self.one_in > 1:
            rotated = np.zeros(size)
            of_round = rotated[turn :: self.one_in]
            of_round[:] = sums[: of_round.size]
        mean = _core.rotate(rotated, seed, True, step * self.one_in / count, as_threads(threads))
        place = float(sums[-_NORM_LEVELS:].mean()) / count - float(self._phases(numbers, seed).mean()) + 0.5
        part = 2.0 * place / (most - least)
        # No honest sum tells of more: a client that lies does not move the step further either.
        return mean, self.norm.raised(_checked(exponent), _OCTAVES * min(max(part, -1.0), 1.0))

    def lost_deviation(self, exponent: int, size: int) -> float:
        """Return the standard deviation of what rounding loses of a client's values, at the expected norm."""
        number = as_unsigned(size, "size")
        of_value, step = self._norm_at(exponent) / math.sqrt(max(number, 1)), self._step(exponent, number)
        # A sign is off by its value's distance from the step, on average over normal values.
        return math.sqrt(step**2 - of_value**2) if self.bits == 1 else step / math.sqrt(12.0)

    def count(self, size: int) -> int:
        """Return how many levels a round sends of an update with ``size`` values, with those of its norm."""
        return -(-as_unsigned(size, "size") // self.one_in) + _NORM_LEVELS

    @property
    def norm_levels(self) -> int:
        """How many levels, behind those of the values, tell of a client's norm."""
        return _NORM_LEVELS

    @property
    def norm(self) -> MovingNorm:
        """The norm that steps are for, which moves."""
        return MovingNorm(self.first_norm)

    def _step(self, exponent: int, size: int) -> float:
        return _STEPS[self.bits] * self._norm_at(exponent) / math.sqrt(max(size, 1))

    def _norm_at(self, exponent: int) -> float:
        return self.norm.norm_at(_checked(exponent))

    def _turn(self, round_number: int) -> tuple[bytes, int]:
        """Return the seed of a round's rotation, and which of its values the round sends first."""
        number, turn = divmod(as_count(round_number, "round") - 1, self.one_in)
        parts = self.seed.to_bytes(8, "little") + (number + 1).to_bytes(8, "little")
        return hashlib.sha256(b"shieldfl compression 1\0" + parts).digest(), turn

    def _phases(self, clients: Sequence[int], seed: bytes) -> NDArray[np.float64]:
        """Return what is added before norms' levels are rounded down, in [0, 1), (m, 64): evenly spread.

        It is public, so that all phases are taken from the sum again.
        """
        start = int.from_bytes(hashlib.sha256(seed).digest()[:4], "little") / 2.0**32
        of_clients = start + np.array(clients) / self.clients / _NORM_LEVELS
        return np.add.outer(of_clients, np.arange(_NORM_LEVELS) / _NORM_LEVELS) % 1.0


@dataclass(frozen=True)
class CompressionOption(Settings):
    """Compression of updates before they are summed, for methods that can do without."""

    of_compression: ClassVar = frozenset(
        {"compressed_bits", "compressed_norm", "compressed_seed", "compressed_one_in"}
    )
    """Names of settings that decide nothing without compression."""

    compressed_bits: Annotated[
        CompressedBits | None,
        about(
            "Bits of each value of an update, which is rotated at random and rounded to few levels before "
            "it is summed: 8, 4, 2 (three levels) or 1 (the sign). All clients then count alike, and buffers "
            "stay local. Default: no compression.",
        ),
    ] = None
    compressed_norm: Annotated[
        float,
        Meta(ge=LEAST_FIRST_NORM, le=MOST_FIRST_NORM),
        about(
            "L2 norm of an update that is expected in the first round. Later rounds follow the mean of the "
            "clients' norms, which is in the sum."
        ),
    ] = 1.0
    compressed_seed: Annotated[int, Meta(ge=0, lt=2**31), about("Seed of the rotations. It is public.")] = 0
    compressed_one_in: Annotated[
        int,
        Meta(ge=1, le=_MOST_ONE_IN),
        about(
            "Each round sends one in so many of the rotated values, and their sum counts so many times. So "
            "many rounds together send all values: choose a multiple of it as the number of rounds."
        ),
    ] = 1

    def compression(self, clients: int) -> Compression | None:
        """Return what compresses updates of so many clients; None without compression."""
        if self.compressed_bits is None:
            return None
        return Compression(
            self.compressed_bits,
            clients,
            self.compressed_norm,
            self.compressed_seed,
            self.compressed_one_in,
        )


def _checked(exponent: int) -> int:
    if (number := as_unsigned(exponent, "exponent", least=-MOST_EXPONENT)) > MOST_EXPONENT:
        raise ParameterError(f"exponent must be at most {MOST_EXPONENT}")
    return number


def _secret_order(values: FloatVector, norm: float) -> NDArray[np.intp]:
    """Return an order of the norm's levels that follows from the norm's last digits and some values.

    Levels in the order of their public phases would show an opener how far each norm is from a level.
    """
    some = values[:: max(1, values.size // 4096)].tobytes()
    drawn = hashlib.shake_256(norm.hex().encode() + some).digest(8 * _NORM_LEVELS)
    return np.argsort(np.frombuffer(drawn, dtype="<u8"))
