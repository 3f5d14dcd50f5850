"""Masks: sets of positions in a flat parameter vector, and their negotiation.

Source of the negotiation: SelectiveShield, eqs. 15 to 18.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

import shieldfl._core as _core
from shieldfl.array_view import as_frame, as_real, as_threads, as_unsigned, as_vector
from shieldfl.errors import ArrayTypeError, ParameterError, WireFormatError

__all__ = ["LayerCount", "Mask", "Votes", "Zones", "negotiate", "negotiate_zones", "split_zones"]


class Layout(Protocol):
    """Where the arrays of a model lie in its flat vector."""

    @property
    def size(self) -> int:
        """Number of positions."""

    def slices(self) -> Iterator[tuple[str, slice]]:
        """Yield the name and the slice of each array, in order."""


class LayerCount(NamedTuple):
    """How many positions of one array a mask has."""

    name: str
    chosen: int
    size: int


class Mask:
    """An immutable set of positions out of ``size``, one bit each.

    Masks support ``&``, ``|``, ``-`` (difference), ``~`` and ``==``; the operands must have equal sizes
    (ParameterError otherwise).
    """

    __slots__ = ("_bits",)

    def __init__(self, bits: _core.Bitset) -> None:
        self._bits = bits

    @classmethod
    def from_bool(cls, chosen: Any) -> Mask:
        """Make a mask from a contiguous bool vector: NumPy or CPU torch. Raises ArrayTypeError for others."""
        return cls(_core.Bitset.from_bools(as_vector(chosen, (np.bool_,), "the mask")))

    @classmethod
    def from_indices(cls, indices: Any, size: int) -> Mask:
        """Make a mask of ``size`` positions from a vector of distinct int64 positions, in any order.

        Raises ParameterError for a position that is out of range or given twice.
        """
        vector = np.asarray(indices) if isinstance(indices, (list, tuple)) else indices
        if isinstance(vector, np.ndarray) and vector.size == 0:
            vector = vector.astype(np.int64)
        return cls(
            _core.Bitset.from_indices(as_vector(vector, (np.int64,), "indices"), as_unsigned(size, "size"))
        )

    @classmethod
    def full(cls, size: int) -> Mask:
        """Every position out of ``size``."""
        return cls(_core.Bitset.full(as_unsigned(size, "size")))

    @classmethod
    def empty(cls, size: int) -> Mask:
        """No position out of ``size``."""
        return cls(_core.Bitset.empty(as_unsigned(size, "size")))

    @classmethod
    def from_bytes(
        cls,
        frame: bytes | bytearray | memoryview,
        expected_size: int | None = None,
        *,
        most_positions: int | None = None,
    ) -> Mask:
        """Read a mask frame.

        Give ``expected_size`` for bytes that come from outside, or ``most_positions`` where several sizes are right: a
        frame of a few bytes can state a mask of 2**31 positions, which takes 256 MiB. Raises WireFormatError.
        """
        size = None if expected_size is None else as_unsigned(expected_size, "expected_size")
        data = as_frame(frame)
        if most_positions is not None:
            stated: int = _core.inspect_mask(data)["size"]
            if stated > as_unsigned(most_positions, "most_positions"):
                raise WireFormatError(
                    f"the mask states {stated} positions: at most {most_positions} are right here"
                )
        return cls(_core.decode_mask(data, size))

    def to_bytes(self) -> bytes:
        """Encode as a frame: the bitmap, or compressed gaps where these are shorter."""
        return _core.encode_mask(self._bits)

    def to_bool(self) -> NDArray[np.bool_]:
        """Return a bool vector of ``size`` entries."""
        return self._bits.to_bools()

    def to_indices(self) -> NDArray[np.int64]:
        """Return the chosen positions, ascending."""
        return self._bits.to_indices()

    @property
    def size(self) -> int:
        """The number of positions."""
        return self._bits.size

    @property
    def count(self) -> int:
        """How many of them are chosen."""
        return self._bits.count

    @property
    def bits(self) -> _core.Bitset:
        """The core's object, for the other thin modules."""
        return self._bits

    def gather(self, dense: Any, threads: int | None = None) -> NDArray[Any]:
        """Copy the values at the chosen positions: float32 or float64, (size,) to (count,)."""
        vector = as_vector(dense, (np.float32, np.float64), "the dense vector")
        return _core.gather(vector, self._bits, as_threads(threads))

    def scatter(self, compact: Any, dense: Any, threads: int | None = None) -> None:
        """Write (count,) values to the chosen positions of ``dense`` (size,), in place; equal float dtypes."""
        source = as_vector(compact, (np.float32, np.float64), "the compact vector")
        target = as_vector(dense, (source.dtype.type,), "the dense vector")
        _core.scatter(source, self._bits, target, as_threads(threads))

    def scatter_add(self, compact: Any, dense: Any, threads: int | None = None) -> None:
        """Add (count,) values to the chosen positions of ``dense`` (size,), in place; equal float dtypes."""
        source = as_vector(compact, (np.float32, np.float64), "the compact vector")
        target = as_vector(dense, (source.dtype.type,), "the dense vector")
        _core.scatter_add(source, self._bits, target, as_threads(threads))

    def resized(self, size: int, *, chosen: bool = False) -> Mask:
        """Return the same set among ``size`` positions: shorter, or longer by positions that are all chosen or none."""
        number = as_unsigned(size, "size")
        # Itself where nothing changes: what the core has worked out of it stays known.
        return self if number == self.size else Mask(self._bits.resized(number, chosen))

    def describe(self, layout: Layout) -> list[LayerCount]:
        """Return how many positions of each array it has, in a layout's order.

        ``layout`` is a ``shieldfl.torch.ModelLayout``, or a ``ParameterLayout``. Raises ParameterError for one of
        another size.
        """
        if layout.size != self.size:
            raise ParameterError(f"the mask is one of {self.size:,} positions, the layout of {layout.size:,}")
        chosen = self.to_bool()
        return [
            LayerCount(name, int(np.count_nonzero(chosen[part])), part.stop - part.start)
            for name, part in layout.slices()
        ]

    def __and__(self, other: Mask) -> Mask:
        return Mask(self._bits & other._bits) if isinstance(other, Mask) else NotImplemented

    def __or__(self, other: Mask) -> Mask:
        return Mask(self._bits | other._bits) if isinstance(other, Mask) else NotImplemented

    def __sub__(self, other: Mask) -> Mask:
        return Mask(self._bits - other._bits) if isinstance(other, Mask) else NotImplemented

    def __invert__(self) -> Mask:
        return Mask(~self._bits)

    def __eq__(self, other: object) -> bool:
        return self._bits == other._bits if isinstance(other, Mask) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.size, self.count))

    def __reduce__(self) -> tuple[Any, tuple[bytes]]:
        return Mask.from_bytes, (self.to_bytes(),)

    def __repr__(self) -> str:
        return f"Mask({self.count:,} of {self.size:,} positions)"


