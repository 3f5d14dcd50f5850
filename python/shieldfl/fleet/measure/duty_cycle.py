"""Processor limits without the kernel's help: processes are stopped when they have used up their time."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass

from shieldfl.fleet.measure.machine_load import processor_seconds

__all__ = ["DutyCycleLimit"]

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
