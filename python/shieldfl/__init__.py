"""Protected federated averaging at about the cost of plain averaging.

This package imports neither torch nor scikit-learn: masks, encryption and the key authority need NumPy alone.
The training side lives in ``shieldfl.methods`` and ``shieldfl.simulation``.
"""

from typing import TYPE_CHECKING, Any

from shieldfl import ckks, kahe, pads, paillier
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

if TYPE_CHECKING:
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
    "kahe",
    "negotiate",
    "pads",
    "paillier",
]

__version__: str = build_info()["version"]


def __getattr__(name: str) -> Any:
    if name != "KeyAuthority":
        raise AttributeError(f"module 'shieldfl' has no attribute {name!r}")
    # Only where it is asked for: clients and aggregators load nothing that holds a secret.
    from shieldfl.roles.key_authority import KeyAuthority

    return KeyAuthority


def __dir__() -> list[str]:
    return sorted(globals().keys() | {"KeyAuthority"})
