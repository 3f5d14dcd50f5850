"""Run as a process by :mod:`warm_python`: imports what takes long, then forks for everything that it is told to run."""

from __future__ import annotations

import atexit
import gc
import json
import os
import socket
import sys
import threading
from importlib import import_module

for _name in (
    "torch",
    "sklearn.datasets",
    "sklearn.model_selection",
    "shieldfl.cli.app",
    "shieldfl.cli.audit",
    "shieldfl.cli.authority",
    "shieldfl.cli.bench",
    "shieldfl.cli.profile",
    "shieldfl.cli.run",
    "shieldfl.cli.run_session",
):
    import_module(_name)


def next_process(channel: socket.socket) -> tuple[dict, list[int]]:
    """Start a process for everything that is told; return in that process what it was, and its descriptors."""
    while True:
        told, descriptors, _, _ = socket.recv_fds(channel, 1 << 20, 16)
        if not told:
            os._exit(0)
        pid = os.fork()
        if pid == 0:
            channel.close()
            return json.loads(told), descriptors
        for descriptor in descriptors:
            os.close(descriptor)
        channel.send(f"started {pid}".encode())
        channel.send(f"ended {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}".encode())


def set_up(told: dict, descriptors: list[int]) -> None:
    """Give the process its streams, arguments, environment and folder, as an interpreter that starts has them."""
    # Out of the way first: some may have a number that another one is to have.
    high = [os.dup2(descriptor, 100 + place) for place, descriptor in enumerate(descriptors)]
    for descriptor in descriptors:
        os.close(descriptor)
    for number, descriptor in enumerate(high, 1):
        os.dup2(descriptor, number)
        os.close(descriptor)
    encoding = sys.stdout.encoding
    line_by_line = os.isatty(1)
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w", 1 if line_by_line else -1, encoding, closefd=False)
    sys.stderr = sys.__stderr__ = os.fdopen(2, "w", 1, encoding, "backslashreplace", closefd=False)
    os.environ.clear()
    os.environ.update(told["environment"])
    os.chdir(told["folder"])
    sys.argv[:] = ["-c", *told["arguments"]]
    sys.path[0] = ""  # as with -c, in place of the folder of this file


def run(code: str) -> int:
    """Run code as an interpreter's ``__main__``, and return the exit code that it asks for."""
    try:
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
    except SystemExit as asked:
        # A text is printed, with the code 1, by whoever catches it next: the interpreter.
        if isinstance(asked.code, str):
            raise
        return asked.code or 0
    return 0


def end(status: int) -> None:
    """End as an interpreter does, without a second of taking torch apart."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    gc.freeze()  # what was imported is never collected, so that it stays shared with what is started
    told, descriptors = next_process(socket.socket(fileno=int(sys.argv[1])))
    set_up(told, descriptors)
    end(run(told["code"]))
