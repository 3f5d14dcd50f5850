"""New processes that begin with torch and the command line imported: forks of one that has imported them once.

A fresh interpreter takes seconds for that, in every test. What is started here is a process like any other, with
streams, signals and an exit code of its own. It ends without taking the interpreter apart, and everything is imported
already: a test of either must not use it.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

__all__ = ["WarmProcess", "WarmPython", "warm_python"]

_TIMEOUT_SECONDS = 300.0
_SERVER = Path(__file__).with_name("warm_python_server.py")
COMMAND_LINE = "from shieldfl.cli.main import main; main()"


class WarmProcess:
    """A process that was started. It is waited for, or killed, at the end of ``with``: the next one starts then."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self.pid = self._told("started")
        self._status: int | None = None

    def __enter__(self) -> WarmProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()

    def wait(self) -> int:
        """Return the exit code, negative for the signal that ended it. Raises TimeoutError after five minutes."""
        if self._status is None:
            self._status = self._told("ended")
        return self._status

    def _told(self, what: str) -> int:
        told, _, number = self._channel.recv(64).decode().partition(" ")
        if told != what:
            raise RuntimeError(f"the server of processes said {told!r}, not {what!r}")
        return int(number)


class WarmPython:
    """The process that imports once, and starts one other at a time."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._server = subprocess.Popen(
            [sys.executable, str(_SERVER), str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        self._channel.settimeout(_TIMEOUT_SECONDS)

    def start(
        self,
        code: str,
        arguments: Sequence[str],
        *,
        out: int,
        err: int,
        passed: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
        folder: str | os.PathLike[str] = ".",
    ) -> WarmProcess:
        """Run code as ``__main__``, its streams being descriptors of this process.

        Those in ``passed`` have numbers of their own there: 3 and what follows.
        """
        told = {
            "code": code,
            "arguments": list(arguments),
            "environment": dict(os.environ if environment is None else environment),
            "folder": os.fspath(Path(folder).resolve()),
        }
        socket.send_fds(self._channel, [json.dumps(told).encode()], [out, err, *passed])
        return WarmProcess(self._channel)

    def run(
        self,
        code: str,
        arguments: Sequence[str] = (),
        *,
        environment: Mapping[str, str] | None = None,
        folder: str | os.PathLike[str] = ".",
    ) -> subprocess.CompletedProcess[bytes]:
        """Run code as ``__main__`` with its output in pipes, to its end."""
        with Collected() as out, Collected() as err:
            with self.start(
                code, arguments, out=out.end, err=err.end, environment=environment, folder=folder
            ) as process:
                out.close_end()
                err.close_end()
                status = process.wait()
            return subprocess.CompletedProcess(list(arguments), status, out.read(), err.read())

    def end(self) -> None:
        """End the process that starts others."""
        self._channel.close()
        try:
            self._server.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()
            raise


class Collected:
    """What is written to one end of a pipe or, from outside, of a terminal."""

    def __init__(self, pair: tuple[int, int] | None = None) -> None:
        self._side, self.end = pair or os.pipe()
        self._end_is_open = True
        self._chunks: list[bytes] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Collected:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_end()
        self._reader.join()
        os.close(self._side)

    def close_end(self) -> None:
        """Close this process's own copy of the end, so that reading ends with the last of the others'."""
        if self._end_is_open:
            self._end_is_open = False
            os.close(self.end)

    def read(self) -> bytes:
        """Return all of it once nobody has the end any more."""
        self._reader.join()
        return b"".join(self._chunks)

    def _read(self) -> None:
        # OSError is Linux's way to say that the other side of a terminal is closed.
        with contextlib.suppress(OSError):
            while chunk := os.read(self._side, io.DEFAULT_BUFFER_SIZE):
                self._chunks.append(chunk)


@contextlib.contextmanager
def warm_python() -> Iterator[WarmPython]:
    """Start one, and end it."""
    warm = WarmPython()
    try:
        yield warm
    finally:
        warm.end()
