"""Processor time that processes and the machine have used, and a limit by it without the kernel's help."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["DutyCycleLimit", "MachineLoad", "processor_seconds"]

_TICK_SECONDS = 0.002
_BURST_SECONDS = 0.01


@dataclass
class _Account:
    cores: float
    used: float
    allowance: float = 0.0
    stopped: bool = False


class DutyCycleLimit:
    """Stops (SIGSTOP) whoever is ahead of its share of the processor and continues (SIGCONT) it when it is not.

    Processor time is what counts, so a process that waits is left alone, and one that others kept from running
    makes up for a moment of it.
    """

    description = "stopping and continuing processes"

    def __init__(self) -> None:
        self._accounts: dict[int, _Account] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="duty cycle", daemon=True)
        self._thread.start()

    def limit(self, pid: int, cores: float) -> None:
        """Let a process use so many cores from now on. Raises OSError where it has ended."""
        with self._lock:
            self._accounts[pid] = _Account(cores, processor_seconds(pid))

    def release(self, pid: int) -> None:
        """Forget a process; one that is stopped goes on."""
        with self._lock:
            account = self._accounts.pop(pid, None)
            if account is not None and account.stopped:
                _signal(pid, signal.SIGCONT)

    def close(self) -> None:
        """Release every process and end."""
        self._closed.set()
        self._thread.join()
        for pid in list(self._accounts):
            self.release(pid)

    def _run(self) -> None:
        before = time.monotonic()
        while not self._closed.wait(_TICK_SECONDS):
            now = time.monotonic()
            with self._lock:
                for pid, account in self._accounts.items():
                    _settle(pid, account, now - before)
            before = now


def _settle(pid: int, account: _Account, elapsed: float) -> None:
    try:
        used = processor_seconds(pid)
    except OSError:
        return  # It has ended; whoever waits for it releases it.
    earned = account.allowance + elapsed * account.cores - (used - account.used)
    account.allowance = min(earned, _BURST_SECONDS * account.cores)
    account.used = used
    if (account.allowance < 0.0) != account.stopped:
        account.stopped = not account.stopped
        _signal(pid, signal.SIGSTOP if account.stopped else signal.SIGCONT)


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


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
