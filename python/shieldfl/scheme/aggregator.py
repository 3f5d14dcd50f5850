"""The aggregator's side, whatever the scheme: from batches to a total."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import shieldfl._core as _core
from shieldfl.array_view import Buffer, frame_buffer, mapped_frame
from shieldfl.scheme.ciphertext import Ciphertext, SchemeTotal

__all__ = ["FrameSource", "SchemeAggregator"]

FrameSource = Buffer | mmap.mmap | os.PathLike[str]
"""Bytes of a frame, or the file that holds them."""

Core = TypeVar("Core", _core.CkksAggregator, _core.PaillierAggregator)
Total = TypeVar("Total", bound=SchemeTotal[Any])


class SchemeAggregator(Generic[Core, Total]):
    """Sums batches, and other aggregators' totals, in the memory of one accumulator; cannot open anything."""

    _core: Core

    def __init__(self, core: Core, total_class: type[Total], parsed_class: type) -> None:
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
