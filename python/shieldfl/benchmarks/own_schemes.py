"""Our side of the comparisons: CKKS's parameter sets, Paillier's packings, look-ups, engines and randomisers."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import shieldfl._core as _core
from shieldfl import ckks, paillier
from shieldfl.benchmarks.scheme import FRACTION_BITS, VALUE_BITS, Scheme, Selection
from shieldfl.roles.key_authority import KeyAuthority
from shieldfl.scheme.registry import scheme_of

__all__ = ["OwnScheme", "authority_of", "own_ckks", "paillier_parameters", "parameter_sets"]

Packing = Literal["single", "dense"]
Randomizer = Literal["short-exponent", "classical"]


def parameter_sets() -> dict[str, ckks.Parameters]:
    """Return what of CKKS is compared by default, under the names of the tables; equal sets share a name."""
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


def paillier_parameters(
    key_bits: int, packing: Packing = "single", randomizer: Randomizer = "short-exponent"
) -> paillier.Parameters:
    """Return what of Paillier is compared: 24-bit values, 20 bits of them behind the point, 64 clients."""
    return paillier.Parameters(
        key_bits=key_bits,
        packing=packing,
        max_clients=64,
        value_bits=VALUE_BITS,
        fraction_bits=FRACTION_BITS,
        randomizer=randomizer,
    )


def authority_of(parameters: ckks.Parameters | paillier.Parameters, threads: int) -> KeyAuthority:
    """Return an authority that opens as often as it is asked.

    Each repetition sums anew, which the protection against two totals of one round would stop. Its work, a digest of
    the total, is done and timed all the same.
    """
    return KeyAuthority(parameters, min_clients=1, one_total_per_round=False, threads=threads)


def own_ckks(threads: int) -> list[OwnScheme]:
    """Return a scheme for each parameter set; the first one is the default, which others are compared with."""
    return [
        OwnScheme(name, authority_of(parameters, threads), threads)
        for name, parameters in parameter_sets().items()
    ]


class OwnScheme(Scheme):
    """Our library under the key of an authority, which other schemes may share: Paillier's take seconds to make.

    Parameters
    ----------
    ciphertexts : how many ciphertexts it is timed on; None for the whole update, the mask included.
    engine : "gmp" for Paillier's that needs no particular processor; None for the fastest.
    options : of the encryptor, such as ``lookups_vartime``.
    """

    own = True
    untimed = frozenset()

    def __init__(
        self,
        name: str,
        authority: KeyAuthority,
        threads: int,
        ciphertexts: int | None = None,
        *,
        engine: str | None = None,
        **options: Any,
    ) -> None:
        parameters = authority.public_key.parameters
        setting = repr(parameters)
        if engine is not None:
            setting += f", encrypting and adding with engine={engine!r}, decrypting with the fastest"
        setting += "".join(f", {option}={value!r}" for option, value in options.items())
        in_one = parameters.values_per_ciphertext
        super().__init__(
            f"shieldfl {name}",
            setting,
            None if ciphertexts is None else ciphertexts * in_one,
            values_per_ciphertext=in_one,
            fraction_bits=parameters.fraction_bits,
        )
        self._authority = authority
        self._public_key = authority.public_key
        if engine is not None:
            frame = authority.public_key.to_bytes()
            self._public_key = paillier.PublicKey(_core.PaillierPublicKey.from_bytes(frame, engine=engine))
        self._threads = threads
        self._scheme = scheme_of(parameters)
        self.encryptor = self._scheme.Encryptor(self._public_key, threads, **options)

    def encrypt(self, selection: Selection) -> Any:
        """Encrypt; the frame is made in the same pass."""
        if self.most_values is None:
            return self.encryptor.encrypt(selection.update, selection.mask)
        return self.encryptor.encrypt(self.sample(selection))

    def serialise(self, encrypted: Any) -> bytes:
        """Return the frame that is there already, header and checksum included."""
        frame: bytes = encrypted.to_bytes()
        return frame

    def start_sum(self, frame: bytes) -> Any:
        """Make an aggregator that holds one frame."""
        aggregator = self._scheme.Aggregator(self._public_key, self._threads)
        aggregator.add(frame)
        return aggregator

    def add(self, total: Any, frame: bytes) -> None:
        """Parse, check and add a frame."""
        total.add(frame)

    def add_with_clear(self, total: Any, loaded: bytes, clear: NDArray[np.float32]) -> None:
        """Parse, check and add a frame and what its client sent in the clear."""
        total.add(loaded, clear=clear)

    def close(self, total: Any) -> Any:
        """Return the total's frame."""
        return total.total()

    def open(self, closed: Any) -> NDArray[np.float64]:
        """Parse, check and open a total's frame."""
        return self._authority.open(closed)
