"""What this build is made of."""

from __future__ import annotations

from typing import TypedDict

from shieldfl import _core

__all__ = ["BuildInfo", "build_info"]


class BuildInfo(TypedDict):
    """Versions and machine facts, for bug reports and benchmark headers."""

    version: str
    seal_version: str
    instruction_set: str
    threads: int


def build_info() -> BuildInfo:
    """Return the version, the SEAL version, the instruction set in use and the default number of threads."""
    return {
        "version": _core.__version__,
        "seal_version": _core.seal_version(),
        "instruction_set": "scalar",
        "threads": _core.available_threads(),
    }
