"""RLWE encryption of model updates: pack, encrypt, sum, serialise.

Two packings. ``exact`` puts fixed-point integers into polynomial coefficients; a total opens to the integer
sum, bit for bit. ``slots`` is the CKKS canonical embedding of the papers; its totals are approximate and are
flooded with noise when they are opened. See ``docs/packings.md``.

Only :class:`shieldfl.KeyAuthority` holds a secret key.
"""

from __future__ import annotations

from typing import Any, Self

from shieldfl import _core
from shieldfl.array_view import as_threads, as_unsigned, as_update
from shieldfl.errors import ParameterError, WireFormatError
from shieldfl.masks import Mask

__all__ = ["Aggregator", "CiphertextBatch", "Encryptor", "Parameters", "PublicKey", "Total"]

Buffer = bytes | bytearray | memoryview


class Parameters:
    """What a federation agrees on before its first round. Immutable; equal when everything is.

    Parameters
    ----------
    packing : "exact" or "slots".
    max_clients : the most updates that a total can hold, up to 2**20.
    value_bits : bits of a quantised value, sign included, 2 to 40.
    fraction_bits : bits behind the binary point, 0 to 52. A value v becomes round(v * 2**fraction_bits), ties
        to even, and must stay below 2**(value_bits - 1) in magnitude.
    ring_degree : 2048 or 4096; by default the smallest ring with room.

    Raises ParameterError when a setting is out of range or no ring of 128-bit security has room.
    """

    __slots__ = ("_facts", "_handle")
    _facts: dict[str, Any]
    _handle: _core.CkksParameters

    def __init__(
        self,
        *,
        packing: str = "exact",
        max_clients: int = 64,
        value_bits: int = 24,
        fraction_bits: int = 20,
        ring_degree: int | None = None,
    ) -> None:
        if packing not in ("exact", "slots"):
            raise ParameterError(f"packing must be 'exact' or 'slots', not {packing!r}")
        clients, bits, fraction = (
            min(as_unsigned(value, name), 2**32 - 1)
            for name, value in (
                ("max_clients", max_clients),
                ("value_bits", value_bits),
                ("fraction_bits", fraction_bits),
            )
        )
        degree = None if ring_degree is None else min(as_unsigned(ring_degree, "ring_degree"), 2**32 - 1)
        self._adopt(_core.CkksParameters(packing, clients, bits, fraction, degree))

    def _adopt(self, handle: _core.CkksParameters) -> None:
        object.__setattr__(self, "_handle", handle)
        object.__setattr__(self, "_facts", handle.facts)

    @classmethod
    def _wrap(cls, core: _core.CkksParameters) -> Parameters:
        parameters = cls.__new__(cls)
        parameters._adopt(core)
        return parameters

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("Parameters are immutable: make new ones")

    @property
    def packing(self) -> str:
        """``"exact"`` or ``"slots"``."""
        return str(self._facts["packing"])

    @property
    def max_clients(self) -> int:
        """The most updates that a total can hold."""
        return int(self._facts["max_clients"])

    @property
    def value_bits(self) -> int:
        """Bits of a quantised value, sign included."""
        return int(self._facts["value_bits"])

    @property
    def fraction_bits(self) -> int:
        """Bits behind the binary point."""
        return int(self._facts["fraction_bits"])

    @property
    def ring_degree(self) -> int:
        """N of the ring Z_q[X] / (X^N + 1)."""
        return int(self._facts["ring_degree"])

    @property
    def values_per_coefficient(self) -> int:
        """How many values share a coefficient (exact packing; 0 for slots)."""
        return int(self._facts["values_per_coefficient"])

    @property
    def value_limit(self) -> float:
        """The largest magnitude that a value, times its weight, may have."""
        return self._handle.value_limit

    @property
    def bytes_per_value(self) -> float:
        """Bytes on the wire for each value of a full ciphertext, frame header excluded."""
        return self._handle.bytes_per_value

    @property
    def security_bits(self) -> int:
        """Bits of security, by the homomorphic encryption standard's table."""
        return self._handle.security_bits

    @property
    def id(self) -> bytes:
        """16 bytes that identify these parameters in every frame."""
        return self._handle.id

    def describe(self) -> str:
        """Say in a few lines what the parameters are and what follows from them."""
        facts = self._facts
        modulus_bits = " + ".join(str(prime.bit_length()) for prime in facts["primes"])
        lines = [
            f"CKKS, {self.packing} packing, {self.security_bits}-bit security",
            f"  values      {self.value_bits} bits, {self.fraction_bits} behind the point: "
            f"|value| <= {self.value_limit:.6g} in steps of 2^-{self.fraction_bits}",
            f"  clients     up to {self.max_clients:,}, {facts['guard_bits']} guard bits for their sum",
            f"  ring        N = {self.ring_degree}, modulus of {modulus_bits} bits",
            f"  ciphertext  {facts['values_per_ciphertext']:,} values in {facts['ciphertext_bytes']:,} bytes: "
            f"{self.bytes_per_value:.2f} bytes a value",
        ]
        if self.packing == "exact":
            lines.append(
                f"  noise       below {self._handle.noise_bound:,.0f} in a sum of {self.max_clients} "
                f"(but for a chance of 2^-96 each), rounded away at scale 2^{facts['log2_scale']}"
            )
        else:
            lines.append(
                f"  noise       flooded with deviation 2^{facts['log2_flooding']} at scale 2^{facts['log2_scale']}"
            )
        return "\n".join(lines)

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, Parameters) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.id)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        names = ("packing", "max_clients", "value_bits", "fraction_bits", "ring_degree")
        return _make_parameters, tuple(self._facts[name] for name in names)

    def __repr__(self) -> str:
        return (
            f"Parameters(packing={self.packing!r}, max_clients={self.max_clients}, "
            f"value_bits={self.value_bits}, fraction_bits={self.fraction_bits}, ring_degree={self.ring_degree})"
        )

    def _new_decryptor(self) -> _core.CkksDecryptor:
        return _core.CkksDecryptor(self._handle)


