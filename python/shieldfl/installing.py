"""What to install where a package is missing: every hint of the library comes from here.

No package index has shieldfl itself, so a hint names the packages that are missing and not one of its extras.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from shieldfl.errors import ShieldError

__all__ = ["EXTRAS", "cryptographic", "extra_of", "how_to_install", "require"]

EXTRAS = {
    "keys": ("cryptography", "msgspec"),
    "simulation": (
        "torch",
        "opacus",
        "dp-accounting",
        "scikit-learn",
        "rich",
        "typer",
        "matplotlib",
        "jinja2",
        "msgspec",
        "cryptography",
    ),
    "authority": ("cryptography", "msgspec", "typer", "aiohttp", "httpx", "prometheus-client"),
    "tensorboard": ("tensorboard",),
    "tenseal": ("tenseal",),
    "phe": ("phe", "gmpy2"),
    "heu": ("sf-heu",),
    "flower": ("cryptography", "msgspec", "flwr", "httpx"),
    "flower-simulation": ("cryptography", "msgspec", "flwr", "httpx", "ray"),
}
"""What each part of the library needs, as indexes name it. A test holds the first two equal to pyproject.toml's."""

_LEAST = {"cryptography": "50"}
"""The oldest version that will do, where one is common that lacks what is used: HPKE with ML-KEM-768 and X25519."""

_MODULES = {
    "sklearn": "scikit-learn",
    "dp_accounting": "dp-accounting",
    "prometheus_client": "prometheus-client",
}
"""Where a package is imported by another name than it is installed by."""


def how_to_install(part: str) -> str:
    """Return the command that installs what one of :data:`EXTRAS` needs."""
    wanted = (f"'{name}>={_LEAST[name]}'" if name in _LEAST else name for name in EXTRAS[part])
    return f"pip install {' '.join(wanted)}"


def extra_of(module: str) -> str | None:
    """Return which of :data:`EXTRAS` a module belongs to, by the name that it is imported by, or None."""
    package = module.partition(".")[0]
    name = _MODULES.get(package, package)
    return next((part for part, packages in EXTRAS.items() if name in packages), None)


def require(package: str) -> None:
    """Raise ModuleNotFoundError, as an import would, unless a package is installed; it is not imported."""
    if find_spec(package) is None:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)


def cryptographic(module: str, what: str) -> Any:
    """Return a module of ``cryptography.hazmat.primitives``; ``what`` needs it. Raises ShieldError without it."""
    try:
        return import_module(f"cryptography.hazmat.primitives.{module}")
    except ImportError as error:
        raise ShieldError(
            f"{what} need the package 'cryptography', of a version that has it all: {how_to_install('keys')}"
        ) from error
