"""The command line in a process of its own that is stopped by a signal once so many rounds are finished."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence

__all__ = ["stopped_run"]

# A shell that starts tests in the background turns SIGINT off for them, and Python then leaves it off.
_CODE = """
import os, signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from shieldfl.simulation import driver
from shieldfl.cli.run_progress import RoundProgress
shown = RoundProgress.__call__
finished = 0
def tell(self, method, record):
    global finished
    shown(self, method, record)
    finished += 1
    if finished == {rounds}:
        os.write({descriptor}, b"now\\n")
        time.sleep({pause})
def wait(*arguments):
    os.write({descriptor}, b"now\\n")
    time.sleep(300)
RoundProgress.__call__ = tell
if {rounds} == 0:
    driver.load_dataset = wait
from shieldfl.cli.main import main
main()
"""


def stopped_run(
    arguments: Sequence[str], rounds: int, number: int = signal.SIGINT, *, pause: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run with streams in pipes, and send the signal after so many finished rounds, of all methods together.

    With 0 rounds it comes while the data are loaded, before anything has begun. ``pause`` has it come before the next
    round begins; else rounds go on until it comes.
    """
    reading, writing = os.pipe()
    code = _CODE.format(descriptor=writing, rounds=rounds, pause=300 if pause else 0)
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        pass_fds=[writing],
    ) as process:
        os.close(writing)
        with os.fdopen(reading) as told:
            assert told.readline(), process.communicate()
            process.send_signal(number)
            out, err = process.communicate(timeout=300)
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)
