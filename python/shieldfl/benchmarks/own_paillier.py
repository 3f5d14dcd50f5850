"""Our side of the comparison of Paillier: packings, look-ups, engines and randomisers, each by its name."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

import shieldfl._core as _core
from shieldfl import paillier
from shieldfl.benchmarks.paillier_scheme import FRACTION_BITS, VALUE_BITS, PaillierScheme
from shieldfl.benchmarks.scheme import Selection
from shieldfl.roles.key_authority import KeyAuthority

__all__ = ["OwnPaillier", "paillier_parameters"]

Packing = Literal["single", "dense"]
Randomizer = Literal["short-exponent", "classical"]


def paillier_parameters(
    key_bits: int, packing: Packing = "single", randomizer: Randomizer = "short-exponent"
) -> paillier.Parameters:
    """Return what is compared: 24-bit values, 20 bits of them behind the point, 64 clients."""
    return paillier.Parameters(
        key_bits=key_bits,
        packing=packing,
        max_clients=64,
        value_bits=VALUE_BITS,
        fraction_bits=FRACTION_BITS,
        randomizer=randomizer,
    )


class OwnPaillier(PaillierScheme):
    """Our library under the key of an authority, which other schemes may share: keys take seconds to make."""

    own = True

    def __init__(
        self,
        name: str,
        authority: KeyAuthority,
        threads: int,
        ciphertexts: int,
        *,
        engine: str | None = None,
        lookups_vartime: bool = False,
    ) -> None:
        """``engine``: "gmp" for the one that needs no particular processor; None for the fastest."""
        parameters = authority.public_key.parameters
        setting = repr(parameters)
        if engine is not None:
            setting += f", encrypting and adding with engine={engine!r}, decrypting with the fastest"
        if lookups_vartime:
            setting += ", lookups_vartime=True"
        super().__init__(f"shieldfl {name}", setting, ciphertexts, parameters.values_per_ciphertext)
        self._authority = authority
        self._public_key = authority.public_key
        if engine is not None:
            frame = authority.public_key.to_bytes()
            self._public_key = paillier.PublicKey(_core.PaillierPublicKey.from_bytes(frame, engine=engine))
        self._threads = threads
        self.encryptor = paillier.Encryptor(self._public_key, threads, lookups_vartime=lookups_vartime)

    def encrypt(self, selection: Selection) -> paillier.CiphertextBatch:
        """Encrypt; the frame is made in the same pass."""
        return self.encryptor.encrypt(self.sample(selection))

    def serialise(self, encrypted: paillier.CiphertextBatch) -> bytes:
        """Return the frame that is there already."""
        return encrypted.to_bytes()

    def size_bytes(self, frame: bytes) -> int:
        """Return the length of the frame, header and checksum included."""
        return len(frame)

    def load(self, frame: bytes) -> bytes:
        """Return the bytes: they are parsed and checked while they are added."""
        return frame

    def start_sum(self, frame: bytes) -> paillier.Aggregator:
        """Make an aggregator that holds one frame."""
        aggregator = paillier.Aggregator(self._public_key, self._threads)
        aggregator.add(frame)
        return aggregator

    def add(self, total: paillier.Aggregator, frame: bytes) -> None:
        """Parse, check and add a frame."""
        total.add(frame)

    def add_with_clear(self, total: paillier.Aggregator, loaded: bytes, clear: NDArray[np.float32]) -> None:
        """Parse, check and add a frame and what its client sent in the clear."""
        total.add(loaded, clear=clear)

    def close(self, total: paillier.Aggregator) -> paillier.Total:
        """Return the total's frame."""
        return total.total()

    def open(self, closed: paillier.Total) -> NDArray[np.float64]:
        """Parse, check and open a total's frame."""
        return self._authority.open(closed)
