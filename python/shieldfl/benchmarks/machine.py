"""What a benchmark ran on: processor, instruction set, versions. Nothing that names the machine or its user."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

from shieldfl.build_info import build_info, processor_name

__all__ = ["describe_machine"]


def describe_machine() -> dict[str, Any]:
    """Return plain JSON types. The load is that before the run: 0 where nothing else was running."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": processor_name(),
        "cores": build_info()["threads"],
        "load_average": round(os.getloadavg()[0], 2),
        "instruction_set": build_info()["instruction_set"],
        "paillier_engine": build_info()["paillier_engine"],
        "shieldfl": build_info()["version"],
        "seal": build_info()["seal_version"],
        "gmp": build_info()["gmp_version"],
        "tenseal": _version("tenseal"),
        "phe": _version("phe"),
        "gmpy2": _version("gmpy2"),
        "heu": _version("sf-heu"),
        "numpy": _version("numpy"),
        "python": platform.python_version(),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
