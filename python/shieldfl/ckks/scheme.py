"""CKKS as the registry has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import shieldfl._core as _core
from shieldfl.ckks.encryption import Aggregator, Encryptor, Total
from shieldfl.ckks.parameters import Parameters, PublicKey
from shieldfl.scheme.interface import Fact, FrameBody
from shieldfl.scheme.ring_scheme import RingScheme

__all__ = ["SCHEME", "Ckks"]


class Ckks(RingScheme):
    """Its pairs live for one round: one client that tampers with its ciphertexts learns the key from the opened sum."""

    name = "ckks"
    Parameters = Parameters
    PublicKey = PublicKey
    Encryptor = Encryptor
    Aggregator = Aggregator
    Total = Total
    opening = "shieldfl.ckks.opening"
    encryptions = ("ckks",)

    @property
    def frame_readers(self) -> Mapping[str, Callable[[bytes], FrameBody]]:
        """Of public keys, batches and totals."""
        return {
            "ckks public key": self._public_key_body,
            "ckks batch": lambda frame: self._ciphertext_body(_core.CkksCiphertext.batch(frame)),
            "ckks total": lambda frame: self._ciphertext_body(_core.CkksCiphertext.total(frame)),
        }

    def _named(self, facts: Mapping[str, Any]) -> dict[str, Fact]:
        named = super()._named({name: value for name, value in facts.items() if name != "dropped_bits"})
        named["dropped bits of c0"], named["dropped bits of c1"] = facts["dropped_bits"]
        return named


SCHEME = Ckks()
