"""What a run ran on, for the record."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import numpy as np
import torch

from shieldfl.build_info import build_info

__all__ = ["describe_environment"]


def describe_environment() -> dict[str, Any]:
    """Return versions, processor and threads: nothing that names the machine or its user."""
    return dict(build_info()) | {
        "processor": _processor(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": str(torch.__version__),
        "torch_threads": torch.get_num_threads(),
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
