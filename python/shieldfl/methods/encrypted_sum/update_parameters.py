"""Encryption parameters of the updates that a method averages, by the name of the scheme."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta

from shieldfl.scheme.interface import SumNeeds
from shieldfl.scheme.registry import scheme_named
from shieldfl.settings import Settings, about

__all__ = ["FixedPoint", "update_parameters"]


@dataclass(frozen=True)
class FixedPoint(Settings):
    """How values are quantised before they are encrypted."""

    value_bits: Annotated[int, Meta(ge=2, le=40), about("Bits of an encrypted value.")] = 24
    fraction_bits: Annotated[
        int, Meta(ge=0, le=52), about("Bits of an encrypted value behind the binary point.")
    ] = 20


def update_parameters(encryption: str, clients: int, fixed_point: FixedPoint, **needs: Any) -> Any:
    """Return the parameters for sums over so many clients.

    Parameters
    ----------
    encryption : one of :func:`shieldfl.scheme.registry.encryptions`.
    needs : the other fields of :class:`shieldfl.scheme.interface.SumNeeds`.

    Raises ParameterError for an unknown name and what the scheme refuses.
    """
    asked = SumNeeds(
        clients=clients,
        value_bits=fixed_point.value_bits,
        fraction_bits=fixed_point.fraction_bits,
        **needs,
    )
    return scheme_named(encryption).update_parameters(encryption, asked)
