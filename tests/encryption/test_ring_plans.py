"""Which ring a plan chooses, and what attacks on it cost, as parameters state it."""

from __future__ import annotations

import itertools
import math
import re
from fractions import Fraction

import numpy as np
import pytest

import shieldfl as sf
from documentation_pages import doc
from lattice_script import lattice_estimates
from shieldfl.encryption import kahe
from shieldfl.encryption.kahe import ATTACK_COSTS

BLOCKS_PER_SECRET = int(re.search(r"kBlocksPerSecret = (\d+)", doc("cpp/kahe/parameters.h")).group(1))
# Of ring/sampler.h's binomials, whose 24 take 128 bytes.
BINOMIALS = int(re.search(r"kBinomials = (\d+)", doc("cpp/kahe/parameters.h")).group(1))
DEGREES = {sf.ckks: (2048, 4096), sf.kahe: (2048, 4096, 8192)}
SETTINGS = [
    {},
    {"max_clients": 32, "value_bits": 16, "fraction_bits": 14},
    {"max_clients": 1000, "value_bits": 32, "fraction_bits": 26},
    {"max_clients": 20, "value_bits": 2, "fraction_bits": 0},
    {"max_clients": 2**20, "value_bits": 30, "fraction_bits": 24},
]
CASES = [
    *((scheme, settings) for scheme in DEGREES for settings in SETTINGS),
    (sf.kahe, {"max_clients": 1000, "value_bits": 16, "fraction_bits": 0, "sum_bits": 20}),
    (sf.ckks, {"packing": "slots"}),
    (sf.ckks, {"packing": "slots", "max_clients": 2, "value_bits": 4, "fraction_bits": 0}),
]
both = pytest.mark.parametrize("scheme", [sf.ckks, sf.kahe], ids=["ckks", "kahe"])
every_case = pytest.mark.parametrize(
    ("scheme", "settings"), CASES, ids=[f"{one.__name__[9:]}-{settings}" for one, settings in CASES]
)


def rings_with_room(scheme, settings):
    rings = []
    for degree in DEGREES[scheme]:
        try:
            rings.append(scheme.Parameters(**settings, ring_degree=degree))
        except sf.ParameterError:
            continue
    return rings


def cost(parameters, count):
    """Bytes, and work, for each value, worked out from the parameters alone."""
    facts = parameters._facts
    degree, primes = facts["ring_degree"], facts["primes"]
    bits, in_one = sum(prime.bit_length() for prime in primes), facts["values_per_ciphertext"]
    ciphertexts = Fraction(1 if count is None else -(-count // in_one))
    if isinstance(parameters, sf.ckks.Parameters):
        # Of u, c0 and c1. 16 bytes propose 64 ternary coefficients, three quarters of which are taken; 128 bytes give
        # 24 errors.
        row_bits, transforms, digits = 2 * bits - sum(facts["dropped_bits"]), 3 * ciphertexts, 0
        random_bytes = ciphertexts * degree * (Fraction(16, 48) + 2 * Fraction(128, 24))
    else:
        secrets = ciphertexts / BLOCKS_PER_SECRET
        row_bits, transforms = (
            bits - facts["dropped_bits"],
            ciphertexts + (secrets if count is None else math.ceil(secrets)),
        )
        random_bytes = transforms * degree * BINOMIALS * Fraction(128, 24)
        digits = 6 * math.comb(len(primes), 2) * degree * ciphertexts
    values = ciphertexts * in_one if count is None else count
    # Each transform has log2 N stages of N / 2 butterflies.
    butterflies = transforms * len(primes) * (degree // 2) * (degree.bit_length() - 1)
    return float(ciphertexts * degree * row_bits / 8 / values), float(
        (butterflies + random_bytes + digits) / values
    )


@pytest.mark.parametrize("count", [None, 1, 300, 2047, 2048, 2049, 30_000, 235_146, 2_000_000])
@every_case
def test_a_plan_takes_the_ring_that_is_best_at_its_goal(scheme, settings, count):
    costs = {ring: cost(ring, count) for ring in rings_with_room(scheme, settings)}
    for place, goal in enumerate(("size", "speed")):
        planned = scheme.Parameters.plan(**settings, goal=goal, count=count)
        assert costs[planned][place] == pytest.approx(min(one[place] for one in costs.values()))
        assert planned.ring_costs(count) == {
            ring.ring_degree: pytest.approx(one) for ring, one in costs.items()
        }


@pytest.mark.parametrize("count", [1, 2047, 2048, 12_285, 12_286, 50_000, 100_000, 1_000_000])
def test_no_ring_makes_a_shorter_frame_than_the_one_planned_for_size(count):
    def frame_bytes(parameters):
        public_key = sf.kahe.PublicKey.of_session(parameters, bytes(32), bytes(16))
        key = sf.kahe.ClientKey.of_secret(public_key, 0, bytes(32))
        return sf.kahe.Encryptor(key).encrypt(np.zeros(count, np.float32)).nbytes

    planned = sf.kahe.Parameters.plan(goal="size", count=count)
    sizes = {ring.ring_degree: frame_bytes(ring) for ring in rings_with_room(sf.kahe, {})}
    assert min(sizes, key=sizes.get) == planned.ring_degree


def test_goals_and_counts_lead_to_different_rings():
    plan = sf.kahe.Parameters.plan
    assert plan().ring_degree == plan(count=100_000).ring_degree == 4096
    assert plan(goal="size").ring_degree == plan(goal="size", count=10**6).ring_degree == 8192
    assert plan(goal="size", count=100).ring_degree == plan(goal="speed", count=100).ring_degree == 2048
    plan = sf.ckks.Parameters.plan
    assert plan(goal="size").bytes_per_value < plan(goal="size", count=100).bytes_per_value
    assert plan(goal="size").ring_degree == 4096
    assert plan(goal="size", count=100).ring_degree == plan(goal="speed", count=100).ring_degree == 2048
    # 7 small ciphertexts against 2 large ones: fewer bytes, but more work.
    assert (plan(goal="size", count=13_000).ring_degree, plan(count=13_000).ring_degree) == (2048, 4096)


def test_the_default_ring_of_kahe_has_room_for_all_that_the_ranges_allow():
    """So that a plan that any ring has room for is not refused where it looks at the settings."""
    for guard_bits in range(21):
        clients, value_bits = 2**guard_bits, min(40, 54 - guard_bits)
        settings = {"max_clients": clients, "value_bits": value_bits, "fraction_bits": 0}
        assert 4096 in {ring.ring_degree for ring in rings_with_room(sf.kahe, settings)}


@both
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"goal": "fast"}, "'speed' or 'size', not 'fast'"),
        ({"goal": None}, "'speed' or 'size'"),
        ({"count": 0}, "at least 1"),
        ({"count": -1}, "count"),
        ({"count": 2.5}, "count"),
        ({"max_clients": 0}, "max_clients"),
        ({"value_bits": 41}, "value_bits"),
        ({"ring_degree": 4096}, "leave ring_degree out"),
    ],
)
def test_bad_plans(scheme, settings, message):
    with pytest.raises(sf.ParameterError, match=message):
        scheme.Parameters.plan(**settings)


