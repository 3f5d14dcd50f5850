"""The order in which clients with different masks pack their values, so that they can share ciphertexts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import shieldfl._core as _core
from shieldfl.array_view import Buffer, as_frame, as_threads, as_unsigned, as_update, as_vector
from shieldfl.errors import ArrayTypeError, ParameterError
from shieldfl.masks import Mask, bits_of

__all__ = ["UnionOrder"]


class UnionOrder:
    """The positions that any client of a group encrypts, most popular first. Immutable.

    All clients of the group pack in this one order. A client puts zero where its own mask does not select, leaves
    out ciphertexts that would be all zero (few clients need the ciphertexts at the end), and sends those values
    in the clear instead: ``clear_fields``. The aggregator adds both.
    """

    __slots__ = ("_core",)

    def __init__(self, core: _core.UnionOrder) -> None:
        self._core = core

    @staticmethod
    def core_of(order: Any) -> _core.UnionOrder:
        """Return the core's object of a UnionOrder. Raises ParameterError for anything else."""
        if not isinstance(order, UnionOrder):
            raise ParameterError(
                f"expected a UnionOrder, got {type(order).__name__}: make one with UnionOrder.from_masks(...)"
            )
        return order._core

    @classmethod
    def from_masks(cls, masks: Sequence[Mask], threads: int | None = None) -> UnionOrder:
        """Order the union of all clients' masks; within a popularity positions ascend.

        Raises ParameterError for no masks, or masks of different sizes.
        """
        return cls(_core.UnionOrder.from_masks([bits_of(mask) for mask in masks], as_threads(threads)))

    @classmethod
    def from_bytes(cls, frame: Buffer, expected_size: int | None = None) -> UnionOrder:
        """Read a frame; every position is checked.

        Give ``expected_size`` for bytes that come from outside, as for ``Mask.from_bytes``. Raises WireFormatError.
        """
        size = None if expected_size is None else as_unsigned(expected_size, "expected_size")
        return cls(_core.UnionOrder.from_bytes(as_frame(frame), size))

    def to_bytes(self) -> bytes:
        """Encode as a frame."""
        return self._core.to_bytes()

    @property
    def size(self) -> int:
        """The number of positions of an update."""
        return self._core.size

    @property
    def count(self) -> int:
        """How many of them are in the union."""
        return len(self._core.positions)

    @property
    def positions(self) -> NDArray[np.uint32]:
        """The positions of the union in packing order, read-only, without a copy."""
        return self._core.positions

    @property
    def mask(self) -> Mask:
        """The union as a mask."""
        return Mask.from_indices(self.positions.astype(np.int64), self.size)

    @property
    def id(self) -> bytes:
        """16 bytes that identify size and order in every frame."""
        return self._core.id

    def clear_fields(self, update: Any, mask: Mask) -> NDArray[Any]:
        """Return what a client sends in the clear: its values in the union's order, zero where its mask selects.

        ``update`` is a float32 or float64 vector of ``size`` values, and so is, with ``count`` values, what is
        returned. Raises ArrayTypeError, and ParameterError for sizes that differ or a mask with a position outside
        of the union.
        """
        values = as_update(update)
        self._check_length(values, self.size, "the update")
        selected = bits_of(mask).to_bools()
        self._check_length(selected, self.size, "the mask")
        fields = values[self.positions]
        outside = np.count_nonzero(selected) - np.count_nonzero(selected[self.positions])
        if outside:
            raise ParameterError(
                f"the client's mask selects {outside:,} positions outside of the union: make the order from the "
                "masks of all clients in the group"
            )
        fields[selected[self.positions]] = 0
        return fields

    def gather(self, dense: NDArray[Any]) -> NDArray[Any]:
        """Return the values of a vector of ``size``, in the union's order."""
        return dense[self.positions]

    def scatter(self, sums: Any, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Put ``count`` values in the union's order, such as an opened total's, where they belong in a dense vector.

        Writes to ``out``, of ``size`` values, and leaves its other positions alone; without it, to a new vector of
        the same dtype that is zero there. Returns that vector. Raises ArrayTypeError, and ParameterError for
        sizes that differ.
        """
        values = as_vector(sums, (np.float32, np.float64), "the vector in the union's order")
        self._check_length(values, self.count, "the vector in the union's order")
        if out is None:
            dense: NDArray[Any] = np.zeros(self.size, dtype=values.dtype)
        else:
            dense = as_vector(out, (np.float32, np.float64), "the dense vector")
            self._check_length(dense, self.size, "the dense vector")
            if not dense.flags.writeable:
                raise ArrayTypeError("the dense vector is read-only: pass one that can be written to")
        dense[self.positions] = values
        return dense

    @staticmethod
    def _check_length(values: NDArray[Any], length: int, what: str) -> None:
        if values.size != length:
            raise ParameterError(f"{what} has {values.size:,} entries, expected {length:,}")

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, UnionOrder) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.id)

    def __reduce__(self) -> tuple[Any, tuple[bytes]]:
        return UnionOrder.from_bytes, (self.to_bytes(),)

    def __repr__(self) -> str:
        return f"UnionOrder({self.count:,} of {self.size:,} positions)"
