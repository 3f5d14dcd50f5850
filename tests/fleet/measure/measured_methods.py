"""Which methods are measured with real client processes, and under which scheme in the short form of the tests."""

from __future__ import annotations

from shieldfl.methods.discovery import BUILT_IN, method_class
from shieldfl.methods.settings import MethodSettings
from shieldfl.scheme.registry import DEFAULT_ENCRYPTION

SCHEMES = ("kahe", "ckks", "paillier-dense")


def measurable(scheme: str) -> list[str]:
    """The methods of the package that need neither a model of layers, nor DP-SGD, nor synthetic data.

    Those that encrypt nothing are measured beside the default: the scheme is nothing to them.
    """
    found = []
    for name in BUILT_IN:
        method, entry = method_class(name), MethodSettings().of(name)
        if (
            scheme in (method.schemes or (DEFAULT_ENCRYPTION,))
            and not name.startswith("alt-fl")
            and name != "top-2"
        ):
            found += [] if method.trains_privately(name, entry) else [name]
    return found


def measured_under(scheme: str) -> list[str]:
    """Full encryption, whose traffic is known, and the other methods whose turn it is: each under one scheme.

    Each client of each method is a process.
    """

    def turn(name: str) -> str:
        takes = [one for one in SCHEMES if name in measurable(one)]
        return takes[list(BUILT_IN).index(name) % len(takes)]

    return [name for name in measurable(scheme) if name == "full-he" or turn(name) == scheme]
