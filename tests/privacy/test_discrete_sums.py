"""The theorems on sums of discrete noise, held against whole distributions of small cases."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from privacy.sum_noise_twin import delta_at, divergence, excess, rounded, share, summed
from shieldfl.errors import ParameterError
from shieldfl.privacy.accountant import ORDERS, divergences_of_sum, epsilon_of
from shieldfl.privacy.events import Noise, NoiseOfSum
from shieldfl.privacy.sum_noise import log2_tail, most_rotated, rounded_norm_squared

BOTH = pytest.mark.parametrize("distribution", ["skellam", "discrete-gaussian"])
DELTA = 1e-5
TRIED = (1.1, 1.7, 2.0, 2.5, 3.0, 5.5, 8.0, 20.0)
ROUNDING = 1.0 + 1e-9


def claimed(distribution, variance, clients, shifts, orders=TRIED):
    norm_squared = sum(one**2 for one in shifts)
    noise = NoiseOfSum(distribution, clients, variance, norm_squared, len(shifts), -100.0)
    return divergences_of_sum(noise, orders=tuple(orders))


@BOTH
@pytest.mark.parametrize("shifts", [(1,), (5,), (3, 4), (1, 1, 1), (0, -2, 5)])
@pytest.mark.parametrize(("variance", "clients"), [(1, 1), (1, 4), (4, 3), (30, 2)])
def test_claimed_divergences_are_above_the_true_ones(distribution, shifts, variance, clients):
    noise = summed(distribution, variance, clients)
    true = np.array([divergence(noise, shifts, order) for order in TRIED])
    found = claimed(distribution, variance, clients, shifts)
    assert np.all(true <= found * ROUNDING)
    # Not by far: a claim that is lower by a fifth would be disproved.
    if variance * clients > 10:
        assert np.any(true > 0.8 * found)


@BOTH
def test_large_sums_cost_nearly_what_the_gaussian_mechanism_does(distribution):
    found = claimed(distribution, 10**6, 100, (10**4,), ORDERS)
    gaussian = np.asarray(ORDERS) / 2.0
    whole = np.asarray(ORDERS) % 1.0 == 0.0
    assert np.all(found >= gaussian * (1.0 - 1e-12))
    assert np.allclose(found[whole], gaussian[whole], rtol=1e-3)


def test_few_steps_of_deviation_are_charged_for_what_a_sum_of_discrete_gaussians_is_not():
    """The sum of two with a variance of 1 is no discrete Gaussian, and the theorem says by how much."""
    alone, two = (claimed("discrete-gaussian", 1, clients, (1,)) for clients in (1, 2))
    assert np.all(two > alone / 2.0 * 1.0005)
    assert np.all(divergence(summed("discrete-gaussian", 1, 2), (1,), 2.0) <= two[TRIED.index(2.0)])


def noise_of_sum(distribution, variance, clients, norm_squared, dimension, log2_distance=-100.0):
    return NoiseOfSum(distribution, clients, variance, norm_squared, dimension, log2_distance)


@BOTH
@pytest.mark.parametrize(("shifts", "rounds"), [((4,), 1), ((2, 3), 1), ((3,), 3), ((1, 2, 2), 1)])
def test_delta_at_the_claimed_epsilon_is_no_more_than_claimed(distribution, shifts, rounds):
    """Sums of several rounds are a vector with as many values more."""
    variance, clients = 9, 3
    charge = noise_of_sum(distribution, variance, clients, sum(one**2 for one in shifts), len(shifts))
    epsilon = epsilon_of({charge: rounds}, DELTA)
    noise = summed(distribution, variance, clients)
    noise = noise[np.flatnonzero(noise > 1e-12)]  # what is cut is far below delta
    assert delta_at(noise, shifts * rounds, epsilon) <= DELTA
    assert delta_at(noise, shifts * rounds, 0.6 * epsilon) > DELTA


VECTOR = (2.3, -1.6)
BOUND = rounded_norm_squared(math.hypot(*VECTOR), 2)


def opened_sum(distribution, variance, vector, most_sent=20):
    """The distribution of a sum of two: of all that a client does to two values, and of another one's noise."""
    one = share(distribution, variance, 40)

    def cut(value):
        noised = np.zeros(2 * most_sent + 1)
        np.add.at(noised, np.clip(np.arange(-40, 41) + value, -most_sent, most_sent) + most_sent, one)
        return noised

    contribution = rounded(vector, BOUND)
    total = sum(contribution.values())
    own = sum(
        chance / total * np.multiply.outer(*map(cut, values)) for values, chance in contribution.items()
    )
    other, shape = np.multiply.outer(cut(0), cut(0)), (4 * most_sent + 1,) * 2
    return np.fft.irfft2(np.fft.rfft2(own, shape) * np.fft.rfft2(other, shape), shape)


def charged(distribution, variance, unit="client", most_sent=20):
    """What such a sum is charged, with the chance that a draw does not fit."""
    lost = 2 * share(distribution, variance, 40)[np.arange(-40, 41) > most_sent - 3].sum()
    return NoiseOfSum(distribution, 2, variance, BOUND, 2, math.log2(2 * 2 * lost), unit)


