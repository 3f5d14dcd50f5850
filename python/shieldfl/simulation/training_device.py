"""Where clients train: the processor, or an accelerator that torch can use."""

from __future__ import annotations

import torch

from shieldfl.errors import ParameterError

__all__ = ["training_device"]


def training_device(name: str) -> torch.device:
    """Return the device of a name such as ``cpu``, ``cuda``, ``cuda:1`` or ``mps``.

    Raises ParameterError for one that this machine does not have, or that torch was built without.
    """
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ParameterError(f"there is no device {name!r}: take {_there_are()}") from None
    if str(device) not in _names():
        raise ParameterError(f"torch has no device {name!r} on this machine: take {_there_are()}")
    return device


def _names() -> list[str]:
    cuda = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    return [
        "cpu",
        *(["cuda"] if cuda else []),
        *cuda,
        *(["mps"] if torch.backends.mps.is_available() else []),
    ]


def _there_are() -> str:
    return " or ".join(_names())
