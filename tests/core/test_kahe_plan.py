"""Which ring a plan of key-additive encryption chooses, what describe() says, and what attacks on the ring cost."""

from __future__ import annotations

import dataclasses
import itertools
import math
import pickle
import re
from fractions import Fraction

import numpy as np
import pytest

import shieldfl as sf
from documentation_pages import doc
from lattice_script import lattice_estimates
from shieldfl.kahe.attack_costs import ATTACK_COSTS, AttackCosts

DEGREES = (2048, 4096, 8192)
SETTINGS = [
    {},
    {"max_clients": 32, "value_bits": 16, "fraction_bits": 14},
    {"max_clients": 1000, "value_bits": 32, "fraction_bits": 26},
    {"max_clients": 20, "value_bits": 2, "fraction_bits": 0},
    {"max_clients": 2**20, "value_bits": 30, "fraction_bits": 24},
    {"max_clients": 1000, "value_bits": 16, "fraction_bits": 0, "sum_bits": 20},
]
COUNTS = [None, 1, 2047, 2048, 30_000, 235_146, 2_000_000]
BLOCKS_PER_SECRET = int(re.search(r"kBlocksPerSecret = (\d+)", doc("cpp/kahe/parameters.h")).group(1))
# Of ring/sampler.h's binomials, whose 24 take 128 bytes.
BINOMIALS = int(re.search(r"kBinomials = (\d+)", doc("cpp/kahe/parameters.h")).group(1))


def rings_with_room(settings):
    rings = []
    for degree in DEGREES:
        try:
            rings.append(sf.kahe.Parameters(**settings, ring_degree=degree))
        except sf.ParameterError:
            continue
    return rings


def cost(parameters, count):
    """Bytes, butterflies, random bytes and digits' work for each value, worked out from the parameters alone."""
    facts = parameters._facts
    degree, primes = facts["ring_degree"], facts["primes"]
    in_one = facts["values_per_coefficient"] * (degree - 1)
    if count is None:
        ciphertexts, secrets, values = Fraction(1), Fraction(1, BLOCKS_PER_SECRET), in_one
    else:
        ciphertexts = Fraction(-(-count // in_one))
        secrets, values = Fraction(math.ceil(ciphertexts / BLOCKS_PER_SECRET)), count
    row_bits = sum(prime.bit_length() for prime in primes) - facts["dropped_bits"]
    butterflies = (ciphertexts + secrets) * len(primes) * (degree // 2) * (degree.bit_length() - 1)
    random_bytes = (ciphertexts + secrets) * degree * BINOMIALS * Fraction(128, 24)
    products = sum(1 for i in range(len(primes)) for _ in range(i)) * degree * ciphertexts
    sizes = (ciphertexts * degree * row_bits / 8, butterflies, random_bytes, 6 * products)
    return tuple(float(size / values) for size in sizes)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_plan_takes_the_ring_that_is_best_at_its_goal(settings, count):
    rings = rings_with_room(settings)
    assert len(rings) >= 2
    for goal, key in (("size", lambda c: c[0]), ("speed", lambda c: sum(c[1:]))):
        planned = sf.kahe.Parameters.plan(**settings, goal=goal, count=count)
        assert planned in rings
        assert key(cost(planned, count)) == pytest.approx(min(key(cost(ring, count)) for ring in rings))


@pytest.mark.parametrize("count", [1, 2047, 2048, 12_285, 12_286, 50_000, 100_000, 1_000_000])
def test_no_ring_makes_a_shorter_frame_than_the_one_planned_for_size(count):
    def frame_bytes(parameters):
        public_key = sf.kahe.PublicKey.of_session(parameters, bytes(32), bytes(16))
        key = sf.kahe.ClientKey.of_secret(public_key, 0, bytes(32))
        return sf.kahe.Encryptor(key).encrypt(np.zeros(count, np.float32)).nbytes

    planned = sf.kahe.Parameters.plan(goal="size", count=count)
    rings = {degree: sf.kahe.Parameters(ring_degree=degree) for degree in DEGREES}
    sizes = {degree: frame_bytes(ring) for degree, ring in rings.items()}
    assert min(sizes, key=sizes.get) == planned.ring_degree


def test_goals_and_counts_lead_to_all_rings():
    plan = sf.kahe.Parameters.plan
    assert plan().ring_degree == plan(count=100_000).ring_degree == 4096
    assert plan(goal="size").ring_degree == plan(goal="size", count=10**6).ring_degree == 8192
    assert plan(goal="size", count=100).ring_degree == plan(goal="speed", count=100).ring_degree == 2048


@pytest.mark.parametrize("goal", ["speed", "size"])
@pytest.mark.parametrize("count", [None, 5000])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_describe_shows_what_each_ring_would_cost(settings, goal, count):
    planned = sf.kahe.Parameters.plan(**settings, goal=goal, count=count)
    text = planned.describe()
    extent = "for each of many values" if count is None else f"for each of {count:,} values"
    assert f"\n  planned     for {goal}; {extent}:\n" in text
    rows = re.findall(
        r"^    (chosen|instead) +N = (\d+): ([\d.]+) bytes, ([\d.]+) butterflies, ([\d.]+) random bytes"
        r"(?:, ([\d.]+) for digits)?$",
        text,
        re.MULTILINE,
    )
    rings = rings_with_room(settings)
    assert len(rows) == len(rings)
    for row, ring in zip(rows, rings, strict=True):
        wire, butterflies, random, digits = cost(ring, count)
        assert row[:2] == ("chosen" if ring == planned else "instead", str(ring.ring_degree))
        assert row[2:5] == (f"{wire:.2f}", f"{butterflies:.1f}", f"{random:.1f}")
        assert row[5] == (f"{digits:.1f}" if digits else "")


@pytest.mark.parametrize("degree", DEGREES)
def test_figures_of_describe_follow_from_the_facts(degree):
    parameters = sf.kahe.Parameters(max_clients=1000, value_bits=16, fraction_bits=14, ring_degree=degree)
    facts = parameters._facts
    lengths = [prime.bit_length() for prime in facts["primes"]]
    fields = facts["values_per_coefficient"] * (degree - 1)
    size = degree * (sum(lengths) - facts["dropped_bits"]) // 8
    costs = parameters.attack_costs
    text = parameters.describe()
    for phrase in (
        "128-bit security by the homomorphic encryption standard's table",
        "16 bits, 14 behind the point: |value| <= 1.99993 ",
        "up to 1,000, 10 guard bits",
        f"N = {degree}, modulus of {' + '.join(map(str, lengths))} bits",
        f"{fields:,} values in {size:,} bytes: {size / fields:.2f} bytes a value",
        f"the lowest {facts['dropped_bits']} bits",
        f"scale 2^{facts['log2_scale']} in a sum of 1000, but for a chance of "
        f"2^-{parameters.failure_bits:.0f} for each coefficient",
        f"at least 2^{costs.standard} by the standard's cost model, 2^{costs.core_svp} by core-SVP, "
        f"2^{costs.core_svp_quantum} by that on a quantum computer",
        "hint-RLWE with public widths (docs/kahe.md)",
        "awaits outside review",
        "at least two honest clients",
    ):
        assert phrase in text
    assert "planned" not in text
    assert "fitted" not in text


def test_the_default_ring_has_room_for_all_that_the_ranges_allow():
    """So that a plan that any ring has room for is not refused where it looks at the settings."""
    for guard_bits in range(21):
        clients, value_bits = 2**guard_bits, min(40, 54 - guard_bits)
        settings = {"max_clients": clients, "value_bits": value_bits, "fraction_bits": 0}
        assert 4096 in {ring.ring_degree for ring in rings_with_room(settings)}


def test_a_plan_is_kept_when_pickled_and_does_not_count_in_comparisons():
    planned = sf.kahe.Parameters.plan(goal="size", count=12_345)
    again = pickle.loads(pickle.dumps(planned))
    assert "planned     for size; for each of 12,345 values" in again.describe()
    assert again.describe() == planned.describe()
    plain = sf.kahe.Parameters(ring_degree=planned.ring_degree)
    assert planned == again == plain
    assert len({planned, again, plain}) == 1
    assert plain.describe() != planned.describe()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"goal": "fast"}, "'speed' or 'size', not 'fast'"),
        ({"goal": None}, "'speed' or 'size'"),
        ({"count": 0}, "at least 1"),
        ({"count": -1}, "count"),
        ({"max_clients": 0}, "max_clients"),
        ({"value_bits": 41}, "value_bits"),
    ],
)
def test_bad_plans(settings, message):
    with pytest.raises(sf.ParameterError, match=message):
        sf.kahe.Parameters.plan(**settings)


