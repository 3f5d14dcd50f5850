"""The plan of noise of a sum: it fits its bits, rounding costs little, and what it is charged is what it has."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest
from scipy import stats

from shieldfl.errors import ParameterError
from shieldfl.methods.encryption_settings import FixedPoint, update_parameters
from shieldfl.privacy.accountant import epsilon_of, noise_multiplier_for
from shieldfl.privacy.events import Noise, NoiseOfSum
from shieldfl.privacy.noise import rotation_seed
from shieldfl.privacy.sum_noise import fewest_honest, log2_tail, multiplier_for, planned_sum_noise

DELTA = 1e-5
BOTH = pytest.mark.parametrize("distribution", ["skellam", "discrete-gaussian"])


def planned(distribution="skellam", **changed):
    usual = {"clip_norm": 1.0, "noise_multiplier": 1.0, "dimension": 10**6}
    usual |= {"honest_clients": 100, "clients": 100}
    return planned_sum_noise(distribution, **(usual | changed))


@BOTH
def test_a_plan_for_samples_is_that_for_clients_and_a_target_takes_twice_the_noise(distribution):
    for_clients, for_samples = planned(distribution), planned(distribution, unit="sample")
    assert for_samples == replace(for_clients, unit="sample")
    assert for_samples.charge == replace(for_clients.charge, unit="sample")
    found = {
        unit: multiplier_for(
            4.0,
            DELTA,
            10,
            lambda multiplier, unit=unit: planned(distribution, noise_multiplier=multiplier, unit=unit),
        )
        for unit in ("client", "sample")
    }
    assert found["sample"] == pytest.approx(2.0 * found["client"], rel=0.06)
    spent = planned(distribution, noise_multiplier=found["sample"], unit="sample").epsilon(10, DELTA)
    assert 0.95 * 4.0 <= spent <= 4.0


@BOTH
@pytest.mark.parametrize("noise_multiplier", [1e-6, 0.5, 3.0])
@pytest.mark.parametrize(("dimension", "honest_clients"), [(1, 1), (333, 2), (10**6, 100)])
def test_a_plan_has_the_noise_that_was_asked_for_and_room_for_it(
    distribution, noise_multiplier, dimension, honest_clients
):
    shape = {"dimension": dimension, "honest_clients": honest_clients}
    plan = planned(distribution, clip_norm=2.5, noise_multiplier=noise_multiplier, **shape)
    assert plan.noise_multiplier == pytest.approx(noise_multiplier)
    assert plan.share_variance == Fraction(int(plan.share_variance))
    room = plan.most_sent - plan.most_rounded
    assert log2_tail(distribution, int(plan.share_variance), room) <= -110.0
    assert plan.most_sent == 2 ** (plan.value_bits - 1) - 1
    norm_squared = (plan.steps_per_unit * plan.clip_norm) ** 2
    assert norm_squared <= plan.norm_bound_squared <= 1.1 * norm_squared + 1
    charge = plan.charge
    assert charge == NoiseOfSum(
        distribution,
        honest_clients,
        int(plan.share_variance),
        plan.norm_bound_squared,
        dimension,
        math.log2(honest_clients * dimension) - 109.0,
    )
    deviation = math.sqrt(charge.honest_clients * charge.share_variance)
    assert deviation / math.sqrt(norm_squared) == pytest.approx(noise_multiplier)


@pytest.mark.parametrize("honest_clients", [9, 54])
def test_a_norm_that_floats_make_a_hair_longer_has_room_too(honest_clients):
    """Here the norm is a whole number of steps, and steps per unit times the norm in units are above it."""
    plan = planned(noise_multiplier=0.25, clip_norm=0.7, honest_clients=honest_clients, dimension=4096)
    room = plan.most_sent - plan.most_rounded
    assert log2_tail("skellam", int(plan.share_variance), room) <= -110.0


@BOTH
@pytest.mark.parametrize("clients", [1, 2, 7, 100, 1000, 2**20])
def test_a_sum_has_room_for_what_its_clients_come_to_and_for_no_more(distribution, clients):
    plan = planned(distribution, honest_clients=min(clients, 100), clients=clients)
    assert plan.value_bits <= plan.sum_bits <= plan.value_bits + (clients - 1).bit_length()
    for bits, fits in ((plan.sum_bits, True), (plan.sum_bits - 1, False)):
        left = 2 ** (bits - 1) - 1 - clients * plan.most_rounded
        chance = 10**6 * 2.0 ** log2_tail(distribution, clients * int(plan.share_variance), max(left, 0))
        assert (left >= 0 and chance <= 2.0**-40) == fits
        if fits:
            assert plan.log2_chance_of_too_large_sum == pytest.approx(math.log2(chance))
        narrower = replace(plan, sum_bits=bits)
        assert (narrower.log2_chance_of_too_large_sum <= -40.0) == fits
    for bits in range(2, plan.value_bits):
        assert replace(plan, value_bits=bits).log2_chance_of_cut_draw > -110.0


@BOTH
def test_where_sums_have_room_for_any_value_the_bits_of_a_value_decide(distribution):
    """As under ckks and Paillier: fewer than where a sum's do, which then are what is sent."""
    for multiplier, honest in ((2.0, 10), (0.5, 100), (16.0, 100)):
        shape = {"noise_multiplier": multiplier, "honest_clients": honest, "dimension": 4010}
        plan, of_sums = (planned(distribution, clients=clients, **shape) for clients in (None, 2 * honest))
        assert plan.value_bits <= of_sums.value_bits
        assert (plan.sum_bits, plan.log2_chance_of_too_large_sum) == (None, -math.inf)
        assert plan.log2_chance_of_cut_draw <= -110.0
        # The finest steps that fit: in a bit less none is fine enough.
        coarser = replace(
            plan, share_variance=plan.share_variance / 4, steps_per_unit=plan.steps_per_unit / 2
        )
        norm_squared = (coarser.steps_per_unit * coarser.clip_norm) ** 2
        assert coarser.norm_bound_squared > 1.03 * norm_squared
    shape = {"noise_multiplier": 2.0, "honest_clients": 10, "dimension": 4010}
    assert (
        planned(distribution, clients=None, **shape).value_bits
        < planned(distribution, clients=20, **shape).value_bits
    )


