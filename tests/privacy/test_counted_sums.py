"""What a sum costs that also counts clients within a norm, held against whole distributions of small cases."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from privacy.sum_noise_twin import delta_at, divergence, rounded, shifted, summed
from shieldfl.errors import ParameterError
from shieldfl.privacy.accountant import divergences_of_sum, epsilon_of, noise_multiplier_for
from shieldfl.privacy.sum_noise import SumNoise, log2_tail, multiplier_for, planned_sum_noise

DELTA = 1e-5
ORDERS = (1.1, 2.0, 3.0, 5.5, 8.0)
BOTH = pytest.mark.parametrize("distribution", ["skellam", "discrete-gaussian"])


def planned(distribution="skellam", noise_multiplier=1.0, **changed):
    usual = {
        "clip_norm": 0.7,
        "dimension": 4096,
        "honest_clients": 100,
        "clients": 1000,
        "count_deviation": 0.05,
    }
    return planned_sum_noise(distribution, noise_multiplier, **(usual | changed))


def small(distribution, variance, norm, count_steps):
    """A plan of two honest clients' shares on two values, and a count."""
    return SumNoise(distribution, 1.0, 2, 2, variance, norm, 16, 2, 17, count_steps=count_steps)


@BOTH
@pytest.mark.parametrize("noise_multiplier", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("honest_clients", [9, 100, 1000])
def test_a_count_has_the_noise_that_was_asked_for_and_is_charged(
    distribution, noise_multiplier, honest_clients
):
    plan = planned(distribution, noise_multiplier, honest_clients=honest_clients)
    deviation = math.sqrt(plan.honest_clients * plan.share_variance)
    # One client more within the norm is two halves, and the whole noise is on their sum.
    of_count = deviation / (2 * plan.count_steps)
    assert of_count < 0.05 * honest_clients * (1.0 + 1.0 / plan.count_steps)
    # A single step is the least; what it costs is charged all the same.
    assert of_count >= 0.05 * honest_clients or plan.count_steps == 1
    alone = planned(distribution, noise_multiplier, honest_clients=honest_clients, count_deviation=None)
    assert alone.count_steps == 0
    charge = plan.charge
    assert charge.norm_bound_squared == plan.norm_bound_squared + plan.count_steps**2
    assert charge.dimension == 4096 + 1
    assert charge.log2_distance == pytest.approx(math.log2(honest_clients * 4097) - 109.0)
    # Theorem 1 of Andrew et al., solved for the noise of both together.
    both = (plan.noise_multiplier**-2 + (2.0 * of_count) ** -2) ** -0.5
    assert plan.multiplier_with_count == pytest.approx(both)
    for magnitude in (plan.most_rounded, plan.count_steps):
        room = plan.most_sent - magnitude
        assert log2_tail(distribution, int(plan.share_variance), room) <= -110.0
        together = 2 ** (plan.sum_bits - 1) - 1 - plan.clients * magnitude
        chance = log2_tail(distribution, plan.clients * int(plan.share_variance), together)
        assert chance + math.log2(4097) <= -40.0


@BOTH
@pytest.mark.parametrize("update", [(0.0, 0.0), (2.3, -1.6), (0.4, 1.1)])
@pytest.mark.parametrize("count", [4, -4])
def test_true_divergences_of_update_and_count_are_below_what_is_charged(distribution, update, count):
    """Of every vector that rounding leads to, whether it is counted as within the norm or not, from zeros."""
    plan = small(distribution, 6, math.hypot(2.3, 1.6), 4)
    noise = summed(distribution, 6, plan.honest_clients)
    charge, bound = plan.charge, plan.norm_bound_squared
    charged = divergences_of_sum(charge, orders=ORDERS)
    for vector in rounded(update, bound):
        true = [divergence(noise, (*vector, count), order) for order in ORDERS]
        assert np.all(np.array(true) <= charged * (1.0 + 1e-9))


@BOTH
def test_the_charge_without_the_count_would_be_disproved(distribution):
    plan = small(distribution, 6, 2.0, 6)
    noise = summed(distribution, 6, plan.honest_clients)
    true = np.array([divergence(noise, (2, 0, 6), order) for order in ORDERS])
    assert np.all(
        true
        > divergences_of_sum(replace(plan.charge, norm_bound_squared=plan.norm_bound_squared), orders=ORDERS)
    )
    assert np.all(true <= divergences_of_sum(plan.charge, orders=ORDERS) * (1.0 + 1e-9))


@BOTH
@pytest.mark.parametrize("rounds", [1, 2])
def test_delta_at_the_charged_epsilon_is_no_more_than_claimed(distribution, rounds):
    """Two rounds of which the second has another norm: in steps it is the same, whatever the first round's sum was."""
    plan = small(distribution, 9, 2.0, 4)
    epsilon = epsilon_of({plan.charge: rounds}, 1e-3)
    noise = summed(distribution, 9, plan.honest_clients)
    noise = noise[np.flatnonzero(noise > 1e-7)]
    found = delta_at(noise, (2, 4) * rounds, epsilon)
    assert 0.0 < found <= 1e-3
    there, gone = shifted(noise, 4)
    # A clipping norm that follows from the count tells no more than it does, on whichever side of the grid it falls.
    sides = [np.add.reduceat(one, np.arange(0, one.size, 7)) for one in (there, gone)]
    assert np.maximum(sides[0] - math.exp(epsilon) * sides[1], 0.0).sum() <= found


@BOTH
@pytest.mark.parametrize(("epsilon", "rounds"), [(2.0, 5), (8.0, 50)])
def test_a_target_takes_the_count_into_account(distribution, epsilon, rounds):
    shape = {"honest_clients": 60, "dimension": 20_000}
    found = multiplier_for(epsilon, DELTA, rounds, lambda one: planned(distribution, one, **shape))
    plan = planned(distribution, found, **shape)
    assert 0.9 * epsilon < plan.epsilon(rounds, DELTA) <= epsilon
    alone = multiplier_for(
        epsilon, DELTA, rounds, lambda one: planned(distribution, one, count_deviation=None, **shape)
    )
    assert found > alone
    assert planned(distribution, alone, **shape).epsilon(rounds, DELTA) > epsilon


def test_a_count_that_costs_all_of_epsilon_is_refused():
    """Ten clients' count at the paper's noise has a multiplier of 1, which no noise on updates makes up for."""
    shape = {"honest_clients": 10}
    assert noise_multiplier_for(1.0, DELTA, 20) > 1.0
    with pytest.raises(ParameterError, match="raise clip_count_noise"):
        multiplier_for(1.0, DELTA, 20, lambda one: planned("skellam", one, **shape))
    assert planned("skellam", 5.0, **shape).count_multiplier == pytest.approx(1.0, rel=0.1)
    found = multiplier_for(1.0, DELTA, 20, lambda one: planned("skellam", one, count_deviation=2.0, **shape))
    assert planned("skellam", found, count_deviation=2.0, **shape).epsilon(20, DELTA) <= 1.0


def test_a_norm_that_moves_has_as_many_steps():
    plan = planned()
    assert plan.steps_per_unit_at(plan.clip_norm) == plan.steps_per_unit
    for norm in (1e-3, 0.69, 5.0):
        steps = plan.steps_per_unit * plan.clip_norm
        assert plan.steps_per_unit_at(norm) * norm == pytest.approx(steps, rel=1e-15)
