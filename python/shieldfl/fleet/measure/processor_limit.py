"""What keeps a client process to its share of this machine."""

from __future__ import annotations

from typing import Protocol

from shieldfl.fleet.measure.cpu_cgroup import CgroupLimit
from shieldfl.fleet.measure.duty_cycle import DutyCycleLimit

__all__ = ["ProcessorLimit", "open_limit"]


class ProcessorLimit(Protocol):
    """Limits processes that this one has started. ``release`` each after it was waited for, then ``close``."""

    @property
    def description(self) -> str:
        """What limits the clients, in a few words."""

    def limit(self, pid: int, cores: float) -> None:
        """Let a process use so many seconds of processor time in a second. Raises OSError."""

    def release(self, pid: int) -> None:
        """Take the limit away."""

    def close(self) -> None:
        """Leave nothing behind."""


def open_limit() -> ProcessorLimit:
    """Return the kernel's own limits where this process may set them, else ones that stop and continue."""
    return CgroupLimit.open() or DutyCycleLimit()
