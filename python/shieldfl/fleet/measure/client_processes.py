"""The processes of a measured fleet: started, limited, listened to, and gone in the end whatever happens."""

from __future__ import annotations

import json
import os
import queue
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from shieldfl.errors import DataError, WireFormatError
from shieldfl.fleet.measure.paced_link import Connection, Letter, Link
from shieldfl.fleet.measure.processor_quota import ProcessorLimit, ProcessorQuota, open_limit

__all__ = ["ClientLetter", "ClientProcesses", "ClientTask"]

_START_SECONDS = 300.0
_POLL_SECONDS = 0.2
_WORD_SECONDS = 10.0
"""For whoever connects to say the word; a client does at once."""
_MOST_GREETING_BYTES = 4096
_WORD_BYTES = 16
_LAST_WORDS = 300
# Libraries that start threads of their own look here.
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class ClientTask:
    """What a client process is, whatever the method, in plain JSON types."""

    index: int
    scheme: str
    """One of :func:`shieldfl.scheme.registry.encryptions`, for the probe."""
    threads: int
    samples: int
    local_epochs: int
    upload_bytes_per_second: float
    latency_seconds: float
    seed: int
    train_core_seconds: float | None = None
    """Of a round; None where a model is trained."""
    model: str | None = None
    sample_shape: tuple[int, ...] = ()


@dataclass(frozen=True)
class ClientLetter:
    """What a client sent, or that it is gone."""

    client: int
    letter: Letter | None
    """None: the connection was lost."""
    at: float


