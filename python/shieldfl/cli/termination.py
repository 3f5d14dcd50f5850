"""SIGTERM as an exit that lets a command clean up behind itself."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["exit_on_sigterm"]


@contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Raise SystemExit in the main thread when the process is told to end, as Ctrl-C raises KeyboardInterrupt."""
    previous = signal.signal(signal.SIGTERM, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)
