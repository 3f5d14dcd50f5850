"""What an encryption scheme is to the rest of the package: names, facts and verbs, stated once in its own folder."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from shieldfl.array_view import Buffer, as_unsigned
from shieldfl.errors import ParameterError, PolicyError
from shieldfl.masks import Mask
from shieldfl.scheme.core import CoreCiphertext

__all__ = ["POOLED", "Fact", "FrameBody", "KeyBits", "Positions", "Scheme", "SumNeeds", "UnionMask"]

POOLED = "-pooled"
"""Behind the name of a calibration with randomisers that were made while the model trained."""

KeyBits = Literal[2048, 3072, 4096]
"""Sizes of keys, where a scheme has a choice of them."""

Vector = NDArray[np.float32] | NDArray[np.float64]


Fact = bool | int | float | str


@dataclass(frozen=True)
class FrameBody:
    """What the body of a frame states of itself, by name: never a value, a position or a key."""

    counts: dict[str, Fact] = field(default_factory=dict)
    """Round, values, clients and the like."""
    parameters: dict[str, Fact] = field(default_factory=dict)
    """The encryption parameters; empty where the kind has none."""
    description: str = ""
    """The parameters and what follows from them, in words."""

    @staticmethod
    def spaced(facts: Mapping[str, Fact]) -> dict[str, Fact]:
        """Return the core's facts with names as people write them."""
        return {name.replace("_", " "): value for name, value in facts.items()}

    @staticmethod
    def counts_of(ciphertext: CoreCiphertext) -> dict[str, Fact]:
        """Return what every batch and every total states."""
        return {
            "round": ciphertext.round,
            "clients": ciphertext.clients,
            "values": ciphertext.count,
            "weighted": ciphertext.weighted,
            "ciphertexts": ciphertext.ciphertexts,
            "positions id": ciphertext.mask_id.hex(),
        }


class Positions(Protocol):
    """Which values of an update a sum is encrypted in, and in which order."""

    @property
    def mask(self) -> Mask:
        """The positions as a mask."""

    @property
    def size(self) -> int:
        """The number of positions of an update."""

    @property
    def count(self) -> int:
        """How many of them are encrypted."""

    def to_bytes(self) -> bytes:
        """Encode as a frame."""

    def gather(self, dense: Any) -> NDArray[Any]:
        """Return the values of a vector of ``size`` at these positions, in their order."""

    def scatter(self, sums: Any) -> NDArray[Any]:
        """Return a vector of ``size`` values with ``count`` sums where they belong, zero elsewhere."""


