"""From updates to batches to a total, whatever the scheme: nothing here holds a secret."""

from __future__ import annotations

import mmap
import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, Self, TypeVar

import shieldfl._core as _core
from shieldfl.array_view import (
    Buffer,
    Pieces,
    Update,
    as_frame,
    as_pieces,
    as_real,
    as_threads,
    as_unsigned,
    frame_buffer,
    mapped_frame,
)
from shieldfl.errors import PrecisionWarning, RangeError
from shieldfl.masks import Mask, bits_of
from shieldfl.scheme.core import CoreAggregator, CoreCiphertext
from shieldfl.scheme.interface import UnionMask
from shieldfl.scheme.parameters import SchemeParameters
from shieldfl.stateful import Uncopied

__all__ = [
    "MOST_LOST",
    "Ciphertext",
    "FrameSource",
    "SchemeAggregator",
    "SchemeBatch",
    "SchemeEncryptor",
    "SchemeTotal",
]

Core = TypeVar("Core", bound=CoreCiphertext)


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

    @property
    def named_clients(self) -> tuple[int, ...]:
        """The numbers of those who are in it, where clients enrol; empty elsewhere, where nothing says who is."""
        return ()

    def is_for(self, purpose: str) -> bool:
        """Say whether its values were encrypted for this purpose; True where frames do not say what for."""
        return True


_POSITION = re.compile(r"the value at position (\d+) ")

Batch = TypeVar("Batch", bound=SchemeBatch[Any])

_TO_HOLD = "raise value_bits, lower fraction_bits, or pass clip=True"
"""What the core says to do about a value that is too large."""
_TO_HOLD_BY_SETTINGS = (
    "lower the learning rate, or of the method's settings raise value_bits or lower fraction_bits"
)
_TO_KEEP = (
    "Take the scale from Parameters.fit(sample_update, weights=...), or raise fraction_bits and value_bits"
)
_TO_KEEP_BY_SETTINGS = "Raise the method's settings fraction_bits and value_bits by as many"
MOST_LOST = 0.1
"""The share of the values that are not zero which may be lost, rounded to zero or clipped, without a warning."""

Encrypted = tuple[bytes, tuple[int, int, int]]
"""A frame, and how many values were not zero, rounded to zero, and were saturated."""


