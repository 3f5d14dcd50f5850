"""The noise multiplier against the mechanism's privacy loss, integrated numerically."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from shieldfl.errors import ParameterError
from shieldfl.privacy.gaussian_mechanism import gaussian_noise_multiplier

EPSILONS = st.floats(1e-3, 1e4)
DELTAS = st.floats(1e-12, 0.9)


def delta_of(multiplier: float, epsilon: float) -> float:
    """Integral of the positive part of p(x) - exp(epsilon) q(x) over densities one sensitivity apart."""

    def excess(x: float) -> float:
        log_q = -((x / multiplier) ** 2) / 2
        log_p = -(((x - 1.0) / multiplier) ** 2) / 2
        return math.exp(log_p) * -math.expm1(min(0.0, epsilon + log_q - log_p))

    # p exceeds exp(epsilon) q from here on.
    start = 0.5 + epsilon * multiplier**2
    stop = max(start, 1.0) + 40 * multiplier
    breaks = [start + multiplier * step for step in (0.01, 0.1, 1.0, 5.0)] + [1.0] * (start < 1.0 < stop)
    total, _ = quad(excess, start, stop, points=sorted(breaks), epsabs=0.0, epsrel=1e-10, limit=500)
    return total / (multiplier * math.sqrt(2.0 * math.pi))


@pytest.mark.parametrize("delta", [1e-10, 1e-5, 0.01, 0.5])
@pytest.mark.parametrize("epsilon", [1.0001, 2.0, 10.0, 100.0])
def test_is_the_least_above_one(epsilon, delta):
    multiplier = gaussian_noise_multiplier(epsilon, delta)
    assert delta_of(multiplier, epsilon) == pytest.approx(delta, rel=1e-4)
    assert delta_of(multiplier * 0.99, epsilon) > delta


@pytest.mark.parametrize("delta", [1e-10, 1e-5, 0.1, 0.9])
@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.5, 1.0])
def test_is_the_papers_and_enough_up_to_one(epsilon, delta):
    multiplier = gaussian_noise_multiplier(epsilon, delta)
    assert multiplier == pytest.approx(math.sqrt(2 * math.log(1.25 / delta)) / epsilon)
    assert delta_of(multiplier, epsilon) <= delta


def test_the_papers_formula_is_not_enough_for_a_large_epsilon():
    paper = math.sqrt(2 * math.log(1.25 / 1e-5)) / 100
    assert delta_of(paper, 100.0) > 1e-3
    assert gaussian_noise_multiplier(100.0, 1e-5) > 1.9 * paper


def test_never_rises_across_the_boundary():
    below, at, above = (gaussian_noise_multiplier(epsilon, 1e-5) for epsilon in (0.9999, 1.0, 1.0001))
    assert below > at > above > 0.75 * at


@given(EPSILONS, EPSILONS, DELTAS)
def test_never_rises_with_epsilon(one, other, delta):
    small, large = sorted((one, other))
    assert gaussian_noise_multiplier(small, delta) >= gaussian_noise_multiplier(large, delta) * (1 - 1e-11)


@given(EPSILONS, DELTAS, DELTAS)
def test_never_rises_with_delta(epsilon, one, other):
    small, large = sorted((one, other))
    assert gaussian_noise_multiplier(epsilon, small) >= gaussian_noise_multiplier(epsilon, large) * (
        1 - 1e-11
    )


@pytest.mark.parametrize("delta", [1e-300, 1e-5, 0.999999])
def test_extremes(delta):
    # With epsilon without bound the multiplier nears 1 / sqrt(2 epsilon).
    assert gaussian_noise_multiplier(1e12, delta) == pytest.approx(1 / math.sqrt(2e12), rel=1e-4)
    assert gaussian_noise_multiplier(1e-9, delta) > 1e8


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_refuses_an_epsilon(epsilon):
    with pytest.raises(ParameterError, match="epsilon"):
        gaussian_noise_multiplier(epsilon, 1e-5)


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, 2.0, math.nan])
def test_refuses_a_delta(delta):
    with pytest.raises(ParameterError, match="delta"):
        gaussian_noise_multiplier(1.0, delta)
