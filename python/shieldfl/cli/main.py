"""The console entry point ``shieldfl``."""

from __future__ import annotations

import io
import os
import sys

from shieldfl.cli.failures import missing_extra_message

_HELP = """\
usage: shieldfl [--version] [--help] COMMAND ...

Protected federated averaging at about the cost of plain averaging.

Commands: run, audit, doctor, inspect, bench, profile, authority, flower. {message}.
Masks, encryption and key authorities, `import shieldfl` in Python, need none of this."""


def main() -> None:
    """Run the command line on ``sys.argv``.

    Without its packages only ``--version`` and ``--help`` work, and with typer and rich ``doctor``, which
    says what is missing.
    """
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show "ε" shows a question mark instead of ending the run.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    # Python processes that a command starts take no modules from the folder that it is called in, as it takes
    # none.
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        from shieldfl.cli.app import app
    except ModuleNotFoundError as error:
        message = missing_extra_message(error)
        if message is None:
            raise
        sys.exit(_without_packages(message))
    app(prog_name="shieldfl")


def _without_packages(message: str) -> int:
    """Do what can be done; return the exit code."""
    arguments = sys.argv[1:]
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ModuleNotFoundError:
        works = "None of them works yet"
    else:
        works = "Only doctor works yet"
        if arguments[:1] == ["doctor"]:
            from shieldfl.cli.doctor import doctor_alone

            doctor_alone()
    if arguments == ["--version"]:
        import shieldfl

        print(f"shieldfl {shieldfl.__version__}")
    elif not arguments or "--help" in arguments:
        print(_HELP.format(message=f"{works}: {message}"))
    else:
        print(f"shieldfl: {message}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    main()
