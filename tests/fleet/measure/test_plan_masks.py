from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.fleets import SCHEME, client, fleet_of
from shieldfl.errors import ParameterError
from shieldfl.fleet.measure.plan_masks import draw_masks
from shieldfl.fleet.simulate.encryption_plan import MaskSettings, plan_encryption

FLEET = fleet_of(
    client("fast", cluster="a"),
    client("slow", cluster="a", cpu_share=0.1, count=2),
    client("alone", cluster="b"),
    parameters=2000,
)
FLOOR = MaskSettings(mask_overlap=0.5)


@pytest.mark.parametrize("method", ["plaintext", "mask-crypt", "fedml-he", "full-he"])
def test_uniform_masks_are_the_union(method):
    plan = plan_encryption(method, FLEET, SCHEME, FLOOR)
    masks = draw_masks(plan, 2000, SCHEME, 0.5)
    assert {mask.count for mask in masks.clients} == set(plan.values.tolist())
    assert all(mask == masks.unions[0] for mask in masks.clients)
    assert masks.orders == (None,)


def test_masks_of_different_clients_have_the_plans_numbers():
    plan = plan_encryption("sense-crypt", FLEET, SCHEME, FLOOR)
    masks = draw_masks(plan, 2000, SCHEME, 0.5, seed=3)
    assert [mask.count for mask in masks.clients] == plan.values.tolist()
    assert len(set(plan.values[:3].tolist())) > 1
    for group, (union, order) in enumerate(zip(masks.unions, masks.orders, strict=True)):
        together = np.any(
            [masks.clients[one].to_bool() for one in np.flatnonzero(plan.groups == group)], axis=0
        )
        assert np.array_equal(together, union.to_bool())
        assert union.count == plan.union_values[group]
        assert order is None or order.mask == union
    assert masks.orders[0] is not None
    assert masks.orders[1] is None


def test_where_ciphertexts_take_no_plain_numbers_all_encrypt_the_union():
    rigid = replace(SCHEME, adds_clear_values=False)
    plan = plan_encryption("sense-crypt", FLEET, rigid, FLOOR)
    masks = draw_masks(plan, 2000, rigid, 0.5)
    assert masks.orders == (None, None)
    assert all(mask == masks.unions[group] for mask, group in zip(masks.clients, plan.groups, strict=True))


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=6).filter(any),
    st.floats(0.0, 1.0),
    st.floats(0.0, 1.0),
    st.integers(0, 5),
)
def test_any_counts_and_unions_that_fit_are_met(counts, overlap, between, seed):
    least, most = max(counts), min(sum(counts), 100)
    union = round(least + between * (most - least))
    plan = plan_encryption("sense-crypt", fleet_of(client("a", count=len(counts)), parameters=100), SCHEME)
    plan = replace(plan, values=np.array(counts), union_values=np.array([union]))
    masks = draw_masks(plan, 100, SCHEME, overlap, seed)
    assert [mask.count for mask in masks.clients] == counts
    assert np.count_nonzero(np.any([mask.to_bool() for mask in masks.clients], axis=0)) == union


def test_a_union_that_nobody_fills():
    plan = plan_encryption("sense-crypt", fleet_of(client("a", count=2)), SCHEME)
    for union in (5, 1):
        with pytest.raises(ParameterError, match="cannot have a union"):
            draw_masks(
                replace(plan, values=np.array([2, 1]), union_values=np.array([union])), 100, SCHEME, 0.5
            )
