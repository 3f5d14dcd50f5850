"""Which ring a plan chooses, and that every figure of describe() follows from the parameters."""

from __future__ import annotations

import dataclasses
import math
import pickle
import re
from fractions import Fraction

import numpy as np
import pytest

import shieldfl as sf
from documentation_pages import doc

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
    """Bytes, butterflies, random bytes and digits' work for each value, worked out from the parameters alone."""
    facts = parameters._facts
    degree, primes = facts["ring_degree"], facts["primes"]
    bits, in_one = sum(prime.bit_length() for prime in primes), facts["values_per_ciphertext"]
    if isinstance(parameters, sf.ckks.Parameters):
        ciphertexts = Fraction(1 if count is None else -(-count // in_one))
        # Of u, c0 and c1. 16 bytes propose 64 ternary coefficients, three quarters of which are taken; 128 bytes give
        # 24 errors.
        row_bits, transforms, digits = 2 * bits - sum(facts["dropped_bits"]), 3 * ciphertexts, 0
        random_bytes = ciphertexts * degree * (Fraction(16, 48) + 2 * Fraction(128, 24))
    else:
        ciphertexts = Fraction(1) if count is None else Fraction(-(-count // in_one))
        secrets = (
            ciphertexts / BLOCKS_PER_SECRET if count is None else math.ceil(ciphertexts / BLOCKS_PER_SECRET)
        )
        row_bits, transforms = bits - facts["dropped_bits"], ciphertexts + secrets
        random_bytes = transforms * degree * BINOMIALS * Fraction(128, 24)
        digits = 6 * math.comb(len(primes), 2) * degree * ciphertexts
    values = ciphertexts * in_one if count is None else count
    # Each transform has log2 N stages of N / 2 butterflies.
    butterflies = transforms * len(primes) * (degree // 2) * (degree.bit_length() - 1)
    return tuple(
        float(size / values)
        for size in (ciphertexts * degree * row_bits / 8, butterflies, random_bytes, digits)
    )


@pytest.mark.parametrize("count", [None, 1, 300, 2047, 2048, 2049, 30_000, 235_146, 2_000_000])
@every_case
def test_a_plan_takes_the_ring_that_is_best_at_its_goal(scheme, settings, count):
    rings = rings_with_room(scheme, settings)
    for goal, key in (("size", lambda c: c[0]), ("speed", lambda c: sum(c[1:]))):
        planned = scheme.Parameters.plan(**settings, goal=goal, count=count)
        assert planned in rings
        assert key(cost(planned, count)) == pytest.approx(min(key(cost(ring, count)) for ring in rings))


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


@pytest.mark.parametrize("goal", ["speed", "size"])
@pytest.mark.parametrize("count", [None, 5000])
@every_case
def test_describe_shows_what_each_ring_would_cost(scheme, settings, goal, count):
    planned = scheme.Parameters.plan(**settings, goal=goal, count=count)
    text = planned.describe()
    extent = "for each of many values" if count is None else f"for each of {count:,} values"
    assert f"\n  planned     for {goal}; {extent}:\n" in text
    rows = re.findall(
        r"^    (chosen|instead) +N = (\d+): ([\d.]+) bytes, ([\d.]+) butterflies, ([\d.]+) random bytes"
        r"(?:, ([\d.]+) for digits)?$",
        text,
        re.MULTILINE,
    )
    rings = rings_with_room(scheme, settings)
    assert len(rows) == len(rings)
    for row, ring in zip(rows, rings, strict=True):
        wire, butterflies, random, digits = cost(ring, count)
        assert row[:2] == ("chosen" if ring == planned else "instead", str(ring.ring_degree))
        assert row[2:5] == (f"{wire:.2f}", f"{butterflies:.1f}", f"{random:.1f}")
        assert row[5] == (f"{digits:.1f}" if digits else "")


def test_the_default_ring_of_kahe_has_room_for_all_that_the_ranges_allow():
    """So that a plan that any ring has room for is not refused where it looks at the settings."""
    for guard_bits in range(21):
        clients, value_bits = 2**guard_bits, min(40, 54 - guard_bits)
        settings = {"max_clients": clients, "value_bits": value_bits, "fraction_bits": 0}
        assert 4096 in {ring.ring_degree for ring in rings_with_room(sf.kahe, settings)}


@both
def test_a_plan_is_kept_when_pickled_and_does_not_count_in_comparisons(scheme):
    planned = scheme.Parameters.plan(goal="size", count=12_345)
    again = pickle.loads(pickle.dumps(planned))
    assert "planned     for size; for each of 12,345 values" in again.describe()
    assert again.describe() == planned.describe()
    plain = scheme.Parameters(ring_degree=planned.ring_degree)
    assert planned == again == plain
    assert planned.id == plain.id
    assert len({planned, again, plain}) == 1
    assert plain.describe() != planned.describe()
    assert pickle.loads(pickle.dumps(plain)).describe() == plain.describe()


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


def test_plans_take_keywords_alone_and_cannot_be_changed():
    for wrong in (
        lambda: sf.kahe.Parameters.plan("speed"),
        lambda: sf.kahe.Parameters.plan(packing="exact"),
        lambda: sf.ckks.Parameters.plan("exact"),
    ):
        with pytest.raises(TypeError):
            wrong()
    planned = sf.ckks.Parameters.plan()
    with pytest.raises(AttributeError):
        planned._goal = "size"
    (first, *_) = planned.ring_costs()
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.count = 5
