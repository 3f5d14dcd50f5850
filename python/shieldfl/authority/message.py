"""Messages between roles: named byte strings, and nothing else."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from shieldfl.array_view import Buffer, as_frame, as_unsigned
from shieldfl.errors import ParameterError, WireFormatError

__all__ = ["Message", "Part", "piece_of_each", "pieces_of_length"]

Part = bytes | memoryview
"""One named byte string; in a message that was read, it is a read-only view of the message's bytes."""

_MAGIC = b"SHMS"
_COUNT = struct.Struct("<4sH")
_LENGTHS = struct.Struct("<BQ")
_MOST_PARTS = 2**16 - 1
_LONGEST_NAME = 2**8 - 1
_NUMBER_BYTES = 8


class Message(dict[str, Part]):
    """Named byte strings. The driver counts their bytes, so what is not in a message was not sent.

    Parts are frames, vectors in little-endian order, or short numbers; their bytes never change. Raises
    ParameterError for too many parts, for a name that is too long or no text, and for a part that is not
    bytes.
    """

    def __init__(self, parts: Mapping[str, Part] = MappingProxyType({})) -> None:
        super().__init__(parts)
        if len(self) > _MOST_PARTS:
            raise ParameterError(f"a message has at most {_MOST_PARTS:,} parts")
        for name, part in self.items():
            try:
                fits = len(name.encode()) <= _LONGEST_NAME
            except (AttributeError, UnicodeEncodeError):
                fits = False
            if not fits:
                raise ParameterError(
                    f"the name of a message's part must be text of at most {_LONGEST_NAME} bytes in UTF-8"
                )
            if isinstance(part, bytes):
                continue
            if not isinstance(part, memoryview) or not (part.contiguous and part.ndim == part.itemsize == 1):
                raise ParameterError(
                    "a message's part is bytes, or a view of flat contiguous bytes, not "
                    f"{type(part).__name__}: pass bytes(...), or memoryview(...).cast('B')"
                )

    def __missing__(self, name: str) -> NoReturn:
        raise WireFormatError(f"the message has no part {name!r}: it was made for another step")

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}: {len(part):,} bytes" for name, part in self.items())
        return f"Message({sizes})"

    @property
    def nbytes(self) -> int:
        """Length of :meth:`to_bytes` in bytes, computed without encoding."""
        names = "".join(self).encode()
        return _COUNT.size + _LENGTHS.size * len(self) + len(names) + sum(map(len, self.values()))

    def to_bytes(self) -> bytes:
        """Encode magic and number of parts, then of each part: length of name, length, name, bytes."""
        pieces: list[Part] = [_COUNT.pack(_MAGIC, len(self))]
        for name, part in self.items():
            encoded = name.encode()
            pieces += [_LENGTHS.pack(len(encoded), len(part)), encoded, part]
        return b"".join(pieces)

    @classmethod
    def from_bytes(cls, data: Buffer) -> Message:
        """Read bytes of :meth:`to_bytes`; parts are views of ``data``, or of a copy if ``data`` may change.

        Raises WireFormatError.
        """
        view = memoryview(as_frame(data))
        try:
            magic, count = _COUNT.unpack_from(view)
            if magic != _MAGIC:
                raise WireFormatError("these bytes are no shieldfl message: the magic bytes are missing")
            offset = _COUNT.size
            parts: dict[str, Part] = {}
            for _ in range(count):
                name_length, part_length = _LENGTHS.unpack_from(view, offset)
                offset += _LENGTHS.size
                end = offset + name_length + part_length
                if end > len(view):
                    raise WireFormatError("the message ends before its parts do: it is truncated")
                name = bytes(view[offset : offset + name_length]).decode()
                if name in parts:
                    raise WireFormatError("the message has a part twice: it was altered")
                parts[name] = view[offset + name_length : end]
                offset = end
        except (struct.error, UnicodeDecodeError) as error:
            raise WireFormatError("the message is truncated or damaged") from error
        if offset != len(view):
            raise WireFormatError("the message has bytes after its last part: it was altered")
        return cls(parts)

    def vector(self, name: str, dtype: type[np.generic], size: int) -> NDArray[Any]:
        """Read a part as a vector of ``size`` numbers. Raises WireFormatError for another length."""
        part = self[name]
        expected = size * np.dtype(dtype).itemsize
        if len(part) != expected:
            raise WireFormatError(f"part {name!r} has {len(part)} bytes, expected {expected}")
        kind = np.dtype(dtype).newbyteorder("<")
        vector = np.frombuffer(part, kind)
        if not vector.flags.aligned:
            # Unaligned numbers are slow to compute with: they are moved once, for all readers.
            part = self[name] = bytes(part)
            vector = np.frombuffer(part, kind)
        return vector

    def number(self, name: str) -> int:
        """Read a part as one unsigned 64-bit number. Raises WireFormatError."""
        part = self[name]
        if len(part) != _NUMBER_BYTES:
            raise WireFormatError(f"part {name!r} has {len(part)} bytes, expected {_NUMBER_BYTES}")
        return int.from_bytes(part, "little")

    @staticmethod
    def from_number(value: int) -> bytes:
        """Encode one unsigned 64-bit number as a part. Raises ParameterError for any other value."""
        return as_unsigned(value, "a message's number").to_bytes(_NUMBER_BYTES, "little")


def piece_of_each(joined: Part, authorities: int) -> list[Part]:
    """Split a part into one piece for each authority, all of one length.

    Raises WireFormatError for a part of a length that does not divide.
    """
    length, rest = divmod(len(joined), authorities)
    if rest:
        raise WireFormatError(
            f"the part does not divide into a piece of each of {authorities} key authorities"
        )
    return [joined[number * length : (number + 1) * length] for number in range(authorities)]


def pieces_of_length(joined: Part, length: int) -> list[Part]:
    """Split a part into pieces of a length; the last may be shorter, and an empty part is one piece."""
    return [joined[start : start + length] for start in range(0, len(joined), length)] or [joined]