def test_the_chance_of_a_too_large_sum_is_above_the_true_one():
    """Of Skellam noise, whose sum is Skellam noise again; and one where nothing is left for it."""
    plan = planned(dimension=4, honest_clients=3, clients=5, noise_multiplier=0.2)
    variance, without = 5 * int(plan.share_variance), 5 * plan.most_rounded
    for bits in range(plan.sum_bits - 5, plan.sum_bits):
        stated = 2.0 ** replace(plan, sum_bits=bits).log2_chance_of_too_large_sum
        most = 2 ** (bits - 1) - 1
        if most < without:
            assert stated == 1.0
            continue
        true = 2.0 * stats.skellam.sf(most - without, variance / 2.0, variance / 2.0)
        assert 4.0 * true <= stated < 1e3 * true


def test_what_is_sent_takes_less_than_three_bytes_a_value_with_a_thousand_clients():
    """Of full ciphertexts, chosen for a million values of a hundred honest clients; by the default scheme."""
    # 18.6 is what epsilon 1 takes in docs/reference/methods/ddp-fedavg-results.md.
    for multiplier, clients, most in (
        (0.5, 1000, 2.36),
        (18.6, 1000, 2.89),
        (0.5, 101, 2.19),
        (18.6, 101, 2.61),
    ):
        plan = planned(noise_multiplier=multiplier, clients=clients)
        bits = FixedPoint(plan.value_bits, 0)
        count = {"count": 10**6, "most_count": 10**6}
        found = update_parameters("kahe", clients, bits, **count, sum_bits=plan.sum_bits)
        assert found.bytes_per_value <= most


@BOTH
def test_the_table_is_as_near_its_distribution_as_is_charged(distribution):
    plan = planned(distribution, dimension=100, honest_clients=4)
    assert (plan.table.distribution, plan.table.variance) == (distribution, plan.share_variance)
    assert plan.table.log2_distance <= -110.0


@BOTH
@pytest.mark.parametrize(("epsilon", "rounds"), [(0.5, 1), (3.0, 20), (8.0, 100)])
def test_a_target_is_reached_and_not_by_far(distribution, epsilon, rounds):
    shape = {"dimension": 20_000, "honest_clients": 10}
    found = multiplier_for(
        epsilon, DELTA, rounds, lambda one: planned(distribution, noise_multiplier=one, **shape)
    )
    plan = planned(distribution, noise_multiplier=found, **shape)
    assert 0.9 * epsilon < plan.epsilon(rounds, DELTA) <= epsilon
    assert planned(distribution, noise_multiplier=0.9 * found, **shape).epsilon(rounds, DELTA) > epsilon
    # Against noise that every client adds alone, rounding costs a twentieth at most.
    assert 1.0 <= found / noise_multiplier_for(epsilon, DELTA, rounds) < 1.06
    added = plan.added_delta(rounds, DELTA)
    assert 0.0 < added < DELTA / 1024


def test_more_colluders_mean_larger_shares_and_an_opened_share_costs_more():
    honest = planned(honest_clients=100)
    fewer = planned(honest_clients=50)
    norm, other = (one.steps_per_unit * one.clip_norm for one in (honest, fewer))
    ratio = float(fewer.share_variance) / other**2 / (float(honest.share_variance) / norm**2)
    assert ratio == pytest.approx(2.0)
    plan = planned(noise_multiplier=20.0, dimension=100, honest_clients=9)
    whole, share = plan.epsilon(1, DELTA), plan.epsilon_of_single_uploads(1, DELTA)
    # A ninth of the variance: a third of the multiplier.
    assert share == pytest.approx(epsilon_of({Noise(20.0 / 3.0, "client"): 1}, DELTA), rel=0.05)
    assert share > 2.5 * whole


def test_what_cannot_be_says_what_would_do():
    with pytest.raises(ParameterError, match="min_clients of at least 6, not 4"):
        fewest_honest(4, 5)
    assert fewest_honest(4, 3) == 1
    for multiplier in (1e-12, 1e6, 1e-40):
        with pytest.raises(ParameterError, match="no grid fits"):
            planned(noise_multiplier=multiplier)

    def small(noise_multiplier):
        return planned(noise_multiplier=noise_multiplier, dimension=10, honest_clients=2)

    with pytest.raises(ParameterError, match="reaches epsilon 200"):
        multiplier_for(200.0, DELTA, 10, small)
    with pytest.raises(ParameterError, match="allow a larger epsilon"):
        multiplier_for(1e-12, DELTA, 10, small)


def test_too_little_noise_has_no_figure():
    plan = planned(noise_multiplier=0.05)
    assert math.isinf(plan.epsilon(1, DELTA))
    assert plan.added_delta(1, DELTA) is None


def test_every_session_and_round_has_its_rotation():
    seeds = {rotation_seed(session * 16, number) for session in (b"a", b"b") for number in (1, 2)}
    assert [len(one) for one in seeds] == [32] * 4
