"""bench/lattice_estimates.py, held against estimates that others published and against slow searches."""

from __future__ import annotations

import itertools
import math

import pytest

from lattice_script import lattice_estimates


@pytest.fixture(scope="module")
def estimates():
    return lattice_estimates()


@pytest.mark.parametrize(
    ("dimension", "variance", "samples", "block_size", "bits"),
    [(512, 1.5, 512, 406, 118.6), (768, 1.0, 768, 624, 182.2)],
    ids=["Kyber-512", "Kyber-768"],
)
def test_the_primal_attack_costs_what_the_lattice_estimator_says(
    estimates, dimension, variance, samples, block_size, bits
):
    """`LWE.estimate.rough` of the lattice estimator, in its documentation (512) and in Albrecht's slides of 2024."""
    deviation = math.sqrt(variance)
    attack = estimates.primal(estimates.Instance(dimension, math.log2(3329), deviation, deviation, samples))
    assert attack.block_size == block_size
    assert attack.core_svp(estimates.CLASSICAL_SIEVE) == pytest.approx(bits, abs=0.05)


def test_both_attacks_on_new_hope_cost_what_its_authors_say(estimates):
    """Alkim, Ducas, Pöppelmann and Schwabe (2016), table 1: block sizes 967 and 962, costs in whole bits."""
    deviation = math.sqrt(8)
    new_hope = estimates.Instance(1024, math.log2(12289), deviation, deviation, 2048)
    primal, dual = estimates.primal(new_hope), estimates.dual(new_hope)
    assert abs(primal.block_size - 967) <= 1
    assert dual.block_size == 962
    sieves = (estimates.CLASSICAL_SIEVE, estimates.QUANTUM_SIEVE)
    assert [round(dual.core_svp(sieve)) for sieve in sieves] == [281, 255]
    assert [round(primal.core_svp(sieve)) for sieve in sieves] == pytest.approx([282, 256], abs=1)


@pytest.mark.parametrize(("secret", "deviation"), [("ternary", math.sqrt(2 / 3)), ("error", 3.19)])
@pytest.mark.parametrize("computer", ["classical", "quantum"])
def test_the_standard_s_model_gives_the_standard_s_tables(estimates, secret, deviation, computer):
    """Each limit has 128 bits, and with one more bit of q hardly any has."""
    sieve = getattr(estimates, f"{computer.upper()}_SIEVE")
    limits = estimates.STANDARD_LIMITS[secret, computer]
    assert len(limits) == 6
    for degree, most in limits.items():
        at_limit, beyond = (
            min(
                attack(estimates.Instance(degree, bits, deviation, 3.19, 10 * degree)).standard(sieve)
                for attack in (estimates.primal, estimates.dual)
            )
            for bits in (most, most + 1)
        )
        assert 127.8 < at_limit < 132.5
        assert beyond < 128.9
        assert beyond < at_limit


def test_the_number_of_samples_is_the_best_there_is(estimates):
    """The closed forms, against a search over all numbers of samples."""
    some = estimates.Instance(200, 15.0, 1.3, 2.1, 500)
    everything = range(1, some.samples + 1)
    found = estimates.primal(some).block_size
    assert any(succeeds(estimates, some, found, samples) for samples in everything)
    assert not any(succeeds(estimates, some, found - 1, samples) for samples in everything)
    attack = estimates.dual(some)
    for block_size in (attack.block_size - 1, attack.block_size, attack.block_size + 1):
        slow = [repetitions(estimates, some, block_size, samples) for samples in everything]
        assert estimates._dual_with(some, block_size).log2_repetitions == pytest.approx(min(slow), abs=0.02)
    assert max(slow) > min(slow)
    costs = [
        estimates.CLASSICAL_SIEVE * block_size + estimates._dual_with(some, block_size).log2_repetitions
        for block_size in range(50, 2 * attack.block_size)
    ]
    assert attack.core_svp(estimates.CLASSICAL_SIEVE) == min(costs)


def succeeds(estimates, instance, block_size: int, samples: int) -> bool:
    """The 2016 estimate as it is written down, in numbers rather than logarithms."""
    d = instance.dimension + samples + 1
    delta = 2 ** estimates.log2_root_hermite_factor(block_size)
    scaled = (instance.sigma_e / instance.sigma_s) ** (instance.dimension / d)
    volume = 2 ** (instance.log2_modulus * samples / d) * scaled
    return instance.sigma_e * math.sqrt(block_size) <= delta ** (2 * block_size - d - 1) * volume


def repetitions(estimates, instance, block_size: int, samples: int) -> float:
    """log2 of how often the dual attack sieves, from the advantage of one vector."""
    d = instance.dimension + samples
    delta = 2 ** estimates.log2_root_hermite_factor(block_size)
    scaled = (instance.sigma_s / instance.sigma_e) ** (instance.dimension / d)
    length = delta ** (d - 1) * 2 ** (instance.log2_modulus * instance.dimension / d) * scaled
    width = length * instance.sigma_e / 2**instance.log2_modulus
    log2_advantage = -2 * (math.pi * width) ** 2 / math.log(2)
    return max(0.0, -2 * log2_advantage - math.log2(4 / 3) / 2 * block_size)


@pytest.mark.parametrize("narrowest", [1.0, 0.5, 1 / 8, 0.03])
def test_public_widths_are_those_of_all_outcomes_of_the_coins(estimates, narrowest):
    coins = 10
    widths = sorted(sum(outcome) for outcome in itertools.product((0, 1), repeat=coins))[1:]
    # In units of one outcome: the last one may be in the share in part.
    left, logarithms = narrowest * 2**coins, 0.0
    for width in widths:
        part = min(left, 1.0)
        logarithms += part * math.log(math.sqrt(width) / 2)
        left -= part
    counted = narrowest * 2**coins - left
    assert estimates.public_width(coins, narrowest) == pytest.approx(math.exp(logarithms / counted))
