"""The console entry point ``shieldfl``."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

from shieldfl.cli.failures import missing_extra_message

_HELP = """\
usage: shieldfl [--version] [--help] COMMAND ...

Protected federated averaging at about the cost of plain averaging.

Commands: run, audit, doctor, inspect, bench, profile, authority, flower. {message}.
Masks, encryption and key authorities, `import shieldfl` in Python, need none of this."""


def main() -> None:
    """Run the command line on ``sys.argv``.

    Without its packages only ``--version`` and ``--help`` work, and with typer and rich ``doctor``, which says what is
    missing.
    """
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show "ε" shows a question mark instead of ending the run.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    # Python processes that a command starts take no modules from the folder that it is called in, as it takes none.
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        from shieldfl.cli.app import app
    except ModuleNotFoundError as error:
        message = missing_extra_message(error)
        if message is None:
            raise
        if sys.argv[1:2] == ["doctor"] and _has_terminal_packages():
            from shieldfl.cli.doctor.command import doctor_alone

            doctor_alone(sys.argv[2:])
        sys.exit(_without_packages(sys.argv[1:], message))
    app(prog_name="shieldfl")


def _has_terminal_packages() -> bool:
    """Say whether what reads options and prints is there: with no more than that, one command can do its work."""
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ModuleNotFoundError:
        return False
    return True


def _without_packages(arguments: Sequence[str], message: str) -> int:
    """Do what the standard library can do; return the exit code."""
    if list(arguments) == ["--version"]:
        import shieldfl

        print(f"shieldfl {shieldfl.__version__}")
        return 0
    if not arguments or "--help" in arguments:
        works = "Only doctor works yet" if _has_terminal_packages() else "None of them works yet"
        print(_HELP.format(message=f"{works}: {message}"))
        return 0
    print(f"shieldfl: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
