from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import threading

import pytest

pytest.importorskip("torch")
pytest.importorskip("typer")

COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3\d|4\d|9\d)m")


def read_until_closed(descriptor: int, into: list[bytes]) -> None:
    while True:
        try:
            chunk = os.read(descriptor, 65536)
        except OSError:  # Linux's way to say that the other side of a terminal is closed
            return
        if not chunk:
            return
        into.append(chunk)


def run_on_terminal(stdout_is_terminal: bool, **environment: str) -> tuple[str, str]:
    """Run two tiny rounds with standard error, maybe also output, on a terminal; return (out, err)."""
    cleared = ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "COLUMNS")
    names = {key: value for key, value in os.environ.items() if key not in cleared}
    arguments = ["run", "--rounds", "2", "--clients", "3", "--local-epochs", "1", "--threads", "1"]
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
        threading.Thread(target=read_until_closed, args=pair) for pair in ((out_side, out), (error_side, err))
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


def test_progress_is_on_the_terminal_and_the_piped_table_is_clean() -> None:
    out, err = run_on_terminal(stdout_is_terminal=False)
    assert "\x1b" not in out
    assert "global model" in out
    assert "selective-shield" in err
    assert "2/2" in err
    assert re.search(r"\d\d\.\d\d %", err)
    assert re.search(r"enc \d+\.\d%", err)
    assert COLOUR.search(err)


def test_no_color_is_respected() -> None:
    out, err = run_on_terminal(stdout_is_terminal=True, NO_COLOR="1")
    assert "global model" in out
    assert "2/2" in err
    assert not COLOUR.search(out)
    assert not COLOUR.search(err)


def test_colours_on_a_terminal() -> None:
    out, _ = run_on_terminal(stdout_is_terminal=True)
    assert COLOUR.search(out)
