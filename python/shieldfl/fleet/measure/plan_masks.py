"""Masks that realise a plan: what a measured fleet encrypts, position by position."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shieldfl.errors import ParameterError
from shieldfl.fleet.costs.cost_model import SchemeCosts
from shieldfl.fleet.fleet import IntVector
from shieldfl.fleet.simulate.encryption_plan import EncryptionPlan
from shieldfl.masks import Mask
from shieldfl.paillier import UnionOrder
from shieldfl.selection import positions_in_budget

__all__ = ["PlanMasks", "draw_masks"]

Positions = NDArray[np.int64]


@dataclass(frozen=True)
class PlanMasks:
    """Each client's mask, and each group's common order where masks of its clients differ."""

    clients: tuple[Mask, ...]
    unions: tuple[Mask, ...]
    """Of each group."""
    orders: tuple[UnionOrder | None, ...]
    """Of each group; None where all its clients encrypt the union."""


def draw_masks(
    plan: EncryptionPlan, parameters: int, scheme: SchemeCosts, overlap: float, seed: int = 0
) -> PlanMasks:
    """Draw masks with the plan's numbers: of positions at each client, and of positions in each group's union.

    A union is a random set of positions. Where its clients' masks differ, the first ones of a share ``overlap`` of
    each mask are common, and the rest lies at random in what is left of the union, as
    :func:`shieldfl.fleet.simulate.encryption_plan.packed_fields` takes it to be.

    Raises ParameterError for a union that the masks cannot fill.
    """
    generator = np.random.default_rng(seed)
    chosen: list[Mask] = [Mask.empty(parameters)] * plan.values.size
    unions: list[Mask] = []
    orders: list[UnionOrder | None] = []
    for group, count in enumerate(plan.union_values.tolist()):
        members = np.flatnonzero(plan.groups == group)
        union = generator.permutation(parameters)[:count].astype(np.int64)
        unions.append(Mask.from_indices(union, parameters))
        shared = not scheme.adds_clear_values or bool(np.all(plan.values[members] == count))
        if shared or not plan.sends_mask:
            masks = [unions[-1]] * members.size
            orders.append(None)
        else:
            sets = _cover(plan.values[members], count, overlap, generator)
            masks = [Mask.from_indices(union[own], parameters) for own in sets]
            orders.append(UnionOrder.from_masks(masks))
        for client, mask in zip(members.tolist(), masks, strict=True):
            chosen[client] = mask
    return PlanMasks(tuple(chosen), tuple(unions), tuple(orders))


def _cover(counts: IntVector, union: int, overlap: float, generator: np.random.Generator) -> list[Positions]:
    """Choose ``counts`` indices below ``union`` for each client so that each index is somebody's."""
    if int(counts.max()) > union or int(counts.sum()) < union:
        raise ParameterError(f"masks of {counts.sum():,} positions cannot have a union of {union:,}")
    masks = np.zeros((counts.size, union), dtype=np.bool_)
    for mask, count in zip(masks, counts.tolist(), strict=True):
        first = positions_in_budget(overlap, count)
        mask[:first] = True
        mask[first + generator.permutation(union - first)[: count - first]] = True
    # Who has a position that others have too gives it away for one that nobody has.
    missing = np.flatnonzero(~masks.any(axis=0))
    for mask in masks:
        spare = np.flatnonzero(mask & (masks.sum(axis=0) > 1))[::-1][: missing.size]
        mask[spare] = False
        mask[missing[: spare.size]] = True
        missing = missing[spare.size :]
    return [np.flatnonzero(mask) for mask in masks]
