"""Runs the same work on several threads at once."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable


def on_threads(number: int, work: Callable[[], None], switch_seconds: float | None = None) -> None:
    """Return when all have ended; in between Python may be told to switch from one to another more often."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(switch_seconds or interval)
    try:
        threads = [threading.Thread(target=work) for _ in range(number)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=120)
            assert not thread.is_alive()
    finally:
        sys.setswitchinterval(interval)
