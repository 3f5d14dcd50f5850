"""The console entry point ``shieldfl``."""

from __future__ import annotations

import io
import sys

from shieldfl.cli.failures import missing_extra_message

__all__ = ["main"]


def main() -> None:
    """Run the command line on ``sys.argv``; say what to install where typer or rich is missing."""
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
        sys.exit(f"shieldfl: {message}")
    app(prog_name="shieldfl")


if __name__ == "__main__":
    main()
