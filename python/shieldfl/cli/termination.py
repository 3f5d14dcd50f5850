"""Ctrl-C and SIGTERM as an end that lets a command keep what it has, and says so in one line."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Terminated", "interruptible"]

_NOTHING_KEPT = "interrupted: nothing was written"


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a command as Ctrl-C does."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise in the main thread when the process is told to end; what comes out becomes a line and an exit code.

    The line, on standard error, is the text of the KeyboardInterrupt, for those who have kept something; the exit code
    is 130, and 143 for SIGTERM.
    """
    in_main = threading.current_thread() is threading.main_thread()  # no other one may set handlers
    previous = signal.signal(signal.SIGTERM, _terminate) if in_main else None
    try:
        yield
    except KeyboardInterrupt as error:
        print(f"shieldfl: {str(error) or _NOTHING_KEPT}", file=sys.stderr)
        number = signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT
        raise SystemExit(128 + number) from None
    finally:
        if in_main:
            signal.signal(signal.SIGTERM, previous)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated
