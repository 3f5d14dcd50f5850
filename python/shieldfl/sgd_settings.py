"""Local SGD's settings: one default and one check for all that train, plainly, privately or for a measurement."""

from __future__ import annotations

import math

from shieldfl.array_view import as_real, as_unsigned
from shieldfl.errors import ParameterError

__all__ = ["DEFAULT_MOMENTUM", "check_sgd"]

DEFAULT_MOMENTUM = 0.9
"""SelectiveShield's paper gives the learning rate alone; see docs/methods/selective-shield.md for what others give."""


def check_sgd(
    *, local_epochs: int, batch_size: int, learning_rate: float, momentum: float, weight_decay: float
) -> None:
    """Check the settings of local training; ParameterError names the one that is out of range.

    Epochs and batch size are at least 1, the learning rate is positive and finite, momentum lies in [0, 1), and weight
    decay is finite and not negative.
    """
    for name, count in (("local_epochs", local_epochs), ("batch_size", batch_size)):
        # Of a float a count would be cut off in silence, of a negative number the message says what is allowed.
        if not hasattr(count, "__index__") or count < 1 or as_unsigned(count, name) >= 2**31:
            raise ParameterError(f"{name} must be a whole number, at least 1 and below 2^31, got {count}")
    rate = as_real(learning_rate, "learning_rate")
    if not (math.isfinite(rate) and rate > 0.0):
        raise ParameterError(f"learning_rate must be positive and finite, got {rate}")
    if not 0.0 <= as_real(momentum, "momentum") < 1.0:
        raise ParameterError(f"momentum must be at least 0 and below 1, got {momentum}")
    decay = as_real(weight_decay, "weight_decay")
    if not (math.isfinite(decay) and decay >= 0.0):
        raise ParameterError(f"weight_decay must be finite and not negative, got {decay}")
