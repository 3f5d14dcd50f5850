"""Errors of methods that other packages offer: they name the method, since nothing else in them may."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from shieldfl.errors import ParameterError, ShieldError

__all__ = ["naming_own_method"]


@contextmanager
def naming_own_method(name: str, kind: type, *, refuses: bool = False) -> Iterator[None]:
    """Let what another package's method raises name it; this package's own methods' errors pass as they are.

    An error of shieldfl says it in its message, any other one in a note, below its traceback. ``refuses``: before
    anything runs, any other one is a ParameterError.
    """
    try:
        yield
    except Exception as error:
        if kind.__module__.partition(".")[0] == "shieldfl":
            raise
        whose = f"the method {name!r}, {kind.__module__}:{kind.__qualname__}"
        if isinstance(error, ShieldError):
            if whose not in str(error):
                error.args = (f"{whose}: {error}",)
        elif refuses:
            raise ParameterError(f"{whose}: {type(error).__name__}: {error}") from error
        elif whose not in getattr(error, "__notes__", ()):
            error.add_note(whose)
        raise