class ClientProcesses:
    """One process for each client. A context manager: on leaving, every process has ended and was waited for.

    Parameters
    ----------
    names, tasks, quotas : of each client.
    public_key : what they encrypt under when the machine's load is probed, as a frame.

    Entering raises DataError for a client that does not get as far as to be ready, OSError.
    """

    def __init__(
        self,
        names: Sequence[str],
        tasks: Sequence[ClientTask],
        quotas: Sequence[ProcessorQuota],
        public_key: bytes,
    ) -> None:
        self._names = names
        self._tasks = tasks
        self._quotas = quotas
        self._public_key = public_key
        self._processes: list[subprocess.Popen[str]] = []
        self._connections: dict[int, Connection] = {}
        self._helpers: list[threading.Thread] = []
        """Readers of what clients say, and senders over their links."""
        self._letters: queue.SimpleQueue[ClientLetter] = queue.SimpleQueue()
        self._limit: ProcessorLimit | None = None
        self._errors = tempfile.TemporaryFile(mode="w+", encoding="utf-8")  # noqa: SIM115 - closed in close()

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def limit_description(self) -> str:
        """What limits the processes."""
        return self._limit.description if self._limit else "nothing"

    @property
    def pids(self) -> tuple[int, ...]:
        """Of each client."""
        return tuple(process.pid for process in self._processes)

    @property
    def alive(self) -> list[int]:
        """Clients whose connection was not lost."""
        return sorted(self._connections)

    def send(self, client: int, kind: str, facts: Mapping[str, Any] | None = None, **how: Any) -> None:
        """Send a letter as :meth:`Connection.send`; a client that is gone says so by way of the letters."""
        connection = self._connections.get(client)
        if connection is not None:
            with suppress(OSError):
                connection.send(kind, facts, **how)

    def post(
        self, client: int, kind: str, facts: Mapping[str, Any], parts: Mapping[str, bytes], link: Link
    ) -> None:
        """Send a letter over a link that takes its time, and do not wait for it."""
        how = {"parts": parts, "link": link}
        self._start_helper(self.send, client, kind, facts, **how)

    def next_letter(self, until: float) -> ClientLetter | None:
        """Wait for the next letter of any client, until a moment of the monotonic clock; None where there is none."""
        try:
            found = self._letters.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            return None
        if found.letter is None:
            self.end(found.client)
        return found

    def end(self, client: int) -> None:
        """End a client's process, if there is one, and wait for it."""
        connection = self._connections.pop(client, None)
        if connection is not None:
            connection.close()
        process = self._processes[client]
        process.kill()
        process.wait()
        if self._limit is not None:
            self._limit.release(process.pid)

    def close(self) -> None:
        """End everything, also where ending one thing fails."""
        with ExitStack() as stack:
            stack.callback(self._errors.close)
            if self._limit is not None:
                stack.callback(self._limit.close)
            # Whoever talks to a client that was ended finds its connection closed.
            for helper in self._helpers:
                stack.callback(helper.join)
            for client in range(len(self._processes)):
                stack.callback(self.end, client)

    def _start(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            word = secrets.token_hex(_WORD_BYTES)
            for client, quota in enumerate(self._quotas):
                self._processes.append(self._start_process(client, quota, server.getsockname()[1], word))
            server.settimeout(_POLL_SECONDS)
            until = time.monotonic() + _START_SECONDS
            while len(self._connections) < len(self._processes):
                self._check_start(until)
                self._accept(server, word)
        for client, task in enumerate(self._tasks):
            self._connections[client].send("start", asdict(task), {"public_key": self._public_key})
            self._start_helper(self._read, client)
        waiting = set(self._connections)
        while waiting:
            found = self.next_letter(time.monotonic() + _POLL_SECONDS)
            if found is not None and found.letter is not None:
                waiting.discard(found.client)
            self._check_start(until)
        # Only now: starting up is no part of a round.
        self._limit = open_limit()
        for process, quota in zip(self._processes, self._quotas, strict=True):
            self._limit.limit(process.pid, quota.cores)

    def _start_process(
        self, client: int, quota: ProcessorQuota, port: int, word: str
    ) -> subprocess.Popen[str]:
        threads = dict.fromkeys(_THREAD_VARIABLES, str(quota.threads))
        process = subprocess.Popen(
            # Where this process runs without site packages' hooks, an installed package must not be found there.
            [
                sys.executable,
                *(["-S"] if sys.flags.no_site else []),
                "-m",
                "shieldfl.fleet.measure.measured_client",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            env={**os.environ, **threads, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            cwd=Path(__file__).parents[3],
            text=True,
        )
        assert process.stdin is not None
        # The word is not an argument, which other users of the machine could read.
        with suppress(BrokenPipeError), process.stdin:
            process.stdin.write(json.dumps({"port": port, "client": client, "word": word}) + "\n")
        return process

    def _start_helper(self, target: Callable[..., None], *arguments: Any, **named: Any) -> None:
        self._helpers = [helper for helper in self._helpers if helper.is_alive()]
        self._helpers.append(threading.Thread(target=target, args=arguments, kwargs=named, daemon=True))
        self._helpers[-1].start()

    def _accept(self, server: socket.socket, word: str) -> None:
        try:
            stream, _ = server.accept()
        except TimeoutError:
            return
        stream.settimeout(_WORD_SECONDS)
        connection = Connection(stream)
        facts: dict[str, Any] = {}
        with suppress(OSError, WireFormatError):
            facts = connection.receive(_MOST_GREETING_BYTES).facts
        # Anybody on this machine can connect; only the clients know the word.
        if not secrets.compare_digest(str(facts.get("word", "")), word):
            connection.close()
            return
        stream.settimeout(None)
        self._connections[int(facts["client"])] = connection

    def _check_start(self, until: float) -> None:
        for name, process in zip(self._names, self._processes, strict=True):
            if process.poll() is not None:
                raise DataError(
                    f"the process of client {name!r} ended while it started: {self._last_words()}"
                )
        if time.monotonic() > until:
            raise DataError(f"the clients were not ready after {_START_SECONDS:g} s: start fewer of them")

    def _last_words(self) -> str:
        # Without moving the place in the file, at which other clients' processes go on writing.
        file = self._errors.fileno()
        said = os.pread(file, os.fstat(file).st_size, 0).decode(errors="replace")
        lines = said.strip().splitlines()
        return lines[-1][-_LAST_WORDS:] if lines else "it said nothing"

    def _read(self, client: int) -> None:
        connection = self._connections[client]
        while True:
            try:
                letter = connection.receive()
            except (OSError, WireFormatError):
                self._letters.put(ClientLetter(client, None, time.monotonic()))
                return
            self._letters.put(ClientLetter(client, letter, letter.at))
