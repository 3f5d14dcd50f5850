"""Protected federated averaging at about the cost of plain averaging.

This package imports neither torch nor scikit-learn: masks, encryption and the key authority need NumPy alone.
The training side lives in ``shieldfl.methods`` and ``shieldfl.simulation``.
"""

from importlib import import_module
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
    from shieldfl.one_process import encrypted_mean
    from shieldfl.roles.key_authority import KeyAuthority
    from shieldfl.simulation.compared_runs import ComparedRuns
    from shieldfl.simulation.runner import run
    from shieldfl.simulation.task import Task

__all__ = [
    "ArrayTypeError",
    "CapacityError",
    "ComparedRuns",
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
    "Task",
    "Votes",
    "WireFormatError",
    "build_info",
    "ckks",
    "encrypted_mean",
    "kahe",
    "negotiate",
    "pads",
    "paillier",
    "run",
]

__version__: str = build_info()["version"]


# Only where they are asked for: clients and aggregators load nothing that holds a secret, nor torch.
_LOADED_LATE = {
    "KeyAuthority": "shieldfl.roles.key_authority",
    "encrypted_mean": "shieldfl.one_process",
    "ComparedRuns": "shieldfl.simulation.compared_runs",
    "Task": "shieldfl.simulation.task",
    "run": "shieldfl.simulation.runner",
}


def __getattr__(name: str) -> Any:
    if name not in _LOADED_LATE:
        raise AttributeError(f"module 'shieldfl' has no attribute {name!r}")
    return getattr(import_module(_LOADED_LATE[name]), name)


def __dir__() -> list[str]:
    return sorted(globals().keys() | _LOADED_LATE.keys())
