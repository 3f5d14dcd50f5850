"""A client's update as it travels: encrypted at some positions, as plain numbers elsewhere, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shieldfl.errors import PolicyError, RangeError
from shieldfl.masks import Mask
from shieldfl.roles.message import Message, Part
from shieldfl.scheme.interface import Positions
from shieldfl.scheme.registry import scheme_of
from shieldfl.selection import positions_in_budget

__all__ = [
    "MixedUpload",
    "encrypted_positions",
    "in_buffer_range",
    "read_agreed_positions",
    "settled_positions",
    "with_buffers_times",
]


def with_buffers_times(values: NDArray[Any], buffers: int, factor: float) -> NDArray[Any]:
    """Return values (n,) whose last ``buffers`` are multiplied by a power of two; themselves where that is nothing."""
    if not buffers or factor == 1.0:
        return values
    scaled = values.copy()
    scaled[-buffers:] *= factor
    return scaled


@contextmanager
def in_buffer_range(values: NDArray[Any], buffers: int, factor: float) -> Iterator[NDArray[Any]]:
    """Yield what is encrypted of values (n,), the last of which are buffers; a RangeError for a buffer says so."""
    try:
        yield with_buffers_times(values, buffers, factor)
    except RangeError as error:
        position, size = error.position, error.size
        if (
            position is None
            or size is None
            or position < size - buffers
            or not np.isfinite(values[position - size])
        ):
            raise
        told = RangeError(
            f"the value at position {position} is a buffer, such as BatchNorm's statistics, and beyond the limit of "
            "buffers. It follows the data whatever the learning rate: scale the features to about 1, or raise the "
            "method's setting buffer_range_bits, each bit of which doubles that limit"
        )
        told.position, told.size = position, size
        raise told from None


class MixedUpload:
    """Makes the parts ``ciphertexts``, ``values`` and ``weight`` that a ``MixedSum`` adds.

    Parameters
    ----------
    key : the public key, or the client's own, where clients enrol.
    weight, most_weight : what this client counts, and the largest that any counts.
    sends_rest : whether values that are not encrypted are sent in the clear, or not at all.
    threads : for the core; None for as many as the work is worth.
    """

    def __init__(
        self,
        key: Any,
        weight: int,
        most_weight: int,
        threads: int | None,
        *,
        sends_rest: bool = True,
    ) -> None:
        self.key = key
        self._scheme = scheme_of(key)
        self.encryptor = self._scheme.encryptor(key, threads, "update")
        self.encryptor.speaks_of_settings = True
        self._threads = threads
        self._weight = weight
        self._encrypted_weight = None if most_weight == 1 else weight / most_weight
        self._sends_rest = sends_rest
        self._positions_of_zone: tuple[Mask, Positions] | None = None

    def read_union(self, message: Message, size: int) -> Positions:
        """Read what ``MixedSum.union_parts`` wrote. Raises WireFormatError."""
        return self._scheme.read_positions(message[self._scheme.positions_part], size)

    def union_of(self, zone: Mask) -> Positions:
        """Return the union of masks that all equal this zone. It is kept until another zone is given."""
        if self._positions_of_zone is None or self._positions_of_zone[0] != zone:
            self._positions_of_zone = zone, self._scheme.positions_of([zone], self._threads)
        return self._positions_of_zone[1]

    def encrypt(
        self,
        update: NDArray[np.float32] | NDArray[np.float64],
        own: Mask,
        union: Positions,
        round_number: int,
    ) -> tuple[bytes, Mask]:
        """Encrypt an update (N,) and say which positions that covered: the client's ``own``, or the whole union.

        Raises PolicyError or ParameterError for a union that leaves out some of its own, RangeError.
        """
        return self._scheme.encrypt(self.encryptor, update, own, union, self._encrypted_weight, round_number)

    def parts(
        self, update: NDArray[np.float32] | NDArray[np.float64], ciphertexts: bytes, encrypted: Mask
    ) -> dict[str, bytes]:
        """Return the message parts of an update whose ``encrypted`` positions are in the ciphertexts."""
        parts = {"weight": np.uint64(self._weight).tobytes(), "ciphertexts": ciphertexts}
        if self._sends_rest:
            rest = b"" if encrypted.count == encrypted.size else (~encrypted).gather(update).tobytes()
            parts["values"] = rest
        return parts


def encrypted_positions(zone: Mask, buffers: int) -> Mask:
    """Return the zone of P parameters, followed by ``buffers`` positions that are all encrypted."""
    return zone.resized(zone.size + buffers, chosen=True)


def settled_positions(share: float, parameters: int, buffers: int) -> Mask | None:
    """Return what a share in [0, 1] of the parameters encrypts where that needs no agreement: none or all of them.

    None where it has to be agreed on which.
    """
    count = positions_in_budget(share, parameters)
    if 0 < count < parameters:
        return None
    return encrypted_positions(Mask.full(parameters) if count else Mask.empty(parameters), buffers)


def read_agreed_positions(
    frame: Part, parameters: int, buffers: int, count: int, *, or_more: bool = False
) -> Mask:
    """Read the positions that other roles say were agreed on, before anything outside of them is sent in the clear.

    Raises WireFormatError for what is no mask of parameters and buffers, PolicyError unless it covers all buffers and
    ``count`` parameters (``or_more``: at least so many).
    """
    zone = Mask.from_bytes(frame, expected_size=parameters + buffers)
    chosen = zone.resized(parameters).count
    if zone.count - chosen < buffers or chosen < count or (chosen > count and not or_more):
        raise PolicyError(
            f"the positions to encrypt are not the {count:,} parameters and all buffers that were agreed on: "
            "nothing was sent"
        )
    return zone
