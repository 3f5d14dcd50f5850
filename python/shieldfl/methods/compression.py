"""Compression of updates that are summed: a random rotation, few levels, and a step that follows opened sums.

After a random rotation every value of an update is about normal, whatever the update was. A step for all
clients then fits all values: each is rounded to the nearest of few levels. Levels are whole numbers, so that
their encrypted sum is exact, and as long as its bits have room for all clients.

The step follows the mean of the clients' norms, on a logarithmic scale, which is one more value of the sum.
No client's own values decide it alone. Rotation and step are public, and protect nothing.

Sources: Suresh, Yu, Kumar and McMahan, "Distributed Mean Estimation with Limited Communication" (ICML 2017),
section 3, the rotation; Vargaftik et al., "DRIVE: One-bit Distributed Mean Estimation" (NeurIPS 2021),
rounding after it without further randomness. Their scales are each client's own, which sums cannot have.
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
from shieldfl.array_view import FloatVector, as_count, as_threads, as_unsigned, as_vector
from shieldfl.errors import ParameterError, PrecisionWarning
from shieldfl.learning.local_update import DoubleVector
from shieldfl.methods.encrypted_update import MixedTotal
from shieldfl.privacy.noise import LEAST_FIRST_NORM, MOST_EXPONENT, MOST_FIRST_NORM, MovingNorm
from shieldfl.rounds.opening_rule import RoundSums
from shieldfl.rounds.plan import RoleContext
from shieldfl.settings import Settings, about
from shieldfl.stateful import refuse_unless

__all__ = ["CompressedBits", "CompressedUpdates", "Compression", "CompressionOption", "opened_levels"]

CompressedBits = Literal[1, 2, 4, 8]
"""Bits of a level: two levels, 3, 15 or 255."""

_STEPS = {1: math.sqrt(math.pi / 2.0), 2: 1.5, 4: 0.42, 8: 0.03}
"""Step, in deviations of a rotated value, by bits; bench/compression.py has the errors beside others.

