"""How busy a machine is, and how much of that is a certain process."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

__all__ = ["MachineLoad", "processor_seconds"]

_IDLE = (3, 4)
"""Columns of time in which a core had nothing to do: idle, and waiting for a disk."""
_COUNTED = 8
"""Columns user, nice, system, idle, iowait, irq, softirq and steal; guests are in user already."""

# The kernel's numbering of a process's own clocks, which clock_getcpuclockid(3) computes: of all its threads.
_PROCESS_CLOCK = 2


def processor_seconds(pid: int) -> float:
    """Return the processor time that a process has used, of all its threads. Raises OSError where it has ended."""
    return time.clock_gettime((~pid << 3) | _PROCESS_CLOCK)


@dataclass(frozen=True)
class MachineLoad:
    """Seconds since the machine was started, of all cores together (/proc/stat)."""

    busy: float
    """Also of other virtual machines on the same cores (steal)."""
    whole: float

    @classmethod
    def now(cls, stat: Path = Path("/proc/stat")) -> MachineLoad:
        """Read the counters. Raises OSError."""
        ticks = [float(word) for word in stat.read_text(encoding="ascii").split("\n", 1)[0].split()[1:]]
        whole = sum(ticks[:_COUNTED])
        idle = sum(ticks[column] for column in _IDLE)
        rate = os.sysconf("SC_CLK_TCK")
        return cls((whole - idle) / rate, whole / rate)

    def share_of_others(self, before: MachineLoad, own_seconds: float) -> float:
        """Return the share of the machine's cores that others used since ``before``, in [0, 1]."""
        whole = self.whole - before.whole
        if whole <= 0.0:
            return 0.0
        return min(1.0, max(0.0, (self.busy - before.busy - own_seconds) / whole))
