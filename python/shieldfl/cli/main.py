"""The console entry point ``shieldfl``."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence

from shieldfl.cli.failures import missing_extra_message

__all__ = ["main"]

_HELP = """\
usage: shieldfl [--version] [--help] COMMAND ...

Protected federated averaging at about the cost of plain averaging.

Commands: run, inspect, bench, profile. None of them works yet: {message}.
Masks, encryption and key authorities, `import shieldfl` in Python, need none of this."""


def main() -> None:
    """Run the command line on ``sys.argv``; without its packages only ``--version`` and ``--help`` work."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show "ε" shows a question mark instead of ending the run.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        from shieldfl.cli.app import app
    except ModuleNotFoundError as error:
        message = missing_extra_message(error)
        if message is None:
            raise
        sys.exit(_without_packages(sys.argv[1:], message))
    app(prog_name="shieldfl")


def _without_packages(arguments: Sequence[str], message: str) -> int:
    """Do what the standard library can do; return the exit code."""
    if list(arguments) == ["--version"]:
        import shieldfl

        print(f"shieldfl {shieldfl.__version__}")
        return 0
    if not arguments or "--help" in arguments:
        print(_HELP.format(message=message))
        return 0
    print(f"shieldfl: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
