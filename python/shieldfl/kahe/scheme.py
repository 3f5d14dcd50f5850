"""Key-additive encryption as the registry has it."""

from __future__ import annotations

import shieldfl._core as _core
from shieldfl.kahe.encryption import Aggregator, Encryptor, Total
from shieldfl.kahe.keys import ClientKey
from shieldfl.kahe.parameters import Parameters, PublicKey
from shieldfl.scheme.enrolled_scheme import EnrolledScheme
from shieldfl.scheme.interface import Fact, SumNeeds
from shieldfl.scheme.ring_scheme import RingScheme

__all__ = ["SCHEME", "Kahe"]


class Kahe(EnrolledScheme, RingScheme):
    """Each client enrols once, and shares a key with the key authority; what opens a total opens that alone."""

    name = "kahe"
    Parameters = Parameters
    PublicKey = PublicKey
    ClientKey = ClientKey
    Encryptor = Encryptor
    Aggregator = Aggregator
    Total = Total
    opening = "shieldfl.kahe.opening"
    encryptions = ("kahe",)
    _core_ciphertext = _core.KaheCiphertext
    _core_request = _core.KaheSumRequest

    def _planned_count(self, needs: SumNeeds) -> int | None:
        """Return the most that there can be where the count is not known: rings differ by more than four to one."""
        return needs.most_count if needs.count is None else needs.count

    def _sum_key_facts(self, unit: int, count: int) -> dict[str, Fact]:
        return {"ring degree": unit, "secret polynomials": count // unit}


SCHEME = Kahe()