def computed(degree, log2_modulus):
    """What the script computes for kahe's coins and blocks: the cheaper attack, by each way to count."""
    script = lattice_estimates()
    coins = 2 * BINOMIALS * int(re.search(r"kErrorCoins = (\d+)", doc("cpp/ring/sampler_kernels.h")).group(1))
    instance = script.Instance(
        degree,
        log2_modulus,
        script.public_width(coins),
        script.public_width(coins, 1 / BLOCKS_PER_SECRET),
        BLOCKS_PER_SECRET * degree,
    )
    attacks = [script.primal(instance), script.dual(instance)]
    return [
        min(getattr(attack, way)(sieve) for attack in attacks)
        for way, sieve in (
            ("standard", script.CLASSICAL_SIEVE),
            ("core_svp", script.CLASSICAL_SIEVE),
            ("core_svp", script.NEWER_QUANTUM_SIEVE),
        )
    ]


def moduli():
    """The largest modulus of each length, by ring, for values and clients all over their ranges."""
    largest: dict[tuple[int, int], int] = {}
    for clients in (1, 3, 64, 1000, 2**14, 2**20):
        for value_bits, narrow in itertools.product(range(2, 41), (False, True)):
            settings = {"max_clients": clients, "value_bits": value_bits, "fraction_bits": 0}
            for ring in rings_with_room(kahe, settings | ({"sum_bits": value_bits} if narrow else {})):
                primes = ring._facts["primes"]
                key = ring.ring_degree, sum(prime.bit_length() for prime in primes)
                largest[key] = max(largest.get(key, 0), math.prod(primes))
    return largest


def test_attack_costs_are_lower_bounds_and_those_of_the_longest_modulus():
    reached = moduli()
    assert len(reached) > 90
    assert set(ATTACK_COSTS) == set(DEGREES[kahe])
    for degree, (most_bits, *stated) in ATTACK_COSTS.items():
        assert most_bits == max(bits for ring, bits in reached if ring == degree)
        assert [math.floor(bits) for bits in computed(degree, most_bits)] == stated
    for (degree, _), modulus in reached.items():
        most_bits, *stated = ATTACK_COSTS[degree]
        assert math.log2(modulus) <= most_bits
        for cost, least in zip(computed(degree, math.log2(modulus)), stated, strict=True):
            assert cost >= least
