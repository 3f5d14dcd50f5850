"""How a command ends early: by an error, Ctrl-C or SIGTERM, as a line on standard error and an exit code."""

from __future__ import annotations

import errno
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from shieldfl.build_info import extra_of, how_to_install
from shieldfl.errors import ShieldError

# Of a write, whose error does not name the file.
_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


@contextmanager
def failures_on_stderr() -> Iterator[None]:
    """Turn shieldfl's errors, those of files and a missing package into a line and exit code 1.

    Anything else is a defect of the program and keeps its traceback.
    """
    try:
        yield
    except ShieldError as error:
        _fail(str(error))
    except BrokenPipeError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        if error.filename:
            _fail(f"{error.filename}: {reason}")
        _fail(f"the output cannot be written: {reason}" if error.errno in _UNWRITABLE else reason)
    except ModuleNotFoundError as error:
        message = missing_extra_message(error)
        if message is None:
            raise
        _fail(message)


def missing_extra_message(error: ModuleNotFoundError) -> str | None:
    """Say which package to install, or None where the missing module is not one of the extras'."""
    package = (error.name or "").partition(".")[0]
    part = extra_of(package)
    return None if part is None else f"this needs the Python package {package!r}: {how_to_install(part)}"


def _fail(message: str) -> None:
    print(f"shieldfl: {' '.join(message.split())}", file=sys.stderr)
    raise SystemExit(1) from None


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt at SIGTERM, too; what comes out becomes a line and an exit code.

    The line, on standard error, is the text of the KeyboardInterrupt, for those who have kept something; the
    exit code is 130, and 143 for SIGTERM.
    """
    in_main = threading.current_thread() is threading.main_thread()  # no other one may set handlers
    told = signal.SIGINT

    def terminate(number: int, frame: FrameType | None) -> None:
        nonlocal told
        told = signal.SIGTERM
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, terminate) if in_main else None
    try:
        yield
    except KeyboardInterrupt as error:
        print(f"shieldfl: {str(error) or 'interrupted: nothing was written'}", file=sys.stderr)
        raise SystemExit(128 + told) from None
    finally:
        if in_main:
            signal.signal(signal.SIGTERM, previous)
