"""The command line in a process of its own, with streams that are a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading
from collections.abc import Sequence


def run_on_terminal(
    arguments: Sequence[str], *, stdout_is_terminal: bool = False, **environment: str
) -> tuple[str, str]:
    """Run with standard error, maybe also output, on a terminal; return (out, err)."""
    cleared = ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "COLUMNS")
    names = {key: value for key, value in os.environ.items() if key not in cleared}
    error_side, error_terminal = pty.openpty()
    out_side, out_end = pty.openpty() if stdout_is_terminal else os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", "from shieldfl.cli.main import main; main()", *arguments],
        stdout=out_end,
        stderr=error_terminal,
        env=names | {"TERM": "xterm-256color"} | environment,
    )
    os.close(error_terminal)
    os.close(out_end)
    out: list[bytes] = []
    err: list[bytes] = []
    readers = [
        threading.Thread(target=_read_until_closed, args=pair)
        for pair in ((out_side, out), (error_side, err))
    ]
    for reader in readers:
        reader.start()
    code = process.wait(timeout=300)
    for reader in readers:
        reader.join()
    os.close(out_side)
    os.close(error_side)
    texts = b"".join(out).decode(), b"".join(err).decode()
    assert code == 0, texts
    return texts


def _read_until_closed(descriptor: int, into: list[bytes]) -> None:
    while True:
        try:
            chunk = os.read(descriptor, 65536)
        except OSError:  # Linux's way to say that the other side of a terminal is closed
            return
        if not chunk:
            return
        into.append(chunk)
