"""Parameters and public keys of any scheme: how bits and rings are chosen, which classes are a scheme's."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np

import shieldfl._core as _core
from shieldfl.array_view import Buffer, as_count, as_frame, as_pair, as_real, as_unsigned, as_update
from shieldfl.errors import ParameterError, RangeError
from shieldfl.masks import Mask

# The share of a sample's values which may round to zero: half of what brings a warning.
_ROUNDED_TO_ZERO = 0.05

Key = TypeVar("Key")


def core_number(value: int, name: str, bits: int = 32) -> int:
    """Return a number as the core takes it; one that does not fit the bits becomes their largest.

    Raises ParameterError.
    """
    number = as_unsigned(value, name, least=-(2**63))
    return (1 << bits) - 1 if number >> bits else number


class Identified:
    """Base of objects that are equal if their ``id`` is: 16 bytes that follow from all their content."""

    def __eq__(self: Any, other: Any) -> bool:
        return (
            self.id == other.id  # type: ignore[attr-defined]
            if isinstance(other, Identified)
            else NotImplemented
        )

    def __hash__(self: Any) -> int:
        return hash(self.id)


class SchemeParameters(Identified, Generic[Key]):
    """Base of ``Parameters``: immutable, and equal if they make the same frames, however they were chosen.

    ``Key`` is the scheme's public key, so that type checkers know what a key authority of these parameters
    has.
    """

    _SETTINGS: ClassVar[tuple[str, ...]]
    """Names of the constructor's keywords, as in the core's facts."""
    _handle: Any
    _facts: dict[str, Any]
    packing: str = "exact"
    """How values are put into ciphertexts; each scheme's docs list its packings."""
    max_clients: int
    """Largest number of updates in a total."""
    value_bits: int
    """Bits of a quantised value, sign included."""
    fraction_bits: int
    """Bits of a quantised value behind the binary point."""
    values_per_ciphertext: int
    """Number of values in a full ciphertext."""
    value_limit: float
    """Largest magnitude of a value times its weight."""
    weight_step: float
    """Step of weights that are encrypted beside values: 2**-fraction_bits, or 2**-(value_bits - 2) where that
    is more, so that a weight of 1 fits."""
    bytes_per_value: float
    """Bytes on the wire for each value of a full ciphertext, frame header excluded."""
    security_bits: int
    """Bits of security, by the table that the scheme's parameters are chosen from."""
    id: bytes
    """16 bytes that identify these parameters in every frame."""

    def _adopt(self, handle: Any) -> Self:
        facts = handle.facts
        vars(self).update(facts, _handle=handle, _facts=facts)
        for name in ("value_limit", "weight_step", "bytes_per_value", "security_bits", "id"):
            vars(self)[name] = getattr(handle, name)
        return self

    def _make(self, core: Callable[..., Any], *given: Any) -> None:
        checked = (
            value
            if name == "packing" or (value is None and name in ("ring_degree", "sum_bits"))
            else core_number(value, name)
            for name, value in zip(self._SETTINGS, given, strict=True)
        )
        self._adopt(core(*checked))

    @classmethod
    def _wrap(cls, core: Any) -> Self:
        return cls.__new__(cls)._adopt(core)

    @classmethod
    def _unlogged(cls, settings: dict[str, Any]) -> Self:
        """Make parameters without logging that a key is small: that was logged when it was chosen."""
        return cls(**settings)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("Parameters are immutable: make new ones")

    @classmethod
    def plan(cls, *, goal: str = "speed", count: int | None = None, **settings: Any) -> Self:
        """Choose the ring, where there is one, for these values.

        Parameters
        ----------
        goal : ``"speed"`` for the least work at the client, ``"size"`` for the fewest bytes on the wire.
        count : how many values a client encrypts at a time; None for many. A ciphertext is sent whole however
            few values are in it, so a small ring is better for a few hundred. It changes nothing where there
            is no ring.
        settings : keywords of ``Parameters``, but for what is chosen here.

        Raises ParameterError when a setting is out of range or no ring of 128-bit security has room.
        """
        if goal not in ("speed", "size"):
            raise ParameterError(f"goal must be 'speed' or 'size', not {goal!r}")
        return cls._best(goal, None if count is None else as_count(count, "count"), settings)

    @classmethod
    def _best(cls, goal: str, count: int | None, settings: dict[str, Any]) -> Self:
        return cls(**settings)

    @classmethod
    def fit(
        cls,
        sample_update: Any,
        *,
        mask: Mask | None = None,
        weights: tuple[float, float] | None = None,
        relative_error: float = 1e-3,
        headroom: float = 4.0,
        goal: str | None = None,
        count: int | None = None,
        **settings: Any,
    ) -> Self:
        """Choose value_bits and fraction_bits for updates like a sample, by the error that rounding may have.

        Rounding then moves the mean by at most ``relative_error`` of its length (L2 norm) where clients'
        updates are as long as the sample and do not cancel out. Run it on public or planned data, once: the
        two numbers go into the plan that everybody gets. A scale fitted to a client's update would tell how
        large that update is.

        Parameters
        ----------
        sample_update : float32 or float64 vector, typical of what a client sends in any round; updates shrink
            as training converges. Values that are zero do not count.
        mask : which positions are encrypted; None for all.
        weights : the smallest and the largest weight that ``encrypt`` gets, above 0 and at most 1; None for
            none. Best divided so that the largest is 1. Integer ones, which an aggregator gives, need none of
            it.
        relative_error : above 0 and below 1.
        headroom : how many times the sample's largest value fits. What is larger still is refused with a
            RangeError, or saturated with ``clip=True``.
        goal, count : as for ``plan``; None for the default ring.
        settings : keywords of ``Parameters``, but for the two that are chosen here.

        Raises ArrayTypeError, RangeError for NaN or infinity in the sample, ParameterError for a sample of
        zeros, a setting out of range, and where there is no room: it says which error can be reached.
        """
        guard_bits = cls._unlogged(settings | {"value_bits": 2, "fraction_bits": 0})._facts["guard_bits"]
        most_bits = min(_core.MOST_VALUE_BITS, _core.MOST_FIELD_BITS - int(guard_bits))
        settings |= _fit_scale(sample_update, mask, weights, relative_error, headroom, most_bits)
        if goal is None and count is not None and "ring_degree" in cls._SETTINGS:
            raise ParameterError("count is for a goal: give goal='speed' or goal='size' too")
        if goal is None and count is None:
            return cls(**settings)
        return cls.plan(goal="speed" if goal is None else goal, count=count, **settings)

    def _describe_as(self, scheme: str, *more: str, weights: str = "", key: str = "") -> str:
        facts, full = self._facts, self.value_bits + (self.max_clients - 1).bit_length()
        # Six digits of the limit, which are themselves allowed.
        digits = 10.0 ** (5 - math.floor(math.log10(self.value_limit)))
        limit = math.floor(self.value_limit * digits) / digits
        bits, in_one = int(facts["guard_bits"]), self.values_per_ciphertext
        lines = [
            scheme,
            f"  values      {self.value_bits} bits, {self.fraction_bits} behind the point: "
            f"|value| <= {limit:.6g} in steps of 2^-{self.fraction_bits}",
            f"  clients     up to {self.max_clients:,}{weights}, {bits} guard bit{'s' * (bits != 1)} for "
            "their sum",
            *([key] if key else []),
            f"  ciphertext  {in_one:,} value{'s' * (in_one != 1)} in {facts['ciphertext_bytes']:,} bytes: "
            f"{self.bytes_per_value:.2f} bytes a value",
            *more,
        ]
        if (sum_bits := facts.get("sum_bits", full)) != full:
            lines.append(
                f"              every sum below 2^{sum_bits - 1} steps, which clients see to: any sum would "
                f"take {full} bits, not {sum_bits}"
            )
        return "\n".join(lines)

    def _settings(self) -> dict[str, Any]:
        return {name: self._facts[name] for name in self._SETTINGS}

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return type(self)._unlogged, (self._settings(),)

    def __repr__(self) -> str:
        return f"Parameters({', '.join(f'{name}={self._facts[name]!r}' for name in self._SETTINGS)})"


