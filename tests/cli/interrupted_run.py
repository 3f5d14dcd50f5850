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
import os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from shieldfl.cli.run_progress import RoundProgress
shown = RoundProgress.__call__
def tell(self, method, record):
    shown(self, method, record)
    os.write({descriptor}, b"finished\\n")
RoundProgress.__call__ = tell
if {at_start}:
    from shieldfl.simulation import driver
    load = driver.load_dataset
    def wait(*arguments):
        os.write({descriptor}, b"loading\\n")
        import time
        time.sleep(300)
    driver.load_dataset = wait
from shieldfl.cli.main import main
main()
"""


def stopped_run(
    arguments: Sequence[str], rounds: int, number: int = signal.SIGINT
) -> subprocess.CompletedProcess[str]:
    """Run with streams in pipes, and send the signal after so many finished rounds, of all methods together.

    With 0 rounds it comes while the data are loaded, before anything has begun.
    """
    reading, writing = os.pipe()
    code = _CODE.format(descriptor=writing, at_start=rounds == 0)
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        pass_fds=[writing],
    ) as process:
        os.close(writing)
        with os.fdopen(reading) as told:
            for _ in range(max(rounds, 1)):
                assert told.readline(), process.communicate()
            process.send_signal(number)
            out, err = process.communicate(timeout=120)
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)
