"""Clipping and Gaussian noise: what is done to a vector before it leaves a client in the clear.

Source: SelectiveShield, eq. 20 and 21. The noise comes from the core's cryptographic generator, never from a
seeded one. Like every float implementation of the Gaussian mechanism it carries the caveat of Mironov (2012):
the low-order bits of a float are not the real number that the proof speaks of. The mechanism in
:mod:`shieldfl.privacy.discrete_gaussian` has no such gap, and takes some forty times as long.
"""

from __future__ import annotations

import math
from collections import deque
from statistics import median
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from shieldfl.array_view import as_count, as_real, as_threads
from shieldfl.errors import ArrayTypeError, ParameterError
from shieldfl.privacy import draws
from shieldfl.stateful import Stateful, refuse_unless

__all__ = ["AdaptiveClip", "clip_and_noise", "clip_l2", "gaussian_noise"]

FloatVector = npt.NDArray[np.float32]

_LEAST_NORM = 2.0**-100

# Float32 ends at 2^128; 2^120 leaves room for draws of 200 deviations.
_MOST_DEVIATION = 2.0**120
"""Below it, scaled values would leave the range of normal float32."""


def clip_l2(
    vector: FloatVector, norm: float, *, threads: int | None = None
) -> tuple[FloatVector, float, bool]:
    """Scale a vector down to an L2 norm of at most ``norm`` (SelectiveShield, eq. 20).

    The exact norm of a vector that was scaled never exceeds ``norm``: the scale is taken a hair smaller to
    make up for float32 rounding, since the privacy proof has no tolerance. Whether to scale is decided in
    float64. Parameters, results and errors are those of :func:`clip_and_noise` without noise.
    """
    return clip_and_noise(vector, norm, 0.0, threads=threads)


def clip_and_noise(
    vector: FloatVector, norm: float, standard_deviation: float, *, threads: int | None = None
) -> tuple[FloatVector, float, bool]:
    """Clip as :func:`clip_l2` and add noise as :func:`gaussian_noise`, in two passes over the memory.

    The clipped values are not rounded to float32 before the noise is added to them.

    Parameters
    ----------
    vector : ndarray of float32, shape (n,)
        May be empty; is not changed, and must not be changed by others meanwhile.
    norm : float
        Clipping norm C, finite and at least 2^-100.
    standard_deviation : float
        In the unit of the vector; 0 adds nothing.
    threads : int, optional
        For the core; None for as many as the work is worth.

    Returns
    -------
    noised : ndarray of float32, shape (n,)
        A new array.
    original_norm : float
        L2 norm of the input, computed in float64. It is data: not private, never to be uploaded.
    was_clipped : bool
        Whether the input was longer than ``norm``.

    Raises
    ------
    ParameterError
        If ``norm`` is not positive and finite, or below 2^-100; if the standard deviation is negative, NaN or
        infinite.
    ArrayTypeError
        If the vector is not float32 of one dimension.
    RangeError
        If the vector holds NaN or infinity; the message gives the first position.
    """
    values = as_float_vector(vector)
    check_norm(norm)
    _check_deviation(standard_deviation)
    return draws.clip_and_add_gaussian(values, norm, standard_deviation, as_threads(threads))


class AdaptiveClip(Stateful):
    """A clipping norm that follows a client's own updates: the median of their recent norms.

    This is NOT private: the norm is computed from the client's data without noise, and the noise that is
    added is scaled by it, so what leaves the client depends on the data in a way that no accountant here
    charges for. Use a fixed norm where the privacy figure has to hold.

    Parameters
    ----------
    initial_norm : float
        Norm used until something was observed, and while the median is below 2^-100. Positive and finite.
    window : int
        How many of the latest norms the median is taken over, at least 1.
    """

    changes: ClassVar = {"_norms": list[float]}

    def __init__(self, initial_norm: float, window: int = 10) -> None:
        if not (math.isfinite(initial_norm) and initial_norm > 0):
            raise ParameterError("the initial clipping norm must be positive and finite")
        self._initial_norm = float(initial_norm)
        self._recent: deque[float] = deque(maxlen=as_count(window, "window"))

    @property
    def _norms(self) -> list[float]:
        return list(self._recent)

    @_norms.setter
    def _norms(self, norms: list[float]) -> None:
        self._recent = deque(norms, maxlen=self._recent.maxlen)

    def check_changed(self) -> None:
        """Raise WireFormatError for norms that :meth:`observe` refuses."""
        super().check_changed()
        refuse_unless(all(0.0 <= norm < math.inf for norm in self._recent))

    def norm(self) -> float:
        """Return the clipping norm to use now: positive and finite."""
        middle = median(self._recent) if self._recent else 0.0
        return middle if middle >= _LEAST_NORM else self._initial_norm

    def observe(self, norm: float) -> None:
        """Record an update's norm before clipping; ``ParameterError`` if it is negative, NaN or infinite."""
        if not (math.isfinite(norm) and norm >= 0):
            raise ParameterError("an observed norm must be finite and not negative")
        self._recent.append(float(norm))


def gaussian_noise(
    vector: FloatVector, standard_deviation: float, *, threads: int | None = None
) -> FloatVector:
    """Return a new array: independent N(0, standard_deviation²) added to each value (SelectiveShield, eq. 21).

    The parameters and their errors are those of :func:`clip_and_noise`; NaN and infinity are not looked for.
    """
    as_float_vector(vector)
    _check_deviation(standard_deviation)
    noised: FloatVector = np.array(vector, dtype=np.float32, order="C", copy=True)
    if standard_deviation > 0 and noised.size > 0:
        draws.add_gaussian(noised, standard_deviation, as_threads(threads))
    return noised


def as_float_vector(vector: FloatVector) -> FloatVector:
    """Check for float32 of one dimension; return the vector, copied only if it is not contiguous."""
    if not isinstance(vector, np.ndarray) or vector.dtype != np.float32:
        kind = vector.dtype if isinstance(vector, np.ndarray) else type(vector).__name__
        raise ArrayTypeError(f"expected a NumPy array of float32, got {kind}")
    if vector.ndim != 1:
        raise ArrayTypeError(f"expected a vector, got an array of rank {vector.ndim}")
    return np.require(vector, dtype=np.float32, requirements=["C", "A"])


def check_norm(norm: float) -> None:
    """Raise ParameterError unless ``norm`` can be a clipping norm."""
    norm = as_real(norm, "the clipping norm")
    if not (math.isfinite(norm) and norm >= _LEAST_NORM):
        raise ParameterError("the clipping norm must be positive and finite, and at least 2^-100")


def _check_deviation(standard_deviation: float) -> None:
    standard_deviation = as_real(standard_deviation, "the standard deviation")
    if not 0 <= standard_deviation <= _MOST_DEVIATION:
        raise ParameterError(
            "the standard deviation must not be negative, and at most 2^120 for float32 to hold"
        )