@BOTH
def test_delta_holds_for_rounded_updates_with_noise_that_is_cut(distribution):
    """Against zeros in the place of a client's update."""
    outputs = [opened_sum(distribution, 4, vector) for vector in (VECTOR, (0.0, 0.0))]
    for delta in (1e-3, 0.02, 0.2):
        epsilon = epsilon_of({charged(distribution, 4): 1}, delta)
        assert math.isfinite(epsilon)
        assert excess(*outputs, epsilon) <= delta


@BOTH
@pytest.mark.parametrize("without", [(-2.3, 1.6), (0.0, 0.0), (1.6, 2.3), (2.0, -1.9), (-2.8, 0.0)])
def test_delta_holds_for_a_sample_whatever_the_client_sends_without_it(distribution, without):
    """Two updates of the largest norm, each rounded for itself: charged for twice the norm, not for once."""
    assert math.hypot(*without) <= math.hypot(*VECTOR)
    outputs = [opened_sum(distribution, 4, vector, most_sent=30) for vector in (VECTOR, without)]
    of_sample, of_client = (charged(distribution, 4, unit, most_sent=30) for unit in ("sample", "client"))
    for delta in (1e-3, 0.02, 0.2):
        epsilon = epsilon_of({of_sample: 1}, delta)
        assert math.isfinite(epsilon)
        assert excess(*outputs, epsilon) <= delta
    # Opposite ones disprove what zeros in the place of one would cost.
    if without == (-2.3, 1.6):
        assert excess(*outputs, epsilon_of({of_client: 1}, 1e-3)) > 1e-3


def test_a_sample_costs_what_twice_the_norm_does():
    for distribution in ("skellam", "discrete-gaussian"):
        of_client = noise_of_sum(distribution, 400, 4, 1600, 10)
        doubled = replace(of_client, norm_bound_squared=4 * 1600)
        assert epsilon_of({replace(of_client, unit="sample"): 3}, DELTA) == epsilon_of({doubled: 3}, DELTA)


@BOTH
@pytest.mark.parametrize("variance", [1, 7, 60])
def test_the_bound_of_a_tail_is_above_it(distribution, variance):
    one = share(distribution, variance, math.ceil(25 * math.sqrt(variance)) + 25)
    middle = one.size // 2
    for beyond in range(0, math.ceil(8 * math.sqrt(variance))):
        tail = 2.0 * float(one[middle + beyond + 1 :].sum())
        assert tail <= 2.0 ** log2_tail(distribution, variance, beyond)
    assert log2_tail(distribution, variance, beyond) < math.log2(tail) + 8.0


def test_rounding_seldom_has_to_be_drawn_again():
    """The proposition: with a chance of 1 - exp(-1/2) and more it is within the bound that clients round to."""
    generator = np.random.default_rng(5)
    for dimension in (1, 2, 5, 9):
        for norm in (0.3, 1.0, 4.0, 20.0):
            for _ in range(10):
                vector = generator.normal(size=dimension)
                vector *= norm / np.linalg.norm(vector)
                bound = rounded_norm_squared(norm, dimension)
                assert sum(rounded(vector, bound).values()) >= 1.0 - math.exp(-0.5)
                assert bound >= norm**2


def test_what_rotation_lets_through_is_what_it_leaves_almost_surely():
    assert most_rotated(5.0, 1) == 6  # one value has all of the norm
    assert most_rotated(1024.0, 2**16) == 8 * 1024 // 256 + 1
    assert most_rotated(1024.0, 2**17 - 1) == most_rotated(1024.0, 2**16)


def test_draws_that_are_off_take_of_delta_and_end_the_figure_where_too_many_are():
    exact = noise_of_sum("skellam", 400, 4, 1600, 10)
    epsilon = epsilon_of({exact: 1}, DELTA)
    # A thousandth of delta is kept for them, which costs next to nothing.
    assert epsilon == pytest.approx(epsilon_of({exact: 1}, DELTA * 1.01), rel=1e-3)
    just = math.log2(DELTA / 1024 / (1.0 + math.exp(epsilon)))
    for log2_distance, is_finite in ((just - 1e-6, True), (just + 1e-6, False)):
        found = epsilon_of({noise_of_sum("skellam", 400, 4, 1600, 10, log2_distance): 1}, DELTA)
        assert math.isfinite(found) == is_finite
    # Of the least delta that there is no thousandth is left.
    assert math.isinf(epsilon_of({exact: 1}, 5e-324))
    # Distances of several releases add up.
    half = noise_of_sum("skellam", 400, 4, 1600, 10, just - 1.0)
    assert math.isinf(epsilon_of({half: 3}, DELTA))


def test_noise_of_sums_and_of_clients_add_up():
    of_sum, own = noise_of_sum("skellam", 400, 4, 1600, 10), Noise(2.0, "client")
    both = epsilon_of({of_sum: 2, own: 1}, DELTA)
    assert both > max(epsilon_of({of_sum: 2}, DELTA), epsilon_of({own: 1}, DELTA))


@pytest.mark.parametrize(
    "changed",
    [
        ("gaussian", 1, 1, 1, 1, -1.0),
        ("skellam", 0, 1, 1, 1, -1.0),
        ("skellam", 1, 1, 1, 1, 0.0),
        ("skellam", 1, 1, 1, 1, -1.0, "round"),
    ],
)
def test_what_is_no_noise_of_a_sum_is_refused(changed):
    with pytest.raises(ParameterError):
        NoiseOfSum(*changed)
