"""Our side of the comparison, at the parameter sets that the library recommends."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shieldfl import ckks
from shieldfl.benchmarks.scheme import Scheme, Selection, WrongSumError
from shieldfl.roles.key_authority import KeyAuthority

__all__ = ["OwnScheme", "own_schemes", "parameter_sets"]


def parameter_sets() -> dict[str, ckks.Parameters]:
    """Return what is compared by default, under the names of the tables; sets that are equal share a name."""
    plan = ckks.Parameters.plan
    named = {
        "default": ckks.Parameters(),
        "speed": plan(goal="speed"),
        "size": plan(goal="size"),
        "16-bit": plan(max_clients=32, value_bits=16, fraction_bits=12, goal="size"),
    }
    names: dict[ckks.Parameters, list[str]] = {}
    for name, parameters in named.items():
        names.setdefault(parameters, []).append(name)
    return {" = ".join(alike): parameters for parameters, alike in names.items()}


def own_schemes(threads: int) -> list[OwnScheme]:
    """Return a scheme for each parameter set; the first one is the default, which others are compared with."""
    return [OwnScheme(name, parameters, threads) for name, parameters in parameter_sets().items()]


class OwnScheme(Scheme):
    """Our library, on every selected value of the whole update, the mask included."""

    own = True

    def __init__(self, name: str, parameters: ckks.Parameters, threads: int) -> None:
        self.name = f"shieldfl {name}"
        self.setting = repr(parameters)
        self._threads = threads
        # Each repetition sums anew, so the protection against two totals of one round would stop the second one. Its
        # work, a digest of the total, is done and timed all the same.
        self._authority = KeyAuthority(parameters, min_clients=1, one_total_per_round=False, threads=threads)
        self._encryptor = ckks.Encryptor(self._authority.public_key, threads=threads)
        self._step = 2.0**parameters.fraction_bits

    def encrypt(self, selection: Selection) -> ckks.CiphertextBatch:
        """Encrypt; the frame is made in the same pass."""
        return self._encryptor.encrypt(selection.update, selection.mask)

    def serialise(self, encrypted: ckks.CiphertextBatch) -> bytes:
        """Return the frame that is there already."""
        return encrypted.to_bytes()

    def size_bytes(self, frame: bytes) -> int:
        """Return the length of the frame, header and checksum included."""
        return len(frame)

    def start_sum(self, frame: bytes) -> ckks.Aggregator:
        """Make an aggregator that holds one frame."""
        aggregator = ckks.Aggregator(self._authority.public_key, threads=self._threads)
        aggregator.add(frame)
        return aggregator

    def add(self, total: ckks.Aggregator, frame: bytes) -> None:
        """Parse, check and add a frame."""
        total.add(frame)

    def close(self, total: ckks.Aggregator) -> ckks.Total:
        """Return the total's frame."""
        return total.total()

    def open(self, closed: ckks.Total) -> NDArray[np.float64]:
        """Parse, check and open a total's frame."""
        return self._authority.open(closed)

    def check(self, opened: NDArray[np.float64], values: NDArray[np.float32], times: int) -> None:
        """Raise unless the sum of the fixed-point numbers is right to the last bit."""
        expected = np.rint(values.astype(np.float64) * self._step) * (times / self._step)
        if not np.array_equal(opened, expected):
            raise WrongSumError(f"{self.name} opened a wrong sum of {values.size:,} values")