class RingParameters(SchemeParameters[Key]):
    """What ``Parameters`` over a ring Z_q[X] / (X^N + 1) share: which N to choose, and what each costs."""

    ring_degree: int
    """Degree N of the ring Z_q[X] / (X^N + 1)."""
    values_per_coefficient: int
    """Number of values that share a coefficient; 0 if values are embedded in slots."""
    _RING_DEGREES: ClassVar[tuple[int, ...]]
    _CIPHERTEXTS_OF_MANY: ClassVar[int] = 1
    """Number of full ciphertexts that stand for many: as many as can share what ciphertexts share."""

    def _work(self, ciphertexts: int) -> float:
        """Return a client's work to encrypt: butterflies and random bytes take a processor about as long."""
        raise NotImplementedError

    def _butterflies(self, transforms: int) -> int:
        return (
            transforms
            * len(self._facts["primes"])
            * (self.ring_degree // 2)
            * int(math.log2(self.ring_degree))
        )

    @classmethod
    def _best(cls, goal: str, count: int | None, settings: dict[str, Any]) -> Self:
        if "ring_degree" in settings:
            raise ParameterError("the ring is what is chosen: leave ring_degree out")
        # Checks the settings, and fails here when no ring has room.
        costs = cls(**settings).ring_costs(count)
        best = min(costs, key=lambda ring: (costs[ring][goal == "speed"], ring))
        return cls(**settings | {"ring_degree": best})

    def ring_costs(self, count: int | None = None) -> dict[int, tuple[float, float]]:
        """Return bytes and work per value, of ``count`` or of many, by degree of each ring with room."""
        number = None if count is None else as_count(count, "count")
        costs = {}
        for degree in self._RING_DEGREES:
            try:
                ring = type(self)(**self._settings() | {"ring_degree": degree})
            except ParameterError:  # no room
                continue
            in_one = ring.values_per_ciphertext
            ciphertexts = self._CIPHERTEXTS_OF_MANY if number is None else math.ceil(number / in_one)
            values = ciphertexts * in_one if number is None else number
            wire = ciphertexts * int(ring._facts["ciphertext_bytes"])
            costs[degree] = wire / values, ring._work(ciphertexts) / values
        return costs

    def _describe_ring(self) -> str:
        bits = " + ".join(str(prime.bit_length()) for prime in self._facts["primes"])
        return f"  ring        N = {self.ring_degree}, modulus of {bits} bits"


@dataclass(frozen=True, kw_only=True)
class SumNeeds:
    """What a sum of updates has to hold."""

    clients: int
    """Largest number of clients in a sum."""
    value_bits: int
    """Bits of a quantised value, sign included."""
    fraction_bits: int
    """Bits of a quantised value behind the binary point."""
    count: int | None = None
    """Number of values that a client encrypts; None if it is unknown before the first round."""
    most_count: int | None = None
    """Largest number of values that a client may encrypt, if ``count`` is unknown."""
    most_weight: int = 1
    """Largest weight of a client."""
    mean_weight: float | None = None
    """Mean weight of all clients; None for as much as the largest.

    Weights that travel encrypted are divided by the largest. Values then get as many more bits as keep the
    mean of all clients as precise as without weights.
    """
    key_bits: int = 3072
    """Size of keys in bits, for schemes with a choice of it."""
    sum_bits: int | None = None
    """Bits of a sum, sign included, if fewer than any sum could need are known to suffice; otherwise None.

    It is for schemes with a choice of it. Weights then do not travel encrypted.
    """
    takes_clear_values: bool = False
    """Whether plain numbers are added to ciphertexts."""


def _fit_scale(
    sample_update: Any,
    mask: Mask | None,
    weights: tuple[float, float] | None,
    relative_error: float,
    headroom: float,
    most_bits: int,
) -> dict[str, int]:
    """Choose the fewest bits with which rounding stays within ``relative_error``; see ``Parameters.fit``.

    Every value may be off by half a step, so the L2 norm of the error is at most sqrt(n) / 2 steps for n
    values that are not zero. Where there are weights, rounding them gets one half of what is allowed. If
    there is room, steps are also so fine that few of the sample's values round to zero, however small some
    are.
    """
    wanted, times = as_real(relative_error, "relative_error"), as_real(headroom, "headroom")
    if not 0.0 < wanted < 1.0:
        raise ParameterError("relative_error must be above 0 and below 1, such as 1e-3")
    if not 1.0 <= times < math.inf:
        raise ParameterError("headroom must be at least 1: how often the sample's largest value has to fit")
    weighted = weights is not None
    smallest_weight, largest_weight = as_pair(weights if weighted else (1.0, 1.0), "weights")
    if not 0.0 < smallest_weight <= largest_weight <= 1.0:
        raise ParameterError(
            "weights must be the smallest and the largest of a client, above 0 and at most 1: divide every "
            "client's by the largest one"
        )
    sizes = _sizes_of(sample_update, mask)
    largest, small = float(sizes.max()), float(np.quantile(sizes, _ROUNDED_TO_ZERO))
    rms = largest * math.sqrt(float(np.mean((sizes / largest) ** 2)))
    # A weight may be rounded up, by as much as it may be off at all.
    share = wanted / (1 + weighted)
    top = largest * (times * (1.0 + weighted * share)) * largest_weight

    def bits_of_top(fraction_bits: int) -> int:
        if top >= 2.0**_core.MOST_VALUE_BITS or fraction_bits > _core.MOST_FRACTION_BITS:
            return _core.MOST_VALUE_BITS + 1
        return 1 + math.ceil(math.ldexp(top, fraction_bits)).bit_length()

    weight_bits = weighted * _bits_for(share, smallest_weight)
    fraction_bits = max(_bits_for(share, rms, smallest_weight), weight_bits)
    for bits in (max(fraction_bits, _bits_for(small, smallest_weight)), fraction_bits):
        value_bits = max(bits_of_top(bits), 2 + weight_bits)
        if value_bits <= most_bits:
            return {"value_bits": value_bits, "fraction_bits": bits}
    fitting = sum(bits_of_top(bits) <= most_bits for bits in range(_core.MOST_FRACTION_BITS + 1))
    if not fitting:
        raise ParameterError(
            f"no scale has room for the sample's largest value in {most_bits} bits: scale the updates down, "
            "or lower headroom or max_clients"
        )
    # The most that rounding values and weights may cost, relative to one client's weighted update.
    reached = math.ldexp(0.5, 1 - fitting) / rms + weighted * math.ldexp(
        0.5, -min(fitting - 1, most_bits - 2)
    )
    raise ParameterError(
        f"{most_bits} bits a value and {_core.MOST_FRACTION_BITS} behind the point reach a relative error of "
        f"{reached / smallest_weight:.2g}, not {wanted:.2g}: ask for no less than that, lower headroom or "
        "max_clients, or bring the weights closer together"
    )


def _bits_for(*factors: float) -> int:
    """Return the number of bits behind the point with which half a step is at most the factors' product."""
    bits = -1.0
    for factor in factors:
        bits -= math.log2(factor)
    return max(math.ceil(bits), 0)


def _sizes_of(sample_update: Any, mask: Mask | None) -> Any:
    values = as_update(sample_update)
    if mask is not None:
        values = mask.gather(values)
    sizes = np.abs(values.astype(np.float64))
    if not np.isfinite(sizes).all():
        raise RangeError(
            "the sample update holds NaN or infinity: fit the scale to one that a client could send"
        )
    sizes = sizes[sizes > 0.0]
    if not sizes.size:
        raise ParameterError("all values of the sample update are zero: fit the scale to one that is typical")
    return sizes


class SchemePublicKey(Identified):
    """Encrypts and identifies; opens nothing.

    A scheme's subclass names the scheme's classes, those of the core too.
    """

    parameters: Any
    _scheme: ClassVar[str]
    _parameters_class: ClassVar[type[SchemeParameters[Any]]]
    _core_class: ClassVar[Any]
    _core_ciphertext: ClassVar[type]
    _core_encryptor: ClassVar[Any]
    _core_aggregator: ClassVar[Any]
    _batch_class: ClassVar[Any]
    _total_class: ClassVar[Any]

    def __init__(self, core: Any) -> None:
        self._core: Any = core
        self.parameters = self._parameters_class._wrap(core.parameters)

    @classmethod
    def from_bytes(cls, frame: Buffer) -> Self:
        """Read a public key frame. Raises WireFormatError, or ParameterError for what is no valid key."""
        return cls(cls._core_class.from_bytes(as_frame(frame)))

    def to_bytes(self) -> bytes:
        """Encode as a frame, parameters included."""
        return bytes(self._core.to_bytes())

    @property
    def id(self) -> bytes:
        """16 bytes that identify the key in every frame."""
        return bytes(self._core.id)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return type(self).from_bytes, (self.to_bytes(),)

    def __repr__(self) -> str:
        return f"PublicKey(id={self.id.hex()}, {self.parameters!r})"


def checked_key(key: Any, kind: type[SchemePublicKey], client_key: Any = None) -> Any:
    """Return a public key of this kind, or that of a client's key of the class ``client_key``.

    Raises ParameterError for anything else.
    """
    public_key = getattr(key, "public_key", key)
    if isinstance(key, client_key or kind) and isinstance(public_key, kind):
        return public_key
    wanted, source = "PublicKey", "the public_key of an authority with such parameters"
    if client_key:
        wanted, source = "ClientKey", "the key of an enrolled client, as authority.enrol(number) returns it"
    scheme = getattr(public_key, "_scheme", "")
    raise ParameterError(
        f"expected a {wanted} of {kind._scheme}, got {type(key).__name__}{scheme and f' of {scheme}'}: pass "
        f"{source}"
    )
