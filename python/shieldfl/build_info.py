"""What this build is made of, and what it runs on."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

import shieldfl._core as _core

__all__ = [
    "INSTRUCTION_SETS",
    "BuildInfo",
    "build_info",
    "instruction_sets_of",
    "lower_instruction_sets",
    "machine_facts",
    "processor_name",
]

INSTRUCTION_SETS = ("scalar", "neon", "avx2", "avx512")
"""What the core has kernels for."""

_OF_ARCHITECTURE = {"x86_64": ("scalar", "avx2", "avx512"), "aarch64": ("scalar", "neon")}


class BuildInfo(TypedDict):
    """Versions and machine facts, for bug reports and benchmark headers."""

    version: str
    seal_version: str
    gmp_version: str
    instruction_set: str
    paillier_engine: str
    threads: int


def build_info() -> BuildInfo:
    """Return versions, the instruction set and Paillier engine in use, and the default number of threads.

    Raises ParameterError where SHIELDFL_SIMD asks for an instruction set that cannot be had: ``import shieldfl``
    does too.
    """
    return {
        "version": _core.__version__,
        "seal_version": _core.seal_version(),
        "gmp_version": _core.gmp_version(),
        "instruction_set": _core.instruction_set(),
        "paillier_engine": _core.paillier_engine(),
        "threads": _core.available_threads(),
    }


def instruction_sets_of(architecture: str) -> tuple[str, ...]:
    """Return what the core is compiled for there, the slowest first: each set has what the one before it has.

    ``architecture`` is as Linux calls it: ``platform.machine()``.
    """
    return _OF_ARCHITECTURE.get(architecture, ("scalar",))


def lower_instruction_sets(instruction_set: str) -> tuple[str, ...]:
    """Return those that a machine with this one has too, the slowest first."""
    for sets in _OF_ARCHITECTURE.values():
        if instruction_set in sets:
            return sets[: sets.index(instruction_set)]
    return ()


def processor_name() -> str:
    """Return what the processor calls itself, such as ``Intel(R) Xeon(R) Processor``."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def machine_facts() -> dict[str, Any]:
    """Return what was measured on and when, as plain JSON types: nothing that names the machine or its user."""
    facts = build_info()
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": processor_name(),
        "cores": facts["threads"],
        "instruction_set": facts["instruction_set"],
        "shieldfl": facts["version"],
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