class SchemeEncryptor(Uncopied, Generic[Batch]):
    """Encrypts masked updates under a public key. Safe to use from several threads."""

    _batch_class: type[Batch]
    _warned_round: int | None = None
    speaks_of_settings = False
    """Whether errors and warnings say what to do by settings of a method, and not by arguments of its own."""
    _why_uncopied = (
        "may hold randomisers that are good for one use, so it is neither copied nor pickled: "
        "pass its public_key on and make another from it"
    )

    def encrypt(
        self,
        update: Update | Sequence[Update],
        mask: Mask | None = None,
        weight: float | None = None,
        round: int = 0,
        *,
        clip: bool = False,
    ) -> Batch:
        """Encrypt the values at the mask's positions, in one pass and without a copy of the update.

        Parameters
        ----------
        update : float32 or float64 vector, contiguous: NumPy or CPU torch; or a list of such vectors, of one dtype,
            that are the update one after the other. ArrayTypeError otherwise.
        mask : which positions; None for all. ParameterError when its size is not that of the update.
        weight : scales the update and travels encrypted beside it, so that the mean is right whichever clients
            take part. Positive, in steps of ``weight_step``: divide by the largest that any client has. A small
            weight makes small values, for which the scale has to be fine enough: see ``Parameters.fit``.
        round : the round that the batch is good for.
        clip : saturate values that are out of range, and count them in ``clipped``, instead of refusing them.

        Raises RangeError that names the first position whose value is NaN, infinite or out of range. Values that
        round to zero are counted in ``underflowed``; a PrecisionWarning comes, once a round, when these are more
        than a tenth of those that are not zero.
        """
        pieces, number = as_pieces(update), as_unsigned(round, "round")
        bits = None if mask is None else bits_of(mask)
        factor = None if weight is None else as_real(weight, "weight")
        with self._locating(sum(piece.size for piece in pieces)):
            encrypted = self._encrypt(pieces, bits, factor, number, bool(clip))
        return self._make_batch(encrypted, number)

    @contextmanager
    def _locating(self, size: int) -> Iterator[None]:
        """Let a RangeError of the core have the value's position, and say what its reader can do."""
        try:
            yield
        except RangeError as error:
            # The core's message is all that it hands over.
            if (found := _POSITION.match(str(error))) is None:
                raise
            text = str(error).replace(_TO_HOLD, _TO_HOLD_BY_SETTINGS if self.speaks_of_settings else _TO_HOLD)
            told = RangeError(text)
            told.position, told.size = int(found[1]), size
            raise told from None

    def _make_batch(self, encrypted: Encrypted, round: int) -> Batch:
        """Make the batch; warn whoever called the caller of values that are lost."""
        frame, (nonzero, underflowed, clipped) = encrypted
        if underflowed > MOST_LOST * nonzero and self._warned_round != round:
            self._warned_round = round
            step = f"2^-{self._parameters().fraction_bits}"
            warnings.warn(
                f"{underflowed:,} of the {nonzero:,} values that are not zero round to zero: times the weight, if "
                f"any, they are below half of the step {step}, and the sum loses them. "
                f"{_TO_KEEP_BY_SETTINGS if self.speaks_of_settings else _TO_KEEP}",
                PrecisionWarning,
                stacklevel=3,
            )
        return self._batch_class(frame, clipped, underflowed)

    def _parameters(self) -> SchemeParameters[Any, Any]:
        raise NotImplementedError

    def _encrypt(
        self,
        pieces: Pieces,
        mask: _core.Bitset | None,
        weight: float | None,
        round: int,
        clip: bool,
    ) -> Encrypted:
        raise NotImplementedError


FrameSource = Buffer | mmap.mmap | os.PathLike[str]
"""Bytes of a frame, or the file that holds them."""

AddingCore = TypeVar("AddingCore", bound=CoreAggregator)
Total = TypeVar("Total", bound=SchemeTotal[Any])


class SchemeAggregator(Generic[AddingCore, Total]):
    """Sums batches, and other aggregators' totals, in the memory of one accumulator; cannot open anything."""

    _core: AddingCore

    def __init__(self, core: AddingCore, total_class: type[Total], parsed_class: type) -> None:
        self._core = core
        self._total_class = total_class
        self._parsed_class = parsed_class

    def add_total(self, total: Total | FrameSource) -> None:
        """Add the total of another aggregator, which stands for all clients that it names.

        Take totals from aggregators alone, over a channel that tells who is who: a client that could pass one
        off would count as many. Raises as ``add`` does, DuplicateFrameError if any of its batches is in the sum.
        """
        self._add(total, self._core.add_parsed_total, self._core.add_total_bytes)

    def _add(
        self,
        source: Ciphertext[Any] | FrameSource,
        add_parsed: Callable[[Any], None],
        add_bytes: Callable[[Buffer | mmap.mmap], None],
    ) -> None:
        if isinstance(source, Ciphertext):
            # What another scheme has read is bytes here, which the core then refuses by their kind.
            if source.is_parsed and isinstance(source.parsed, self._parsed_class):
                add_parsed(source.parsed)
            else:
                add_bytes(source.to_bytes())
        elif isinstance(source, os.PathLike):
            with mapped_frame(source) as frame:
                add_bytes(frame)
        else:
            add_bytes(frame_buffer(source))

    def total(self) -> Total:
        """Return the sum so far. Raises ParameterError before the first batch."""
        return self._total_class(self._core.total())

    @property
    def clients(self) -> int:
        """How many batches are in the sum."""
        return self._core.clients

    @property
    def round(self) -> int | None:
        """The round that is summed; None before the first batch unless it was given."""
        return self._core.round
