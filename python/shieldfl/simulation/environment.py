"""What a run ran on, for the record."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import torch

from shieldfl.build_info import build_info, processor_name

__all__ = ["describe_environment"]


def describe_environment() -> dict[str, Any]:
    """Return versions, processor and threads: nothing that names the machine or its user."""
    return dict(build_info()) | {
        "processor": processor_name(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": str(torch.__version__),
        "torch_threads": torch.get_num_threads(),
    }
