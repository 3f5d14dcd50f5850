"""What a session agrees on before its first round."""

from __future__ import annotations

import math
from typing import Any

import shieldfl._core as _core
from shieldfl.array_view import as_unsigned
from shieldfl.masks import Mask
from shieldfl.pads.beside_kahe import ANSWER_HEAD_BYTES, BesideKahe
from shieldfl.scheme.enrolled_key import EnrolledPublicKey
from shieldfl.scheme.fitted_scale import FittedScale, fit_scale
from shieldfl.scheme.parameters import SchemeParameters, checked_goal, read_sum_bits

__all__ = ["Parameters", "PublicKey"]

_MOST = 2**32 - 1
# Values that stand for many.
_MANY = 1_000_000


class Parameters(SchemeParameters[_core.PadsParameters, "PublicKey"]):
    """What a session agrees on before its first round. Immutable; equal when everything is, but for what was planned.

    Parameters
    ----------
    max_clients : the most updates that a total can hold, up to 2**20.
    value_bits : bits of a quantised value, sign included, 2 to 40.
    fraction_bits : bits behind the binary point, 0 to 52. A value v becomes round(v * 2**fraction_bits), ties
        to even, and must stay below 2**(value_bits - 1) in magnitude.
    sum_bits : bits of a sum, sign included; by default as many as hold any sum of ``max_clients`` values. Fewer
        make ciphertexts shorter, and are for sums that are known to be small, as noise is: one of 2**(sum_bits - 1) or
        more opens wrongly. Weights cannot travel encrypted beside.

    Raises ParameterError when a setting is out of range.
    """

    __slots__ = ("_count",)
    _SETTINGS = ("max_clients", "value_bits", "fraction_bits", "sum_bits")
    _count: int | None

    def __init__(
        self,
        *,
        max_clients: int = 64,
        value_bits: int = 24,
        fraction_bits: int = 20,
        sum_bits: int | None = None,
    ) -> None:
        numbers = (
            min(as_unsigned(max_clients, "max_clients"), _MOST),
            min(as_unsigned(value_bits, "value_bits"), _MOST),
            min(as_unsigned(fraction_bits, "fraction_bits"), _MOST),
            read_sum_bits(sum_bits),
        )
        self._adopt(_core.PadsParameters(*numbers))

    def _adopt(
        self, handle: _core.PadsParameters, fitted: FittedScale | None = None, count: int | None = None
    ) -> None:
        super()._adopt(handle, fitted)
        object.__setattr__(self, "_count", count)

    @classmethod
    def plan(
        cls,
        *,
        max_clients: int = 64,
        value_bits: int = 24,
        fraction_bits: int = 20,
        goal: str = "speed",
        count: int | None = None,
        sum_bits: int | None = None,
    ) -> Parameters:
        """Make the parameters for these values; ``describe()`` then shows what a round of them costs everybody.

        There is nothing to choose, whatever the goal: it is ``"speed"`` or ``"size"`` as for other schemes. Nor does
        ``count`` change a frame; it is for ``describe()``, and parameters that differ in it alone are equal.

        Parameters
        ----------
        max_clients, value_bits, fraction_bits : as for ``Parameters``.
        goal : ``"speed"`` or ``"size"``.
        count : how many values a client encrypts at a time; None for many.
        sum_bits : as for ``Parameters``.

        Raises ParameterError when a setting is out of range.
        """
        number = checked_goal(goal, count)
        planned = cls(
            max_clients=max_clients, value_bits=value_bits, fraction_bits=fraction_bits, sum_bits=sum_bits
        )
        planned._adopt(planned._handle, None, number)
        return planned

    @classmethod
    def fit(
        cls,
        sample_update: Any,
        *,
        mask: Mask | None = None,
        weights: tuple[float, float] | None = None,
        relative_error: float = 1e-3,
        headroom: float = 4.0,
        max_clients: int = 64,
        goal: str | None = None,
        count: int | None = None,
    ) -> Parameters:
        """Choose value_bits and fraction_bits for updates like a sample, by the error that rounding may have.

        Everything is as for ``ckks.Parameters.fit``: run it on public or planned data, once. ``max_clients`` is as for
        ``Parameters``, ``goal`` and ``count`` are as for ``plan``; either may be given without the other.
        """
        scale = fit_scale(
            sample_update,
            guard_bits=int(cls(max_clients=max_clients, value_bits=2, fraction_bits=0)._facts["guard_bits"]),
            mask=mask,
            weights=weights,
            relative_error=relative_error,
            headroom=headroom,
        )
        chosen = cls.plan(
            max_clients=max_clients,
            value_bits=scale.value_bits,
            fraction_bits=scale.fraction_bits,
            goal="speed" if goal is None else goal,
            count=count,
        )
        chosen._adopt(chosen._handle, scale, chosen._count)
        return chosen

    @property
    def packing(self) -> str:
        """Values are fixed-point integers, modulo a power of two; sums are exact."""
        return "exact"

    @property
    def security_bits(self) -> int:
        """Bits of the key that pads are drawn by, of ChaCha20; half as many against a quantum computer."""
        return self._handle.security_bits

    @property
    def pad_bytes(self) -> int:
        """Bytes of key stream for each value: of each client, and at each authority once more."""
        return int(self._facts["pad_bits"]) // 8

    def answer_bytes(self, count: int) -> int:
        """Return how long what an authority answers to a total of ``count`` values is, in bytes: about as the total.

        Sealing and signing it adds 92 bytes. A weight that is encrypted beside values counts as one.
        """
        return ANSWER_HEAD_BYTES + self._blocks(count) * int(self._facts["total_ciphertext_bytes"])

    def key_stream_bytes(self, clients: int, count: int) -> int:
        """Return how much key stream an authority draws for a total of so many clients and values."""
        return as_unsigned(clients, "clients") * self._blocks(count) * self._block_stream_bytes

    @property
    def beside_kahe(self) -> BesideKahe:
        """The authority's answer and time beside those of ``kahe``: from how many values on that is better."""
        settings = (self.max_clients, self.value_bits, self.fraction_bits)
        return BesideKahe.of(
            _core.KaheParameters(*settings, None, int(self._facts["sum_bits"])),
            block_values=self.values_per_ciphertext,
            block_bytes=int(self._facts["total_ciphertext_bytes"]),
            block_stream_bytes=self._block_stream_bytes,
        )

    def describe(self) -> str:
        """Say in a few lines what the parameters are, what a round costs authority and network, and under ``kahe``."""
        facts = self._facts
        count = _MANY if self._count is None else self._count
        stream = self.key_stream_bytes(self.max_clients, count)
        return "\n".join(
            (
                f"one-time pads, {self.security_bits}-bit keys of ChaCha20",
                self._describe_values(),
                self._describe_clients(),
                f"  ciphertext  {self.values_per_ciphertext:,} values in {facts['ciphertext_bytes']:,} bytes: "
                f"{self.bytes_per_value:.2f} bytes a value",
                f"  authority   for {self.max_clients:,} clients with {count:,} values each: {stream:,} bytes of key "
                f"stream, and an answer of {self.answer_bytes(count):,} bytes",
                *self.beside_kahe.describe(self._count),
                "  rests on    ChaCha20 as a pseudorandom function, and keyed BLAKE2b as one; at least two honest "
                "clients in every sum",
                *self._describe_narrow_sums(),
            )
        )

    @property
    def _block_stream_bytes(self) -> int:
        return self._handle.words_per_ciphertext * self.pad_bytes

    def _blocks(self, count: int) -> int:
        return math.ceil(as_unsigned(count, "count") / self.values_per_ciphertext)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        settings = {name: self._facts[name] for name in self._SETTINGS}
        return _make, (settings, self._fitted, self._count)

    def __repr__(self) -> str:
        return f"Parameters({', '.join(f'{name}={self._facts[name]!r}' for name in self._SETTINGS)})"


def _make(settings: dict[str, Any], fitted: FittedScale | None, count: int | None) -> Parameters:
    parameters = Parameters(**settings)
    parameters._adopt(parameters._handle, fitted, count)
    return parameters


class PublicKey(EnrolledPublicKey[_core.PadsPublicKey]):
    """What is public of a session: parameters, the digest of its manifest, authority and epoch; no key is in it."""

    __slots__ = ()
    parameters: Parameters
    _scheme = "pads"
    _read = staticmethod(_core.PadsPublicKey.from_bytes)
    _parameters_of = staticmethod(Parameters._wrap)
    _parameters_class = Parameters
    _core_class = _core.PadsPublicKey
    _core_request = _core.PadsSumRequest
