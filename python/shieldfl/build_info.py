"""What this build is made of and runs on, and which packages an extra installs."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

import shieldfl._core as _core
from shieldfl.errors import ShieldError

__all__ = ["BuildInfo", "build_info"]


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

    Raises ParameterError where SHIELDFL_SIMD asks for an instruction set that cannot be had: ``import
    shieldfl`` does too.
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
    sets = {"x86_64": ("scalar", "avx2", "avx512"), "aarch64": ("scalar", "neon")}
    return sets.get(architecture, ("scalar",))


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
    """Return machine, versions and date of a measurement as plain JSON types, without the user's name."""
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


EXTRAS = {
    "keys": ("cryptography", "msgspec"),
    "lab": (
        *("torch", "opacus", "dp-accounting", "scikit-learn", "rich", "typer", "matplotlib", "jinja2"),
        *("msgspec", "cryptography"),
    ),
    "authority": ("cryptography", "msgspec", "typer", "aiohttp", "httpx", "prometheus-client"),
    "tensorboard": ("tensorboard",),
    "tenseal": ("tenseal",),
    "phe": ("phe", "gmpy2"),
    "heu": ("sf-heu",),
    "flower": ("cryptography", "msgspec", "flwr", "httpx"),
    "flower-simulation": ("cryptography", "msgspec", "flwr", "httpx", "ray"),
}
"""Packages that each part of the library needs, by the part's name; the packages are named as on an index.

A test compares them with pyproject.toml.
"""

_LEAST = {"cryptography": "50"}
"""Lowest version that suffices, by package, if lower ones are common: HPKE with ML-KEM-768 and X25519."""

_MODULES = {
    "sklearn": "scikit-learn",
    "dp_accounting": "dp-accounting",
    "prometheus_client": "prometheus-client",
}
"""Names of packages on an index, by the name for imports, where the two differ."""


def how_to_install(part: str) -> str:
    wanted = (f"'{name}>={_LEAST[name]}'" if name in _LEAST else name for name in EXTRAS[part])
    return f"pip install {' '.join(wanted)}"


def extra_of(module: str) -> str | None:
    """Return the part in :data:`EXTRAS` that needs a module, by its name for imports; None if none does."""
    package = module.partition(".")[0]
    name = _MODULES.get(package, package)
    return next((part for part, packages in EXTRAS.items() if name in packages), None)


def require(package: str) -> None:
    """Raise ModuleNotFoundError, as an import would, unless a package is installed; it is not imported."""
    if find_spec(package) is None:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)


def cryptographic(module: str, what: str) -> Any:
    """Return a module of ``cryptography.hazmat.primitives``.

    Raises ShieldError without it; ``what`` needs it.
    """
    try:
        return import_module(f"cryptography.hazmat.primitives.{module}")
    except ImportError as error:
        raise ShieldError(
            f"{what} need the package 'cryptography', of a version that has it all: {how_to_install('keys')}"
        ) from error