class UnionMask:
    """All clients encrypt the union of their masks, in ascending order."""

    def __init__(self, mask: Mask) -> None:
        self.mask = mask

    @classmethod
    def from_bytes(cls, frame: Buffer, size: int) -> Self:
        """Read a frame of positions of an update of this size. Raises WireFormatError."""
        return cls(Mask.from_bytes(frame, size))

    @property
    def size(self) -> int:
        """The number of positions of an update."""
        return self.mask.size

    @property
    def count(self) -> int:
        """How many of them are encrypted."""
        return self.mask.count

    def to_bytes(self) -> bytes:
        """Encode as a mask's frame."""
        return self.mask.to_bytes()

    def gather(self, dense: Vector) -> Vector:
        """Return the vector's values at these positions."""
        return self.mask.gather(dense)

    def scatter(self, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return a vector of ``size`` values with the sums where they belong; the sums themselves if that is all."""
        if self.count == self.size:
            return sums
        dense = np.zeros(self.size)
        self.mask.scatter(sums, dense)
        return dense


@dataclass(frozen=True, kw_only=True)
class SumNeeds:
    """What a sum of updates has to hold."""

    clients: int
    """The most of a sum."""
    value_bits: int
    """Of a quantised value, sign included."""
    fraction_bits: int
    """Of these, behind the binary point."""
    count: int | None = None
    """How many values a client encrypts; None where that is not known before the first round."""
    most_count: int | None = None
    """The most that it can be, where ``count`` is not known."""
    most_weight: int = 1
    """The largest weight of a client."""
    mean_weight: float | None = None
    """Of all clients; None for as much as the largest. Where weights travel encrypted, they are divided by the largest;
    values then get as many bits more as keep the mean of all clients as precise as without weights."""
    key_bits: int = 3072
    """For schemes with a choice of it."""
    sum_bits: int | None = None
    """Of a sum, sign included, where fewer than any sum takes are known to be enough: for schemes with a choice of it.
    Weights then do not travel encrypted."""
    takes_clear_values: bool = False
    """Whether plain numbers are added to ciphertexts."""


class Scheme(abc.ABC):
    """An encryption scheme: what others ask for instead of its name.

    A scheme is added by a folder with a subclass of this one, and a line in :mod:`shieldfl.scheme.registry`.
    """

    name: ClassVar[str]
    """Of its folder, and in the kinds of its frames."""
    Parameters: ClassVar[Any]
    PublicKey: ClassVar[Any]
    Encryptor: ClassVar[Any]
    Aggregator: ClassVar[Any]
    Total: ClassVar[Any]
    ClientKey: ClassVar[Any] = None
    """What each client shares with the key authority, where clients enrol; None where they encrypt to a public key."""
    opening: ClassVar[str]
    """The module that the key authority alone imports: ``Decryptor``, ``KeyPair`` (the core's public key) and
    ``opened_coefficients(total)``, what a total counts for in the budget of the key. Where clients enrol:
    ``SumRequest`` (the core's), ``purpose_id`` and ``sum_key``."""

    rounds_answers_are_kept: ClassVar[int] = 2
    """For how many of the newest rounds a key authority keeps what it answered, where clients enrol."""

    encryptions: ClassVar[tuple[str, ...]]
    """The names by which settings choose the scheme and its packing."""
    key_sizes: ClassVar[tuple[int, ...]] = ()
    """What ``key_bits`` may be; empty for a scheme that has no such choice."""
    keys_last: ClassVar[bool] = False
    """Whether one pair serves all rounds; otherwise each round has its own."""
    adds_clear_values: ClassVar[bool] = False
    """Whether plain numbers are added to ciphertexts, so that each client encrypts its own mask and not the union."""
    integer_weights: ClassVar[bool] = False
    """Whether the aggregator multiplies by weights; otherwise they travel encrypted beside the values."""
    has_sum_bits: ClassVar[bool] = False
    """Whether ``Parameters`` take ``sum_bits``, so that a sum may have fewer than any sum takes."""
    has_pool: ClassVar[bool] = False
    """Whether encryptors make randomisers ahead: ``precompute``, ``wait`` and ``ciphertexts_for``."""
    is_slow: ClassVar[bool] = False
    """Whether a number of ciphertexts is measured in calibration, since a whole update would take too long."""
    positions_part: ClassVar[str] = "union"
    """The name of the message part that says which positions are encrypted."""

    @property
    def calibrations(self) -> tuple[str, ...]:
        """The names under which it is calibrated; ``-pooled`` counts only what is left once randomisers are there."""
        variants = ("", POOLED) if self.has_pool else ("",)
        return tuple(name + variant for name in self.encryptions for variant in variants)

    @property
    @abc.abstractmethod
    def frame_readers(self) -> Mapping[str, Callable[[bytes], FrameBody]]:
        """What reads each kind of its frames, by the names that the core gives them."""

    def check_key_bits(self, key_bits: int) -> None:
        """Raise ParameterError for a size that keys of this scheme cannot have."""
        if as_unsigned(key_bits, "key_bits") not in self.key_sizes and self.key_sizes:
            *sizes, last = map(str, self.key_sizes)
            raise ParameterError(f"key_bits must be {', '.join(sizes)} or {last}, not {key_bits}")

    @property
    def enrols(self) -> bool:
        """Whether each client shares a key of its own with the key authority, which then answers lists of clients."""
        return self.ClientKey is not None

    @abc.abstractmethod
    def calibrated_parameters(self, encryption: str, key_bits: int) -> Any:
        """Return the parameters that one of its encryptions is measured with."""

    @abc.abstractmethod
    def update_parameters(self, encryption: str, needs: SumNeeds) -> Any:
        """Return parameters for such sums. Raises ParameterError for needs that it cannot meet."""

    def positions_of(self, masks: list[Mask], threads: int | None) -> Positions:
        """Return where a sum over clients with these masks is encrypted. Raises ParameterError for none."""
        union = masks[0]
        for mask in masks[1:]:
            union = union | mask
        return UnionMask(union)

    def read_positions(self, frame: Buffer, size: int) -> Positions:
        """Read positions of an update of this size. Raises WireFormatError."""
        return UnionMask.from_bytes(frame, size)

    def encrypt(
        self,
        encryptor: Any,
        update: Vector,
        own: Mask,
        positions: Positions,
        weight: float | None,
        round_number: int,
    ) -> tuple[bytes, Mask]:
        """Encrypt an update (N,) for a sum over these positions; return the frame and which positions it covers.

        ``own`` are those that the client protects. Raises PolicyError or ParameterError where the sum leaves some of
        them out, RangeError.
        """
        if (own - positions.mask).count:
            raise PolicyError("the union leaves out positions that this client protects: nothing was sent")
        return encryptor.encrypt(update, positions.mask, weight, round_number).to_bytes(), positions.mask

    def encryptor(self, key: Any, threads: int | None, purpose: str) -> Any:
        """Return what encrypts a client's values: under a public key, or, where clients enrol, its own ``ClientKey``.

        ``purpose`` is what is encrypted, such as ``"update"``; where clients enrol, it is bound to the ciphertexts.
        """
        return self.Encryptor(key, threads)

    def aggregator(
        self,
        key: Any,
        threads: int | None,
        round_number: int,
        positions: Positions,
        *,
        weighted: bool,
        purpose: str,
    ) -> Any:
        """Return an aggregator that takes batches of these positions alone; ``weighted``: with encrypted weights."""
        return self.Aggregator(key, threads, round=round_number, positions=positions.mask, weighted=weighted)

    def open_total(
        self,
        key: Any,
        total: Any,
        sum_keys: Sequence[Buffer],
        threads: int | None,
        beside: bytes = b"",
    ) -> tuple[NDArray[np.float64], float | None]:
        """Open a total with what each authority answered, where clients enrol: sums, and the sum of encrypted weights.

        ``beside`` is what the request was made with.

        Raises KeyMismatchError for the answer to another total, WireFormatError for what opens to no sums in range.
        """
        raise NotImplementedError

    def add(
        self, aggregator: Any, client: int, frame: Buffer, weight: int, clear: NDArray[np.float32] | None
    ) -> None:
        """Add the frame that this client sent.

        ``weight`` is what the client counts, ``clear`` what it sent in the clear, in the order of the positions; a
        scheme uses them as its facts say.
        """
        aggregator.add(frame)
