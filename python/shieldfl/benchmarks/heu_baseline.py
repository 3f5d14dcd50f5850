"""SecretFlow's HEU, the fastest library of Paillier's scheme that is installed by pip."""

from __future__ import annotations

import importlib
from importlib import metadata
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shieldfl.benchmarks.scheme import FRACTION_BITS, Scheme, Selection, from_fixed_point, to_fixed_point
from shieldfl.installing import how_to_install

__all__ = ["HOW_TO_INSTALL", "PACKAGES", "HeuBaseline", "heu_baselines"]

PACKAGES = ("heu", "heu.phe", "heu.numpy")
HOW_TO_INSTALL = f"HEU is not installed: {how_to_install('heu')}"


def heu_baselines(key_bits: int, ciphertexts: int) -> list[HeuBaseline]:
    """Return HEU's Paillier and, for information, the scheme of Okamoto and Uchiyama, whose ciphertexts are smaller.

    They use all cores that the process is bound to, however many threads anybody asks for. Raises ModuleNotFoundError
    where HEU is not installed.
    """
    phe, arrays = (importlib.import_module(f"heu.{part}") for part in ("phe", "numpy"))
    return [HeuBaseline(phe, arrays, schema, key_bits, ciphertexts) for schema in ("ZPaillier", "OU")]


class HeuBaseline(Scheme):
    """Whole arrays, which HEU spreads over its threads by itself."""

    def __init__(self, phe: Any, arrays: Any, schema: str, key_bits: int, ciphertexts: int) -> None:
        super().__init__(
            f"HEU {schema}",
            f"sf-heu {metadata.version('sf-heu')}, {schema}, {key_bits} bits, on all cores of its process",
            ciphertexts,
            fraction_bits=FRACTION_BITS,
        )
        self._kit = arrays.setup(getattr(phe.SchemaType, schema), key_bits)
        self._arrays = arrays
        self._encoder = self._kit.integer_encoder(1)
        self._encryptor, self._evaluator = self._kit.encryptor(), self._kit.evaluator()
        self._decryptor = self._kit.decryptor()

    def _encode(self, values: NDArray[np.float32]) -> Any:
        return self._kit.array(to_fixed_point(values), self._encoder)

    def encrypt(self, selection: Selection) -> Any:
        """Encode and encrypt."""
        return self._encryptor.encrypt(self._encode(self.sample(selection)))

    def serialise(self, encrypted: Any) -> bytes:
        """Serialise in the format that HEU finds best."""
        frame: bytes = encrypted.serialize()
        return frame

    def load(self, frame: bytes) -> Any:
        """Parse."""
        return self._arrays.CiphertextArray.load_from(frame)

    def start_sum(self, frame: bytes) -> list[Any]:
        """Load the first frame; the list makes room for the array that ``add`` returns."""
        return [self.load(frame)]

    def add(self, total: list[Any], frame: Any) -> None:
        """Add."""
        total[0] = self._evaluator.add(total[0], frame)

    def add_with_clear(self, total: list[Any], loaded: Any, clear: NDArray[np.float32]) -> None:
        """Add the encoded values to the ciphertexts, and these to the sum."""
        total[0] = self._evaluator.add(total[0], self._evaluator.add(loaded, self._encode(clear)))

    def open(self, closed: list[Any]) -> NDArray[np.float64]:
        """Decrypt and decode."""
        return from_fixed_point(self._decryptor.decrypt(closed[0]).to_numpy(self._encoder))
