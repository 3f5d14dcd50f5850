"""Bounds on epsilon beside mechanisms whose epsilon is known exactly, and the p-value beside its definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from shieldfl.errors import ParameterError
from shieldfl.lab.audit.epsilon import Guesses, bound_from_one_run, count_guesses, one_run_p_value


def randomised_response(generator: np.random.Generator, count: int, epsilon: float) -> int:
    """How many of so many coins are right that are told with the accuracy that epsilon allows."""
    return int(generator.binomial(count, 1 / (1 + math.exp(-epsilon))))


@pytest.mark.parametrize("delta", [0.0, 1e-4])
def test_the_p_value_is_that_of_the_corollary(delta):
    canaries, made, right, epsilon = 40, 30, 22, 0.8
    accuracy = 1 / (1 + math.exp(-epsilon))

    def chance(values) -> float:
        return sum(binom.pmf(value, made, accuracy) for value in values)

    alpha = max(chance(range(right - i, right)) / i for i in range(1, right + 1))
    expected = chance(range(right, made + 1)) + 2 * canaries * delta * alpha
    assert one_run_p_value(canaries, Guesses(made, right), epsilon, delta) == pytest.approx(
        expected, rel=1e-9
    )


def test_of_randomised_response_few_audits_say_too_much_and_most_say_nearly_all():
    generator = np.random.default_rng(0)
    bounds = [
        bound_from_one_run(
            2000, [Guesses(2000, randomised_response(generator, 2000, 1.0))], delta=0.0, unit="sample"
        ).at_least
        for _ in range(400)
    ]
    # Of 400, 20 may say more on average, and 37 would be four deviations above that. Next to none would do so of a
    # bound that is looser than it need be.
    assert 5 <= sum(bound > 1.0 for bound in bounds) <= 36
    assert np.median(bounds) > 0.85


def test_the_best_of_several_numbers_of_guesses_is_no_more_often_wrong():
    generator = np.random.default_rng(1)
    counts = (100, 300, 1000, 2000)
    too_much = 0
    for _ in range(100):
        right = generator.random(2000) < 1 / (1 + math.exp(-1.0))
        guesses = [Guesses(count, int(right[:count].sum())) for count in counts]
        too_much += bound_from_one_run(2000, guesses, delta=0.0, unit="client").at_least > 1.0
    assert too_much <= 14


def test_what_is_always_right_disproves_a_logarithm_of_the_guesses():
    bound = bound_from_one_run(1000, [Guesses(1000, 1000)], delta=0.0, unit="client", claimed=5.0)
    accuracy = 0.05 ** (1 / 1000)
    assert bound.at_least == pytest.approx(math.log(accuracy / (1 - accuracy)), abs=1e-4)
    assert bound.contradicts_claim
    assert (bound.unit, bound.claimed, bound.confidence) == ("client", 5.0, 0.95)


def test_chance_disproves_nothing():
    assert bound_from_one_run(1000, [Guesses(1000, 500)], delta=1e-5, unit="sample").at_least == 0.0
    assert bound_from_one_run(1000, [Guesses(0, 0)], delta=0.0, unit="sample").at_least == 0.0


def test_a_larger_delta_disproves_less():
    bounds = [
        bound_from_one_run(1000, [Guesses(200, 190)], delta=delta, unit="sample").at_least
        for delta in (0.0, 1e-5, 1e-3, 0.4)
    ]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] > bounds[2] > bounds[3] == 0.0


def test_what_cannot_have_been_is_refused():
    for guesses in ([], [Guesses(11, 5)], [Guesses(5, 6)]):
        with pytest.raises(ParameterError):
            bound_from_one_run(10, guesses, delta=0.0, unit="sample")
    for delta, confidence in ((-0.1, 0.95), (1.0, 0.95), (0.0, 1.0)):
        with pytest.raises(ParameterError):
            bound_from_one_run(10, [Guesses(5, 5)], delta=delta, unit="sample", confidence=confidence)


def test_the_strongest_evidence_is_guessed_first():
    evidence, included = np.array([0.1, -3.0, 2.0, -0.2]), np.array([False, False, True, True])
    assert count_guesses(evidence, included, (0.5, 1.0)) == [Guesses(2, 2), Guesses(4, 2)]