def test_a_plan_takes_keywords_alone_and_no_packing():
    with pytest.raises(TypeError):
        sf.kahe.Parameters.plan("speed")
    with pytest.raises(TypeError):
        sf.kahe.Parameters.plan(packing="exact")


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
    return {
        "standard": min(attack.standard(script.CLASSICAL_SIEVE) for attack in attacks),
        "core_svp": min(attack.core_svp(script.CLASSICAL_SIEVE) for attack in attacks),
        "core_svp_quantum": min(attack.core_svp(script.NEWER_QUANTUM_SIEVE) for attack in attacks),
    }


def moduli():
    """The largest modulus of each length, by ring, for values and clients all over their ranges."""
    largest: dict[tuple[int, int], int] = {}
    for clients in (1, 3, 64, 1000, 2**14, 2**20):
        for value_bits, narrow in itertools.product(range(2, 41), (False, True)):
            settings = {"max_clients": clients, "value_bits": value_bits, "fraction_bits": 0}
            for ring in rings_with_room(settings | ({"sum_bits": value_bits} if narrow else {})):
                primes = ring._facts["primes"]
                key = ring.ring_degree, sum(prime.bit_length() for prime in primes)
                largest[key] = max(largest.get(key, 0), math.prod(primes))
    return largest


def test_attack_costs_are_what_the_script_computes_for_the_longest_modulus():
    reached = moduli()
    assert set(ATTACK_COSTS) == set(DEGREES)
    for degree, stated in ATTACK_COSTS.items():
        assert stated.modulus_bits == max(bits for ring, bits in reached if ring == degree)
        rounded = {name: math.floor(bits) for name, bits in computed(degree, stated.modulus_bits).items()}
        assert rounded == {name: getattr(stated, name) for name in rounded}


def test_attack_costs_are_lower_bounds_whatever_the_modulus():
    reached = moduli()
    assert len(reached) > 90
    for (degree, bits), modulus in reached.items():
        stated = ATTACK_COSTS[degree]
        assert math.log2(modulus) <= stated.modulus_bits
        for name, cost in computed(degree, math.log2(modulus)).items():
            assert cost >= getattr(stated, name), (degree, bits, name)


def test_attack_costs_say_what_they_are_and_cannot_be_changed():
    costs = AttackCosts(1, standard=2, core_svp=3, core_svp_quantum=4)
    assert costs.describe() == (
        "2^2 by the standard's cost model, 2^3 by core-SVP, 2^4 by that on a quantum computer"
    )
    with pytest.raises(dataclasses.FrozenInstanceError):
        costs.core_svp = 128
