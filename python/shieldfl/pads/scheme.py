"""One-time pads as the registry has them."""

from __future__ import annotations

from typing import Any

import shieldfl._core as _core
from shieldfl.pads.encryption import Aggregator, Encryptor, Total
from shieldfl.pads.keys import ClientKey
from shieldfl.pads.parameters import Parameters, PublicKey
from shieldfl.scheme.enrolled_scheme import EnrolledScheme
from shieldfl.scheme.interface import Fact, SumNeeds
from shieldfl.scheme.weight_bits import weighted_parameters

__all__ = ["SCHEME", "Pads"]


class Pads(EnrolledScheme):
    """Each client adds a pad that it shares with the key authority; the sum of these opens a total, and that alone."""

    name = "pads"
    Parameters = Parameters
    PublicKey = PublicKey
    ClientKey = ClientKey
    Encryptor = Encryptor
    Aggregator = Aggregator
    Total = Total
    opening = "shieldfl.pads.opening"
    encryptions = ("pads",)
    rounds_answers_are_kept = 1
    _core_ciphertext = _core.PadsCiphertext
    _core_request = _core.PadsSumRequest

    def calibrated_parameters(self, encryption: str, key_bits: int) -> Any:
        """Return the default ones."""
        return Parameters()

    def update_parameters(self, encryption: str, needs: SumNeeds) -> Any:
        """Return parameters with bits for weights while there is room."""
        return weighted_parameters(Parameters, needs)

    def _sum_key_facts(self, unit: int, count: int) -> dict[str, Fact]:
        return {"bits of a word": unit, "words": count}


SCHEME = Pads()