def _make_parameters(*settings: Any) -> Parameters:
    names = ("packing", "max_clients", "value_bits", "fraction_bits", "ring_degree")
    return Parameters(**dict(zip(names, settings, strict=True)))


class PublicKey:
    """Encrypts and identifies; opens nothing. Clients and aggregators get this one."""

    __slots__ = ("_core", "parameters")

    def __init__(self, core: _core.CkksPublicKey) -> None:
        self._core = core
        self.parameters = Parameters._wrap(core.parameters)

    @classmethod
    def from_bytes(cls, frame: Buffer) -> PublicKey:
        """Read a public key frame. Raises WireFormatError, or ParameterError for parameters of another version."""
        return cls(_core.CkksPublicKey.from_bytes(frame))

    def to_bytes(self) -> bytes:
        """Encode as a frame, parameters included."""
        return self._core.to_bytes()

    @property
    def id(self) -> bytes:
        """16 bytes that identify the key in every frame."""
        return self._core.id

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, PublicKey) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.id)

    def __reduce__(self) -> tuple[Any, tuple[bytes]]:
        return PublicKey.from_bytes, (self.to_bytes(),)

    def __repr__(self) -> str:
        return f"PublicKey(id={self.id.hex()}, {self.parameters!r})"


class _Ciphertext:
    """A frame whose every field has been checked, or that was made here."""

    __slots__ = ("_frame", "_parsed")
    _kind = ""

    def __init__(self, frame: bytes) -> None:
        self._frame = frame
        self._parsed: _core.CkksCiphertext | None = None

    def to_bytes(self) -> bytes:
        """Return the frame that travels."""
        return self._frame

    @property
    def parsed(self) -> _core.CkksCiphertext:
        """The core's checked view of the frame."""
        if self._parsed is None:
            parse = _core.CkksCiphertext.batch if self._kind == "batch" else _core.CkksCiphertext.total
            self._parsed = parse(self._frame)
        return self._parsed

    @property
    def nbytes(self) -> int:
        """The length of the frame in bytes."""
        return len(self._frame)

    @property
    def round(self) -> int:
        """The round that it belongs to."""
        return self.parsed.round

    @property
    def count(self) -> int:
        """The number of values."""
        return self.parsed.count

    @property
    def weighted(self) -> bool:
        """Whether an encrypted weight travels beside the values."""
        return self.parsed.weighted

    @property
    def clients(self) -> int:
        """The number of clients whose updates are in it."""
        return self.parsed.clients

    @property
    def key_id(self) -> bytes:
        """The id of the key that it was made under."""
        return self.parsed.key_id

    @property
    def parameter_id(self) -> bytes:
        """The id of its parameters."""
        return self.parsed.parameter_id

    def __reduce__(self) -> tuple[Any, tuple[bytes]]:
        return type(self).from_bytes, (self._frame,)

    @classmethod
    def from_bytes(cls, frame: Buffer) -> Self:
        """Read a frame; every field and every residue is checked. Raises WireFormatError."""
        if not isinstance(frame, (bytes, bytearray, memoryview)):
            raise WireFormatError(f"expected the bytes of a frame, got {type(frame).__name__}")
        ciphertext = cls(bytes(frame))
        _ = ciphertext.parsed
        return ciphertext

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.nbytes:,} bytes)"


