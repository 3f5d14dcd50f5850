"""Encrypts, adds and opens what three clients have, under each scheme that is named, by the package that is installed.

usage: wheel_smoke.py SCHEME...
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

import shieldfl as sf

VALUES = 5000


def summed(name: str, updates: list[np.ndarray]) -> tuple[np.ndarray, float]:
    """Return what is opened of the clients' sum, and how many steps of the scheme's scale make one."""
    scheme: Any = getattr(sf, name)
    authority = sf.KeyAuthority(scheme.Parameters(max_clients=len(updates)), min_clients=len(updates))
    scale = 2.0**authority.public_key.parameters.fraction_bits
    if not hasattr(scheme, "ClientKey"):  # one public key for all clients
        aggregator = scheme.Aggregator(authority.public_key)
        for update in updates:
            aggregator.add(scheme.Encryptor(authority.public_key).encrypt(update).to_bytes())
        return authority.open(aggregator.total()), scale
    keys = [authority.enrol(f"client-{number}") for number in range(len(updates))]
    aggregator = scheme.Aggregator(authority.public_key, round=1)
    for key, update in zip(keys, updates, strict=True):
        aggregator.add(scheme.Encryptor(key).encrypt(update, round=1).to_bytes())
    total = aggregator.total()
    return scheme.open(total, authority.sum_key(total.request()), keys[0]), scale


def loaded(library: str) -> set[Path]:
    """Return the files of a shared library that this process has loaded."""
    paths = (line.split(maxsplit=5)[-1].strip() for line in Path("/proc/self/maps").read_text().splitlines())
    return {Path(path) for path in paths if re.match(rf"{library}[-.]", Path(path).name)}


if __name__ == "__main__":
    package = Path(sf.__file__).parent
    # The wheel's own GMP, whatever the machine has.
    assert {path.parent for path in loaded("libgmp")} == {package.parent / "shieldfl.libs"}, loaded("libgmp")
    rng = np.random.default_rng(1)
    for name in sys.argv[1:]:
        # Of Paillier's, which take milliseconds each, a few.
        size = 200 if name == "paillier" else VALUES
        updates = [rng.normal(0.0, 0.05, size).astype(np.float32) for _ in range(3)]
        opened, scale = summed(name, updates)
        expected = sum(np.rint(update.astype(np.float64) * scale) for update in updates)
        assert np.array_equal(opened * scale, expected), f"{name}: the sum is wrong"
        print(f"  {name}: {size:,} values of 3 clients encrypted, added and opened: equal")
