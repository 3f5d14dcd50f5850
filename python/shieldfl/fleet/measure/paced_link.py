"""Messages over a TCP connection, at the rate and with the latency of a client's link."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from shieldfl.errors import ParameterError, WireFormatError
from shieldfl.roles.message import Message

__all__ = ["Connection", "Letter", "Link", "TokenBucket"]

_LENGTH = struct.Struct("<Q")
_MOST_BYTES = 2**34
_KIND, _FACTS = "kind", "facts"
# Small against every stage, large enough that pacing takes next to no processor time.
_CHUNK_SECONDS = 0.005
_LEAST_CHUNK_BYTES = 1024
_MOST_CHUNK_BYTES = 2**18
# Longer than a processor limit keeps a sender away at a time.
_BURST_SECONDS = 0.25


@dataclass(frozen=True)
class Link:
    """One direction of a client's link."""

    bytes_per_second: float
    latency_seconds: float


@dataclass(frozen=True)
class Letter:
    """A message that arrived."""

    kind: str
    facts: dict[str, Any]
    parts: dict[str, bytes]
    at: float
    """When its last byte was there, on the clock that all processes of a machine share."""


class Connection:
    """Sends and receives letters. One thread may send while another one receives."""

    def __init__(
        self,
        stream: socket.socket,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = stream
        self._clock = clock
        self._sleep = sleep

    def send(
        self,
        kind: str,
        facts: Mapping[str, Any] | None = None,
        parts: Mapping[str, bytes] | None = None,
        link: Link | None = None,
    ) -> None:
        """Send one letter; over ``link``, or as fast as the machine can. Raises OSError for a lost connection."""
        message = Message(
            {_KIND: kind.encode(), _FACTS: json.dumps(dict(facts or {})).encode(), **(parts or {})}
        )
        encoded = message.to_bytes()
        if link is None:
            self._stream.sendall(_LENGTH.pack(len(encoded)) + encoded)
            return
        self._sleep(link.latency_seconds)
        self._stream.sendall(_LENGTH.pack(len(encoded)))
        rate = link.bytes_per_second
        bucket = TokenBucket(rate, max(1.0, rate * _BURST_SECONDS), self._clock, self._sleep)
        chunk = int(min(max(rate * _CHUNK_SECONDS, _LEAST_CHUNK_BYTES), _MOST_CHUNK_BYTES))
        view = memoryview(encoded)
        for start in range(0, len(view), chunk):
            piece = view[start : start + chunk]
            bucket.take(len(piece))
            self._stream.sendall(piece)

    def receive(self, most_bytes: int = _MOST_BYTES) -> Letter:
        """Wait for the next letter, of at most so many bytes.

        Raises ConnectionError where the other side has gone, OSError, WireFormatError for what is no letter.
        """
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size))
        if length > most_bytes:
            raise WireFormatError(f"a letter of {length:,} bytes was announced: this is no client of a fleet")
        encoded = self._read(length)
        at = self._clock()
        parts = {name: bytes(part) for name, part in Message.from_bytes(encoded).items()}
        try:
            kind, facts = parts.pop(_KIND).decode(), json.loads(parts.pop(_FACTS))
        except (KeyError, ValueError) as error:
            raise WireFormatError("a letter lacks its kind or its facts") from error
        return Letter(kind, facts, parts, at)

    def close(self) -> None:
        """End the connection; a thread that waits for a letter is told so."""
        with suppress(OSError):  # The other side may have been faster.
            self._stream.shutdown(socket.SHUT_RDWR)
        self._stream.close()

    def _read(self, count: int) -> bytes:
        buffer = bytearray(count)
        view = memoryview(buffer)
        while view:
            received = self._stream.recv_into(view)
            if not received:
                raise ConnectionResetError("the other side closed the connection")
            view = view[received:]
        return bytes(buffer)


# Of a token: without it the last wait could be too short for the clock to show it.
_ROUNDING = 1e-6


class TokenBucket:
    """Hands out tokens at a rate. Starts empty, so n tokens take n / rate from the start on.

    Whoever is held up finds the tokens of the meantime, up to ``burst`` of them: a sender whose processor was away
    for a moment keeps its mean rate. For one thread.

    Parameters
    ----------
    tokens_per_second, burst : finite and above 0; ParameterError otherwise.
    clock, sleep : seconds that rise, and waiting for some; tests pass their own.
    """

    def __init__(
        self,
        tokens_per_second: float,
        burst: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not (0.0 < tokens_per_second < float("inf") and 0.0 < burst < float("inf")):
            raise ParameterError("the rate and the burst of a token bucket must be finite and above zero")
        self._rate = tokens_per_second
        self._burst = burst
        self._clock = clock
        self._sleep = sleep
        self._tokens = 0.0
        self._filled_at = clock()

    def take(self, count: float) -> None:
        """Wait until ``count`` tokens are there, and take them. More than ``burst`` at once are no error."""
        self._fill()
        self._tokens -= count
        while self._tokens < -_ROUNDING:
            self._sleep(-self._tokens / self._rate)
            self._fill()

    def _fill(self) -> None:
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
