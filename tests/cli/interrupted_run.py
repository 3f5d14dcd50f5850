"""The command line in a process of its own that is stopped by a signal once so many rounds are finished."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence

from small_pictures import ONE_PICTURE
from warm_python import Collected, WarmPython

__all__ = ["stopped_run"]

# A shell that starts tests in the background turns SIGINT off for them, and Python then leaves it off.
_CODE = """
import os, signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from contextlib import contextmanager
from shieldfl.cli import run_session
from shieldfl.lab.simulation import runner
shown = run_session.round_progress
finished = 0
@contextmanager
def watched(*arguments):
    def told(*round):
        global finished
        tell(*round)
        finished += 1
        if finished == {rounds}:
            os.write(3, b"now\\n")
            time.sleep({pause})
    with shown(*arguments) as tell:
        yield told
def wait(*arguments):
    os.write(3, b"now\\n")
    time.sleep(300)
run_session.round_progress = watched
if {rounds} == 0:
    runner.load_dataset = wait
from shieldfl.cli.main import main
main()
"""


def stopped_run(
    warm: WarmPython,
    arguments: Sequence[str],
    rounds: int,
    number: int = signal.SIGINT,
    *,
    pause: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run with streams in pipes, and send the signal after so many finished rounds, of all methods together.

    With 0 rounds it comes while the data are loaded, before anything has begun. ``pause`` has it come before the next
    round begins; else rounds go on until it comes.
    """
    reading, writing = os.pipe()
    code = (ONE_PICTURE if "--report" in arguments else "") + _CODE.format(
        rounds=rounds, pause=300 if pause else 0
    )
    with Collected() as out, Collected() as err:
        with warm.start(code, arguments, out=out.end, err=err.end, passed=[writing]) as process:
            os.close(writing)
            out.close_end()
            err.close_end()
            with os.fdopen(reading) as told:
                assert told.readline(), (process.wait(), out.read(), err.read())
            os.kill(process.pid, number)
            status = process.wait()
        return subprocess.CompletedProcess(arguments, status, out.read().decode(), err.read().decode())