One bit: the scale with which signs are unbiased; feedback takes that of the least error instead. More bits:
near the least error, and wide enough that a client whose norm is above the mean loses little.
"""
_LEAST_ERROR_OF_SIGNS = math.sqrt(2.0 / math.pi)
_OCTAVES = 2.0
"""Largest change of the norm that one sum can tell, up or down: four times."""


@dataclass(frozen=True)
class Compression:
    """How updates become few whole numbers, and the sum of these a mean: public, and the same for all.

    Parameters
    ----------
    bits : 8, 4, 2 or 1 for 255, 15, 3 or 2 levels.
    clients : number of the federation's clients, K.
    first_norm : L2 norm of an update that is expected in the first round, 2**-84 to 2**84.
    seed : makes the rotations, with the round's number; it is public.
    feedback : whether clients keep what rounding lost for their next update: :class:`CompressedUpdates`.

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
    feedback: bool = False

    def __post_init__(self) -> None:
        if self.bits not in _STEPS:
            raise ParameterError("an update is compressed to 8, 4, 2 or 1 bits")
        object.__setattr__(self, "clients", as_count(self.clients, "clients"))
        object.__setattr__(self, "seed", as_unsigned(self.seed, "seed"))
        if not LEAST_FIRST_NORM <= self.first_norm <= MOST_FIRST_NORM:
            raise ParameterError("the norm that is expected in the first round must be from 2^-84 to 2^84")

    @property
    def value_bits(self) -> int:
        """Bits of a level, sign included, as schemes count them: 2 for one bit."""
        return max(2, self.bits)

    def range_of(self, client: int) -> tuple[int, int]:
        """Return a client's lowest and highest level.

        With one bit, clients of even numbers have -1 and 0, others 0 and 1: a sum of both takes a bit less.
        """
        odd = as_unsigned(client, "client") % 2
        if self.bits == 1:
            return odd - 1, odd
        most = (1 << (self.bits - 1)) - 1
        return -most, most

    def sum_bits(self, clients: int) -> int:
        """Return the bits of a sum over at most so many clients, sign included: exact whatever they send."""
        together = as_count(clients, "clients")
        if self.bits == 1:  # those whose level can be -1
            together = min(together, (self.clients + 1) // 2)
        return 1 + (together * self.range_of(1)[1]).bit_length()

    def levels(
        self, update: FloatVector, client: int, round: int, exponent: int = 0, threads: int | None = None
    ) -> FloatVector:
        """Return a client's levels, float32 (n + 1,), for its update, float32 (n,).

        The last one tells of the update's norm. ``exponent`` is what :meth:`mean` returned in the round
        before. A PrecisionWarning says if the update is more than twice as long as its step is for: values
        beyond the highest level are cut, and the mean loses them.

        Raises RangeError for NaN, infinity and a norm above 2**100, ArrayTypeError for what is no float32
        vector.
        """
        values = as_vector(update, (np.float32,), "the update")
        levels, (least, most) = np.empty(values.size + 1, dtype=np.float32), self.range_of(client)
        steps = 1.0 / self._step(exponent, values.size)
        own = (self._seed(round), steps, least, most, as_threads(threads))
        norm = _core.rotate_to_levels(values, levels[:-1], *own)
        expected = self._norm_at(exponent)
        if norm > 2.0 * expected and not self.feedback:
            # Without figures, so that Python shows it once and not for each client.
            warnings.warn(
                "an update is more than twice as long as the round's step is for: values beyond the highest "
                "level are cut, and the mean loses them. The step follows in the next round; for the first "
                "one, set the norm that is expected (compressed_norm)",
                PrecisionWarning,
                stacklevel=2,
            )
        octaves = math.log2(norm / expected) if norm else -_OCTAVES
        place = (least + most + (most - least) * min(max(octaves / _OCTAVES, -1.0), 1.0)) / 2.0
        levels[-1] = min(max(math.floor(place + self._phase(client, round)), least), most)
        return levels

    def mean(
        self,
        total: NDArray[np.floating],
        clients: Sequence[int],
        round: int,
        exponent: int = 0,
        threads: int | None = None,
    ) -> tuple[NDArray[np.float64], int]:
        """Return the mean update, float64 (n,), and the next round's exponent.

        ``total`` is the sum of levels (n + 1,). ``clients`` are the numbers of those in the sum, each once.
        ``exponent`` is this round's, with which the levels were made.

        Raises ParameterError for no clients.
        """
        count = as_count(len(clients), "the number of clients in the sum")
        ends = [self.range_of(client) for client in clients]
        # What all levels together would be if each were in the middle of its client's range.
        middle, (least, most) = sum(map(sum, ends)) / 2.0, ends[0]
        sums = np.ascontiguousarray(total, dtype=np.float64) - middle
        # One bit is a step up or down, from a middle between two levels.
        step = self._step(exponent, sums.size - 1) * (2.0 if self.bits == 1 else 1.0)
        mean = _core.rotate(sums[:-1], self._seed(round), True, step / count, as_threads(threads))
        phases = sum(self._phase(client, round) for client in clients)
        octaves = _OCTAVES * ((float(sums[-1]) - phases) / count + 0.5) * 2.0 / (most - least)
        # No honest sum tells of more: a client that lies does not move the step further either.
        return mean, self.norm.raised(_checked(exponent), min(max(octaves, -_OCTAVES), _OCTAVES))

    @property
    def norm(self) -> MovingNorm:
        """The norm that steps are for, which moves."""
        return MovingNorm(self.first_norm)

    def _step(self, exponent: int, size: int) -> float:
        deviations = _LEAST_ERROR_OF_SIGNS if self.feedback and self.bits == 1 else _STEPS[self.bits]
        return deviations * self._norm_at(exponent) / math.sqrt(max(size, 1))

    def _norm_at(self, exponent: int) -> float:
        return self.norm.norm_at(_checked(exponent))

    def _seed(self, round_number: int) -> bytes:
        parts = self.seed.to_bytes(8, "little") + as_unsigned(round_number, "round").to_bytes(8, "little")
        return hashlib.sha256(b"shieldfl compression 1\0" + parts).digest()

    def _phase(self, client: int, round_number: int) -> float:
        """Return what is added before a norm's level is rounded down, in [0, 1): evenly spread over clients.

        It is public, so that the sum of all phases is taken from the sum again.
        """
        start = int.from_bytes(hashlib.sha256(self._seed(round_number)).digest()[:4], "little") / 2.0**32
        return (start + as_unsigned(client, "client") / self.clients) % 1.0


@dataclass(frozen=True)
class CompressionOption(Settings):
    """Compression of updates before they are summed, for methods that can do without."""

    of_compression: ClassVar = frozenset(
        {"compressed_bits", "compressed_norm", "compressed_feedback", "compressed_seed"}
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
    compressed_feedback: Annotated[
        bool, about("Each client keeps what rounding lost, and adds it to its next update.")
    ] = False
    compressed_seed: Annotated[
        int, Meta(ge=0, lt=2**31), about("Seed of the rounds' rotations. It is public.")
    ] = 0

    def compression(self, clients: int) -> Compression | None:
        """Return what compresses updates of so many clients; None without compression."""
        if self.compressed_bits is None:
            return None
        own = (self.compressed_norm, self.compressed_seed, self.compressed_feedback)
        return Compression(self.compressed_bits, clients, *own)


def _checked(exponent: int) -> int:
    return as_unsigned(exponent, "exponent", 21, least=-MOST_EXPONENT)


class CompressedUpdates:
    """A client's levels, round after round; with feedback, what rounding lost is in the next ones.

    Source of feedback: Seide, Fu, Droppo, Li and Yu, "1-Bit Stochastic Gradient Descent" (Interspeech 2014).
    """

    changes: ClassVar = {"_lost": FloatVector | None}

    def __init__(self, compression: Compression, client: int) -> None:
        self._compression, self._client = compression, client
        self._lost: FloatVector | None = None
        self._next_lost: FloatVector | None = None

    def check_size(self, size: int) -> None:
        """Raise WireFormatError unless what was lost can be of updates (size,)."""
        lost = self._lost
        refuse_unless(
            lost is None
            or (self._compression.feedback and lost.size == size and bool(np.isfinite(lost).all()))
        )

    def levels(self, update: FloatVector, round: int, exponent: int, threads: int | None) -> FloatVector:
        """Return the levels (n + 1,) of an update (n,), to which what was lost before is added."""
        compression, of_round = self._compression, (round, exponent, threads)
        if not compression.feedback:
            return compression.levels(update, self._client, *of_round)
        values = update if self._lost is None else update + self._lost
        levels = compression.levels(values, self._client, *of_round)
        own, _ = compression.mean(levels, (self._client,), *of_round)
        self._next_lost = (values - own).astype(np.float32)
        return levels

    def sent(self) -> None:
        """Count the newest levels as sent. Those of a round that is given up are lost, as its updates are."""
        self._lost = self._next_lost


def opened_levels(
    compression: Compression, context: RoleContext, claim: MixedTotal, sums: RoundSums, exponent: int
) -> tuple[DoubleVector, int]:
    """Open a total of levels; return its mean (P,), 0 where nothing is encrypted, and the next exponent.

    Raises as :meth:`MixedTotal.check_weights` and the opening of a total do.
    """
    claim.check_weights(1)
    total, size = claim.union.scatter(sums.open(claim.total)), context.plan.parameters
    positions, mean = claim.positions.resized(size), np.zeros(size)
    levels = np.append(positions.gather(total[:size]), total[size])
    clients, number = claim.total.named_clients, claim.total.round
    opened, moved = compression.mean(levels, clients, number, exponent, context.threads)
    positions.scatter(opened, mean)
    norm = compression.norm.norm_at(moved)
    sums.note(f"the mean norm of updates that the sum of round {number} leads to is {norm:.4g}", "norm")
    return mean, moved
