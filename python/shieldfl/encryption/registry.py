"""The registry of encryption schemes: nothing else asks which one it is."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from shieldfl.encryption.interface import KeyBits, Scheme
from shieldfl.encryption.keys import ClientKey
from shieldfl.errors import ParameterError

REGISTRY: dict[str, Scheme] = {
    name: import_module(f"shieldfl.encryption.{name}.scheme").SCHEME
    for name in ("ckks", "kahe", "paillier", "pads")
}
"""By name, which is that of the scheme's folder. A new scheme is one name more."""

DEFAULT_ENCRYPTION = "kahe"
"""Of methods that ask for none."""

DEFAULT_PUBLIC_KEY_ENCRYPTION = "ckks"
"""Beside updates under a public key, for what has to be summed with encrypted weights."""


KEY_SIZES = tuple(sorted({bits for scheme in REGISTRY.values() for bits in scheme.key_sizes}))
"""That any scheme has a choice of."""

DEFAULT_KEY_BITS: KeyBits = 3072
"""128 bits of security."""


def scheme_of(one: Any) -> Scheme:
    """Return the scheme of parameters, a public key or a client's key. Raises ParameterError for what is neither."""
    own = one.public_key if isinstance(one, ClientKey) else one
    for scheme in reversed(REGISTRY.values()):  # one that is added may derive from another's classes
        if isinstance(own, (scheme.Parameters, scheme.PublicKey)):
            return scheme
    names = " or ".join(f"{name}.Parameters" for name in REGISTRY)
    raise ParameterError(f"params must be {names}, not {type(one).__name__}")


def scheme_named(encryption: str) -> Scheme:
    """Return the scheme that settings call by this name. Raises ParameterError for an unknown one."""
    for scheme in REGISTRY.values():
        if encryption in scheme.calibrations:
            return scheme
    raise ParameterError(f"encryption must be one of {', '.join(encryptions())}")


def encryptions() -> tuple[str, ...]:
    """Return the names by which settings choose a scheme and its packing."""
    return tuple(name for scheme in REGISTRY.values() for name in scheme.encryptions)


def weighing_encryptions() -> tuple[str, ...]:
    """Return those of :func:`encryptions` in which a weight travels encrypted beside the values."""
    schemes = [scheme for scheme in REGISTRY.values() if not scheme.integer_weights]
    return tuple(name for scheme in schemes for name in scheme.encryptions)


def calibrations() -> tuple[str, ...]:
    """Return the names under which schemes are calibrated: those of settings, and those with a pool."""
    return tuple(name for scheme in REGISTRY.values() for name in scheme.calibrations)
