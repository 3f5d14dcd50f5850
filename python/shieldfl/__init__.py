"""Protected federated averaging at about the cost of plain averaging.

This package imports neither torch nor scikit-learn: masks and encryption need NumPy alone. Where clients
enrol, their keys and the key authority need the extra ``keys`` as well.
The training side lives in ``shieldfl.methods`` and ``shieldfl.lab.simulation``.
Read ``rounds/driver.py`` first.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import shieldfl._aliases  # noqa: F401
from shieldfl.build_info import build_info
from shieldfl.encryption import ckks, kahe, pads, paillier
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
    from shieldfl.authority.key_authority import KeyAuthority
    from shieldfl.lab.simulation.compared_runs import ComparedRuns
    from shieldfl.lab.simulation.runner import run
    from shieldfl.lab.simulation.task import Task
    from shieldfl.methods.compression import Compression
    from shieldfl.rounds.encrypted_mean import encrypted_mean

__all__ = [
    "ArrayTypeError",
    "CapacityError",
    "ComparedRuns",
    "Compression",
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
    "KeyAuthority": "shieldfl.authority.key_authority",
    "encrypted_mean": "shieldfl.rounds.encrypted_mean",
    "ComparedRuns": "shieldfl.lab.simulation.compared_runs",
    "Compression": "shieldfl.methods.compression",
    "Task": "shieldfl.lab.simulation.task",
    "run": "shieldfl.lab.simulation.runner",
}


def __getattr__(name: str) -> Any:
    if name not in _LOADED_LATE:
        raise AttributeError(f"module 'shieldfl' has no attribute {name!r}")
    return getattr(import_module(_LOADED_LATE[name]), name)


def __dir__() -> list[str]:
    return sorted(globals().keys() | _LOADED_LATE.keys())
