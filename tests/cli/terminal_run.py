"""The command line in a process of its own, with streams that are a terminal."""

from __future__ import annotations

import os
import pty
from collections.abc import Sequence

from warm_python import COMMAND_LINE, Collected, WarmPython


def run_on_terminal(
    arguments: Sequence[str],
    *,
    warm: WarmPython,
    stdout_is_terminal: bool = False,
    **environment: str,
) -> tuple[str, str]:
    """Run with standard error, maybe also output, on a terminal; return (out, err)."""
    cleared = ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "COLUMNS")
    names = {key: value for key, value in os.environ.items() if key not in cleared}
    names |= {"TERM": "xterm-256color"} | environment
    with (
        Collected(pty.openpty()) as err,
        Collected(pty.openpty() if stdout_is_terminal else os.pipe()) as out,
    ):
        with warm.start(COMMAND_LINE, arguments, out=out.end, err=err.end, environment=names) as process:
            out.close_end()
            err.close_end()
            code = process.wait()
        texts = out.read().decode(), err.read().decode()
    assert code == 0, texts
    return texts