def bits_of(mask: Any) -> _core.Bitset:
    """Return the core's object of a Mask. Raises ArrayTypeError for anything else, such as a bool array."""
    if not isinstance(mask, Mask):
        raise ArrayTypeError(f"expected a Mask, got {type(mask).__name__}: make one with Mask.from_bool(...)")
    return mask.bits


class Zones(NamedTuple):
    """A client's three zones: disjoint, and together every position (SelectiveShield, eqs. 16 to 18)."""

    encrypted: Mask
    personalised: Mask
    noise: Mask


def split_zones(local: Mask, encrypted: Mask) -> Zones:
    """Split all positions: encrypted as negotiated, personalised = local minus encrypted, noise = the rest.

    Raises ParameterError where the sizes differ.
    """
    return Zones(*(Mask(bits) for bits in _core.split_zones(bits_of(local), bits_of(encrypted))))


class Votes:
    """Counts, for masks that arrive one by one, how many chose each position.

    Memory is a few bits a position: the length of the number of voters. Safe to use from several threads.
    """

    def __init__(self, size: int) -> None:
        self._votes = _core.Votes(as_unsigned(size, "size"))
        # The core counts without the interpreter lock, so the counters need one of their own.
        self._lock = threading.Lock()

    @property
    def voters(self) -> int:
        """How many masks were added."""
        with self._lock:
            return self._votes.voters

    @property
    def memory_bytes(self) -> int:
        """What the counters take: one bit a position for every binary digit of the number of voters."""
        with self._lock:
            return self._votes.memory_bytes

    def add(self, mask: Mask, threads: int | None = None) -> None:
        """Count one mask. Raises ParameterError for a mask of another size; the counts stay as they were."""
        with self._lock:
            self._votes.add(bits_of(mask), as_threads(threads))

    def consensus(self, rho: float, threads: int | None = None) -> Mask:
        """Return the positions that at least a share ``rho`` of the voters chose, 0 < rho <= 1 (eq. 16).

        Raises ParameterError for another rho, and where nobody has voted.
        """
        with self._lock:
            return Mask(self._votes.consensus(as_real(rho, "rho"), as_threads(threads)))

    def counts(self, threads: int | None = None) -> NDArray[np.uint32]:
        """Return the votes of every position."""
        with self._lock:
            return self._votes.counts(as_threads(threads))


def negotiate(masks: Sequence[Mask], consensus: float = 0.5, threads: int | None = None) -> Mask:
    """Return the positions that at least a share ``consensus`` of the masks chose.

    That is ``ceil(consensus * len(masks))`` masks, the product taken exactly: 7 of 25 are a share of 0.28,
    though ``math.ceil(0.28 * 25)`` is 8 in floating point. 0 < consensus <= 1; 1 is the intersection
    (SelectiveShield, eqs. 15 and 16). Raises ParameterError for no masks, masks of different sizes, and
    another consensus.
    """
    return Mask(_core.negotiate(_ballots(masks), as_real(consensus, "consensus"), as_threads(threads)))


def negotiate_zones(
    masks: Sequence[Mask], consensus: float = 0.5, threads: int | None = None
) -> tuple[Mask, list[Zones]]:
    """Negotiate, and split every mask's positions into zones by the outcome: one pass over all masks.

    Returns the encrypted zone and, in the order of the masks, each client's zones, which share it
    (SelectiveShield, eqs. 15 to 18): the same as ``negotiate`` and then ``split_zones`` for every mask. The
    zones of n clients take 2n + 1 bits a position. Raises what ``negotiate`` raises.
    """
    encrypted_bits, clients = _core.negotiate_zones(
        _ballots(masks), as_real(consensus, "consensus"), as_threads(threads)
    )
    encrypted = Mask(encrypted_bits)
    return encrypted, [Zones(encrypted, Mask(own), Mask(noise)) for own, noise in clients]


def _ballots(masks: Sequence[Mask]) -> list[_core.Bitset]:
    if len(masks) == 0:
        raise ParameterError("there are no masks to negotiate: pass at least one")
    return [bits_of(mask) for mask in masks]
