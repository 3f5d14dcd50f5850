"""Settings of methods that encrypt the same positions at every client."""

from __future__ import annotations

from dataclasses import dataclass

from shieldfl.array_view import as_real, as_unsigned
from shieldfl.errors import ParameterError
from shieldfl.methods.encrypted_sum.update_parameters import ENCRYPTIONS, FixedPoint

__all__ = ["EncryptionSettings", "FedMlHeSettings", "MaskCryptSettings"]


@dataclass(frozen=True)
class EncryptionSettings:
    """How updates are encrypted. Raises ParameterError for values out of range."""

    encryption: str = "ckks"
    """``"ckks"``, ``"paillier-dense"`` or ``"paillier-single"``."""
    key_bits: int = 3072
    """Of a Paillier modulus."""
    value_bits: int = 24
    """Of an encrypted value."""
    fraction_bits: int = 20
    """Of an encrypted value, behind the binary point."""

    def __post_init__(self) -> None:
        """Check what no other part checks before the first round."""
        if self.encryption not in ENCRYPTIONS:
            raise ParameterError(f"encryption must be one of {', '.join(ENCRYPTIONS)}")
        for name in ("key_bits", "value_bits", "fraction_bits"):
            as_unsigned(getattr(self, name), name)

    @property
    def fixed_point(self) -> FixedPoint:
        """How values are quantised."""
        return FixedPoint(self.value_bits, self.fraction_bits)


@dataclass(frozen=True)
class FedMlHeSettings(EncryptionSettings):
    """FedML-HE's settings."""

    ratio: float = 0.1
    """p: the share of the parameters that is encrypted, those with the highest sensitivity."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_ratio(self.ratio)


@dataclass(frozen=True)
class MaskCryptSettings(EncryptionSettings):
    """MaskCrypt's settings."""

    ratio: float = 0.1
    """p: the share of the parameters that each client proposes and, where ``cut``, that is encrypted."""
    cut: bool = True
    """Cut the consensus to the share p, as the paper's budget wants; published code takes the whole union."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_ratio(self.ratio)
        if not isinstance(self.cut, bool):
            raise ParameterError("cut must be True or False")


def _check_ratio(ratio: float) -> None:
    if not 0.0 < as_real(ratio, "ratio") <= 1.0:
        raise ParameterError("ratio must be above 0 and at most 1")
