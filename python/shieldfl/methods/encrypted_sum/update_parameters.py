"""Encryption parameters of the updates that a method averages, by the name of the scheme."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta

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


def update_parameters(
    encryption: str,
    clients: int,
    fixed_point: FixedPoint,
    *,
    count: int | None = None,
    most_weight: int = 1,
    mean_weight: float | None = None,
    key_bits: int = 3072,
    takes_clear_values: bool = False,
) -> Any:
    """Return the parameters for sums over so many clients.

    Parameters
    ----------
    encryption : one of :func:`shieldfl.scheme.registry.encryptions`.
    clients, most_weight : how many clients there are, and the largest weight of one.
    mean_weight : of all clients; None for as much as the largest. Where weights travel encrypted, they are divided by
        the largest; values then get as many bits more as keep the mean of all clients as precise as without weights.
    count : how many values a client encrypts; None where that is not known before the first round.
    key_bits : for schemes with a choice of it.
    takes_clear_values : whether plain numbers are added to ciphertexts.

    Raises ParameterError for an unknown name and what the scheme refuses.
    """
    return scheme_named(encryption).update_parameters(
        encryption,
        clients,
        fixed_point.value_bits,
        fixed_point.fraction_bits,
        count=count,
        most_weight=most_weight,
        mean_weight=mean_weight,
        key_bits=key_bits,
        takes_clear_values=takes_clear_values,
    )