class CiphertextBatch(_Ciphertext):
    """One client's encrypted update."""

    __slots__ = ("clipped",)
    _kind = "batch"

    def __init__(self, frame: bytes, clipped: int | None = None) -> None:
        super().__init__(frame)
        self.clipped = clipped
        """How many values were saturated; None for a batch that was read, since it does not travel."""


class Total(_Ciphertext):
    """The encrypted sum of a round, for the key authority."""

    __slots__ = ()
    _kind = "total"


class Encryptor:
    """Encrypts masked updates under a public key. Safe to use from several threads."""

    def __init__(self, public_key: PublicKey, threads: int | None = None) -> None:
        self.public_key = public_key
        self._threads = as_threads(threads)
        self._core = _core.CkksEncryptor(public_key._core)

    def encrypt(
        self,
        update: Any,
        mask: Mask | None = None,
        weight: float | None = None,
        round: int = 0,
        *,
        clip: bool = False,
    ) -> CiphertextBatch:
        """Encrypt the values at the mask's positions, in one pass and without a copy of the update.

        Parameters
        ----------
        update : float32 or float64 vector, contiguous: NumPy or CPU torch. ArrayTypeError otherwise.
        mask : which positions; None for all. ParameterError when its size is not that of the update.
        weight : scales the update and travels encrypted beside it, so that the mean is right whichever clients
            take part. Positive, at most ``value_limit``: divide by the largest client's.
        round : the round that the batch is good for.
        clip : saturate values that are out of range, and count them in ``clipped``, instead of refusing them.

        Raises RangeError that names the first position whose value is NaN, infinite or out of range.
        """
        frame, clipped = self._core.encrypt(
            as_update(update),
            None if mask is None else mask.bits,
            None if weight is None else float(weight),
            as_unsigned(round, "round"),
            bool(clip),
            self._threads,
        )
        return CiphertextBatch(frame, clipped)


class Aggregator:
    """Sums batches as they arrive, in the memory of one; cannot open anything.

    Raises, and keeps what it holds: WireFormatError, ParameterError (other parameters, other positions),
    KeyMismatchError, PolicyError (another round), DuplicateFrameError, CapacityError.

    Parameters
    ----------
    public_key : the key that the clients encrypt under.
    threads : None for all cores.
    round : the round whose batches are accepted; None lets the first batch decide.
    """

    def __init__(
        self, public_key: PublicKey, threads: int | None = None, *, round: int | None = None
    ) -> None:
        number = None if round is None else as_unsigned(round, "round")
        self._core = _core.CkksAggregator(public_key._core, number, as_threads(threads))

    def add(self, batch: CiphertextBatch | Buffer) -> None:
        """Add one client's batch, or the bytes of one."""
        if isinstance(batch, CiphertextBatch):
            self._core.add_parsed(batch.parsed)
        elif isinstance(batch, (bytes, bytearray, memoryview)):
            self._core.add_bytes(batch)
        else:
            raise WireFormatError(f"expected a CiphertextBatch or bytes, got {type(batch).__name__}")

    def total(self) -> Total:
        """Return the sum so far. Raises ParameterError before the first batch."""
        return Total(self._core.total())

    @property
    def clients(self) -> int:
        """How many batches are in the sum."""
        return self._core.clients

    @property
    def round(self) -> int | None:
        """The round that is summed; None before the first batch unless it was given."""
        return self._core.round
