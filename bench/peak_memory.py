"""How far a process's memory peaks above what it had before, as the kernel counts it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")


def with_extra_peak_bytes(function: Callable[[], Result]) -> tuple[Result, int]:
    """Return what a function returns, and the peak of resident memory while it ran above that before.

    Raises PermissionError where the kernel does not let a process forget its earlier peak.
    """
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forgets the peak so far
    before = _status_bytes("VmRSS")
    result = function()
    return result, _status_bytes("VmHWM") - before


def _status_bytes(name: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return 1024 * int(line.split()[1])
    raise LookupError(name)
