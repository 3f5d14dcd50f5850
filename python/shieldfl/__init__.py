"""Protected federated averaging at about the cost of plain averaging.

This package imports neither torch nor scikit-learn: masks, encryption and the key authority need NumPy alone.
The training side lives in ``shieldfl.methods`` and ``shieldfl.simulation``.
"""

from shieldfl import ckks, paillier
from shieldfl.build_info import build_info
from shieldfl.errors import (
    ArrayTypeError,
    CapacityError,
    ConvergenceError,
    DataError,
    DuplicateFrameError,
    KeyMismatchError,
    ParameterError,
    PolicyError,
    PrecisionWarning,
    RangeError,
    SecretCopyError,
    ShieldError,
    WireFormatError,
)
from shieldfl.masks import Mask, Votes, negotiate
from shieldfl.roles.key_authority import KeyAuthority

__all__ = [
    "ArrayTypeError",
    "CapacityError",
    "ConvergenceError",
    "DataError",
    "DuplicateFrameError",
    "KeyAuthority",
    "KeyMismatchError",
    "Mask",
    "ParameterError",
    "PolicyError",
    "PrecisionWarning",
    "RangeError",
    "SecretCopyError",
    "ShieldError",
    "Votes",
    "WireFormatError",
    "build_info",
    "ckks",
    "negotiate",
    "paillier",
]

__version__: str = build_info()["version"]
