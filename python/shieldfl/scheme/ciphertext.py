"""What travels, whatever the scheme: a client's batch, a round's total."""

from __future__ import annotations

from typing import Any, Generic, Self, TypeVar

import shieldfl._core as _core
from shieldfl.array_view import Buffer, as_frame, as_threads
from shieldfl.masks import Mask
from shieldfl.scheme.interface import UnionMask

__all__ = ["Ciphertext", "SchemeBatch", "SchemeTotal"]

Core = TypeVar("Core", _core.CkksCiphertext, _core.PaillierCiphertext)


class Ciphertext(Generic[Core]):
    """A frame whose every field has been checked, or that was made here."""

    __slots__ = ("_frame", "_parsed")

    def __init__(self, frame: bytes) -> None:
        self._frame = frame
        self._parsed: Core | None = None

    @staticmethod
    def _read(frame: bytes, threads: int) -> Core:
        """Check a frame of this kind, on so many threads; 0 means all cores."""
        raise NotImplementedError

    def to_bytes(self) -> bytes:
        """Return the frame that travels."""
        return self._frame

    @property
    def parsed(self) -> Core:
        """The core's checked view of the frame."""
        return self.parse()

    @property
    def is_parsed(self) -> bool:
        """Whether the frame has been checked already; one that was made here need not have been."""
        return self._parsed is not None

    def parse(self, threads: int | None = None) -> Core:
        """Check the frame unless that was done before, on ``threads`` threads. Raises WireFormatError."""
        if self._parsed is None:
            self._parsed = self._read(self._frame, as_threads(threads))
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

    def is_of(self, positions: Mask | UnionMask) -> bool:
        """Say whether its values belong to these positions."""
        mask = positions if isinstance(positions, Mask) else positions.mask
        return self.parsed.mask_id == _core.mask_id(mask.bits) and self.count == mask.count

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
    def from_bytes(cls, frame: Buffer, threads: int | None = None) -> Self:
        """Read a frame; everything is checked that can be without the public key. Raises WireFormatError.

        ``threads`` : None for as many as the work is worth. A frame that is only to be added needs none of this: pass
        its bytes to ``Aggregator.add``, which checks as it adds.
        """
        ciphertext = cls(bytes(as_frame(frame)))
        ciphertext.parse(threads)
        return ciphertext

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.nbytes:,} bytes)"


class SchemeBatch(Ciphertext[Core]):
    """One client's encrypted update."""

    __slots__ = ("clipped", "underflowed")

    def __init__(self, frame: bytes, clipped: int | None = None, underflowed: int | None = None) -> None:
        super().__init__(frame)
        self.clipped = clipped
        """How many values were saturated; None for a batch that was read, since it does not travel."""
        self.underflowed = underflowed
        """How many values were not zero and, times the weight, rounded to zero; None for a batch that was read."""


class SchemeTotal(Ciphertext[Core]):
    """The encrypted sum of a round, for the key authority."""

    __slots__ = ()

    @property
    def total_weight(self) -> int:
        """The sum of the weights that the aggregator gave: ``clients`` where it gave none."""
        return self.clients
