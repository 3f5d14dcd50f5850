"""The errors that shieldfl raises, and its warnings.

Every error derives from :class:`ShieldError`; where a built-in exception says the same thing, it
derives from that one too, so that ``except ValueError`` keeps working. Messages say what to do next
and carry sizes, positions and limits, never data, keys or plaintext.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "ArrayTypeError",
    "CapacityError",
    "ConvergenceError",
    "DataError",
    "DisprovedError",
    "DuplicateFrameError",
    "KeyMismatchError",
    "ParameterError",
    "PolicyError",
    "PrecisionWarning",
    "RangeError",
    "SecretCopyError",
    "ShieldError",
    "UnreachableError",
    "WireFormatError",
    "shown",
]


class ShieldError(Exception):
    """Base of every error that shieldfl raises on purpose."""

    ended: Any = None
    """What a run of methods had finished when this ended it, as
    :class:`shieldfl.lab.simulation.results.EndedRuns`; None if nothing, and for errors elsewhere."""


class ParameterError(ShieldError, ValueError):
    """A parameter, a size or a combination of settings is invalid."""


class ArrayTypeError(ParameterError, TypeError):
    """An array has the wrong dtype, rank, device or memory layout; nothing was copied or converted."""


class KeyMismatchError(ShieldError, ValueError):
    """A frame or a total was made under another key."""


class WireFormatError(ShieldError, ValueError):
    """Bytes are not a frame that this version can read: truncated, damaged, oversized or of another kind."""


class RangeError(ShieldError, ValueError):
    """A value is NaN, infinite or outside the range that the parameters state.

    Of an update that was not encrypted it has the position and the size; both are None elsewhere.
    """

    position: int | None = None
    size: int | None = None


class CapacityError(ShieldError):
    """More clients were added than the parameters allow."""


class PolicyError(ShieldError):
    """The request would reveal more than the roles allow, so it was refused."""


class SecretCopyError(PolicyError, TypeError):
    """An object that holds a secret, or that may be used only once, was to be copied or pickled."""


class DuplicateFrameError(ShieldError):
    """The frame has been added before; it was not counted twice."""


class ConvergenceError(ShieldError):
    """An iterative procedure did not converge."""


class DataError(ShieldError, OSError):
    """A data set is missing, incomplete or damaged, a store is an old copy, or its disk is full or fails."""


class DisprovedError(ShieldError):
    """A measurement contradicts a stated privacy figure."""


class UnreachableError(ShieldError, ConnectionError):
    """A key authority that is served elsewhere does not answer. It is unknown whether it got the request."""


class PrecisionWarning(UserWarning):
    """Much of an update is lost before encryption, rounded to zero or clipped: the scale does not suit it."""


def shown(value: object) -> str:
    """Return a setting's value as text for an error. Python writes no integer of more than 4,300 digits."""
    try:
        return repr(value)
    except ValueError:
        return "a number with too many digits"
