"""What a method's class says of each name that it is found under, and of itself; its errors name it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from shieldfl.errors import ParameterError, ShieldError
from shieldfl.privacy.events import PrivacyReading

__all__ = ["Masks", "NamedMethod", "check_declarations", "naming_own_method"]

Masks = Literal["nothing", "everything", "one share", "budgets"]
"""How much clients encrypt: the same share at all of them, or a share by each one's budget."""


@dataclass(frozen=True)
class NamedMethod:
    """A name, with what a reader and a run need to know of the method under it; a class may have several."""

    name: str
    """In small letters and hyphens, as on the command line."""
    sends: str
    """What leaves a client, in a few words."""
    purpose: str
    """What it is for, in a few words."""
    source: str
    """The paper, and its section, equation or algorithm; or what stands in for one."""
    settings: Any = None
    """The defaults, of a frozen dataclass whose values can be hashed; None for a method without settings."""
    takes_synthetic: bool = False
    """Whether there are settings under which some rounds train on synthetic data."""
    masks: Masks | None = None
    """How much of its update each client encrypts, for simulations of fleets; None for a method without any."""
    masks_each_round: bool = False
    """Whether clients score, select and send a mask in every round, for simulations too."""


def check_declarations(name: str, method: Any) -> None:
    """Raise ParameterError unless a class says under which names it is found, with which settings, and what it shows.

    The class itself must say how its epsilon is to be read and what the aggregator sees: inherited words were said of
    another method, and nothing is called encrypted, or private, by default.
    """
    own = vars(method)
    names = {one.name: one for one in own.get("names", ()) if isinstance(one, NamedMethod)}
    if name not in names:
        raise ParameterError(
            f"{method.__name__} says nothing of the name {name!r}: declare names on the class itself, with a "
            "NamedMethod of it"
        )
    settings = names[name].settings
    try:
        hash(settings)
    except TypeError:
        raise ParameterError(
            f"{type(settings).__name__} cannot be hashed: make it a frozen dataclass, with tuples in place of lists, "
            "and without dictionaries and arrays"
        ) from None
    if not isinstance(own.get("privacy_reading"), PrivacyReading):
        raise ParameterError(
            f"{method.__name__} does not say how its epsilon is to be read: declare privacy_reading on the class itself"
        )
    sees = own.get("aggregator_sees")
    if not isinstance(sees, str) or not sees.strip():
        raise ParameterError(
            f"{method.__name__} does not say what the aggregator sees: declare aggregator_sees on the class itself"
        )


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
