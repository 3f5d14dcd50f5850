"""How updates are encrypted: settings, and the parameters that follow from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta

from shieldfl.encryption.parameters import SumNeeds
from shieldfl.encryption.registry import (
    DEFAULT_ENCRYPTION,
    DEFAULT_KEY_BITS,
    KeyBits,
    encryptions,
    scheme_named,
    weighing_encryptions,
)
from shieldfl.errors import ParameterError
from shieldfl.settings import Settings, Share, about

__all__ = [
    "EncryptionSettings",
    "FedMlHeSettings",
    "FixedPoint",
    "MaskCryptSettings",
    "WeighedEncryption",
    "update_parameters",
]


@dataclass(frozen=True)
class FixedPoint(Settings):
    """How values are quantised before they are encrypted."""

    value_bits: Annotated[
        int,
        Meta(ge=2, le=40),
        about(
            "Bits of an encrypted value, sign included. A client with a value out of range leaves the round."
        ),
    ] = 24
    fraction_bits: Annotated[int, Meta(ge=0, le=52), about("Fractional bits of an encrypted value.")] = 20
    buffer_range_bits: Annotated[
        int,
        Meta(ge=0, le=40),
        about(
            "Extra range, in bits, of buffers such as BatchNorm's statistics. Each bit doubles the largest "
            "change in a round, and the rounding step. For runs that encrypt buffers."
        ),
    ] = 4
    """The default allows a change up to 128; half a step is less than BatchNorm adds to every variance."""

    @property
    def buffer_factor(self) -> float:
        """Factor of buffers before they are encrypted, a power of two."""
        return 2.0**-self.buffer_range_bits


Encryption = Annotated[str, about("Encryption scheme and packing.", choices=encryptions)]
WeighedEncryption = Annotated[str, about("Encryption scheme.", choices=weighing_encryptions)]
"""Encryption of updates beside which weights travel encrypted."""
PaillierBits = Annotated[KeyBits, about("Bits of the Paillier modulus.")]


@dataclass(frozen=True)
class EncryptionSettings(FixedPoint):
    """How updates are encrypted."""

    encryption: Encryption = DEFAULT_ENCRYPTION
    key_bits: PaillierBits = DEFAULT_KEY_BITS


@dataclass(frozen=True)
class FedMlHeSettings(EncryptionSettings):
    """FedML-HE's settings."""

    ratio: Annotated[
        Share,
        about(
            "Share of the parameters that is encrypted: the ones with the highest sensitivity.", symbol="p"
        ),
    ] = 0.1


@dataclass(frozen=True)
class MaskCryptSettings(EncryptionSettings):
    """MaskCrypt's settings."""

    ratio: Annotated[
        Share,
        about(
            "Share of the parameters that each client proposes. If cut is true, the same share is encrypted.",
            symbol="p",
        ),
    ] = 0.1
    cut: Annotated[
        bool,
        about(
            "Cut the consensus mask to the share p, as the paper's budget requires. The published code "
            "encrypts the whole union."
        ),
    ] = True
    gradient: Annotated[
        Literal["full-batch", "update"],
        about(
            "Gradient that scores use. full-batch: the gradient over all local data at the new weights, "
            "as in the paper, which takes another pass over the data. update: the weight's change with "
            "its sign reversed, which costs nothing; under plain SGD it is the sum of the gradients."
        ),
    ] = "full-batch"


_IN_A_RUN = {"max_clients": "the most clients of a round", "max_weight": "the largest weight of a client"}
"""A run's words for a scheme's arguments, in errors; bits are settings under the same names."""


def update_parameters(encryption: str, clients: int, fixed_point: FixedPoint, **needs: Any) -> Any:
    """Return the parameters for sums over at most so many clients.

    Parameters
    ----------
    encryption : one of :func:`shieldfl.encryption.registry.encryptions`.
    needs : the other fields of :class:`shieldfl.encryption.parameters.SumNeeds`.

    Raises ParameterError for an unknown name and what the scheme refuses.
    """
    asked = SumNeeds(
        clients=clients, value_bits=fixed_point.value_bits, fraction_bits=fixed_point.fraction_bits, **needs
    )
    try:
        return scheme_named(encryption).update_parameters(encryption, asked)
    except ParameterError as error:
        text = str(error)
        for argument, words in _IN_A_RUN.items():
            text = text.replace(argument, words)
        raise ParameterError(text) from None
