"""Which ring a plan chooses, and that every figure of describe() follows from the parameters."""

from __future__ import annotations

import dataclasses
import math
import pickle
import re

import pytest

import shieldfl as sf

SETTINGS = [
    {},
    {"max_clients": 32, "value_bits": 16, "fraction_bits": 14},
    {"max_clients": 1000, "value_bits": 32, "fraction_bits": 26},
    {"max_clients": 20, "value_bits": 2, "fraction_bits": 0},
    {"max_clients": 2**20, "value_bits": 30, "fraction_bits": 24},
    {"packing": "slots"},
    {"packing": "slots", "max_clients": 2, "value_bits": 4, "fraction_bits": 0},
]
COUNTS = [None, 1, 300, 2049, 235_146]


def rings_with_room(settings):
    rings = []
    for degree in (2048, 4096):
        try:
            rings.append(sf.ckks.Parameters(**settings, ring_degree=degree))
        except sf.ParameterError:
            continue
    return rings


def cost(parameters, count):
    """Bytes, butterflies and random bytes for each value, worked out from the parameters alone."""
    facts = parameters._facts
    degree, primes = facts["ring_degree"], facts["primes"]
    in_one = facts["values_per_ciphertext"]
    ciphertexts = 1 if count is None else math.ceil(count / in_one)
    values = in_one if count is None else count
    row_bits = sum(2 * prime.bit_length() for prime in primes) - sum(facts["dropped_bits"])
    # Each transform of u, c0 and c1 has log2 N stages of N / 2 butterflies.
    butterflies = 3 * len(primes) * (degree // 2) * (degree.bit_length() - 1)
    # 16 bytes propose 64 ternary coefficients, three quarters of which are taken; 128 bytes give 24 errors.
    random_bytes = degree * (16 / 48 + 2 * 128 / 24)
    return (
        ciphertexts * degree * row_bits / 8 / values,
        ciphertexts * butterflies / values,
        ciphertexts * random_bytes / values,
    )


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_plan_takes_the_ring_that_is_best_at_its_goal(settings, count):
    rings = rings_with_room(settings)
    for goal, key in (("size", lambda c: c[0]), ("speed", lambda c: c[1] + c[2])):
        planned = sf.ckks.Parameters.plan(**settings, goal=goal, count=count)
        assert planned in rings
        assert key(cost(planned, count)) == pytest.approx(min(key(cost(ring, count)) for ring in rings))


def test_goals_and_counts_can_lead_to_different_rings():
    plan = sf.ckks.Parameters.plan
    assert plan(goal="size").bytes_per_value < plan(goal="size", count=100).bytes_per_value
    assert plan(goal="size").ring_degree == 4096
    assert plan(goal="size", count=100).ring_degree == plan(goal="speed", count=100).ring_degree == 2048
    # 7 small ciphertexts against 2 large ones: fewer bytes, but more work.
    assert (plan(goal="size", count=13_000).ring_degree, plan(count=13_000).ring_degree) == (2048, 4096)


@pytest.mark.parametrize("goal", ["speed", "size"])
@pytest.mark.parametrize("count", [None, 5000])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_describe_shows_what_each_ring_would_cost(settings, goal, count):
    planned = sf.ckks.Parameters.plan(**settings, goal=goal, count=count)
    text = planned.describe()
    extent = "for each of many values" if count is None else f"for each of {count:,} values"
    assert f"\n  planned     for {goal}; {extent}:\n" in text
    rows = re.findall(
        r"^    (chosen|instead) +N = (\d+): ([\d.]+) bytes, ([\d.]+) butterflies, ([\d.]+) random bytes$",
        text,
        re.MULTILINE,
    )
    rings = rings_with_room(settings)
    assert len(rows) == len(rings)
    for row, ring in zip(rows, rings, strict=True):
        wire, butterflies, random = cost(ring, count)
        chosen = "chosen" if ring == planned else "instead"
        assert row == (
            chosen,
            str(ring.ring_degree),
            f"{wire:.2f}",
            f"{butterflies:.1f}",
            f"{random:.1f}",
        )


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_figures_of_describe_follow_from_the_facts(settings):
    parameters = sf.ckks.Parameters(**settings)
    facts = parameters._facts
    text = parameters.describe()
    lengths = [prime.bit_length() for prime in facts["primes"]]
    degree = facts["ring_degree"]
    fields = facts["values_per_coefficient"] * degree if parameters.packing == "exact" else degree // 2
    dropped0, dropped1 = facts["dropped_bits"]
    size = degree * (2 * sum(lengths) - dropped0 - dropped1) // 8
    limit = (2 ** (parameters.value_bits - 1) - 1) / 2**parameters.fraction_bits
    guard_bits = math.ceil(math.log2(parameters.max_clients))
    for phrase in (
        f"CKKS, {parameters.packing} packing, 128-bit security",
        f"{parameters.value_bits} bits, {parameters.fraction_bits} behind the point",
        f"up to {parameters.max_clients:,}, {guard_bits} guard bit{'s' * (guard_bits != 1)} for their sum",
        f"N = {degree}, modulus of {' + '.join(map(str, lengths))} bits",
        f"{fields:,} values in {size:,} bytes: {size / fields:.2f} bytes a value",
        f"the lowest {dropped0} and {dropped1} bits of the two halves",
        f"scale 2^{facts['log2_scale']}",
    ):
        assert phrase in text
    assert 0 <= limit - float(re.search(r"\|value\| <= (\S+)", text)[1]) < 1e-5 * limit
    assert parameters.bytes_per_value == size / fields
    assert "planned" not in text


def test_a_plan_is_kept_when_pickled_and_does_not_count_in_comparisons():
    planned = sf.ckks.Parameters.plan(goal="size", count=12_345)
    again = pickle.loads(pickle.dumps(planned))
    assert again.describe() == planned.describe()
    assert "planned     for size; for each of 12,345 values" in again.describe()
    plain = sf.ckks.Parameters(ring_degree=planned.ring_degree)
    assert planned == again == plain
    assert planned.id == plain.id
    assert len({planned, again, plain}) == 1
    assert plain.describe() != planned.describe()
    assert pickle.loads(pickle.dumps(plain)).describe() == plain.describe()


def test_planned_parameters_encrypt_and_travel_as_any_others():
    authority = sf.KeyAuthority(sf.ckks.Parameters.plan(goal="size", max_clients=4), min_clients=1)
    key = sf.ckks.PublicKey.from_bytes(authority.public_key.to_bytes())
    assert key.parameters == authority.public_key.parameters
    assert key.parameters.ring_degree == 4096


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"goal": "fast"}, "'speed' or 'size', not 'fast'"),
        ({"goal": None}, "'speed' or 'size'"),
        ({"count": 0}, "at least 1"),
        ({"count": -1}, "count"),
        ({"count": 2.5}, "count"),
        ({"packing": "dense"}, "packing"),
        ({"max_clients": 0}, "max_clients"),
        ({"value_bits": 41}, "value_bits"),
        ({"packing": "slots", "fraction_bits": 52}, "no ring"),
    ],
)
def test_bad_plans(settings, message):
    with pytest.raises(sf.ParameterError, match=message):
        sf.ckks.Parameters.plan(**settings)


def test_plans_and_costs_cannot_be_changed():
    planned = sf.ckks.Parameters.plan()
    with pytest.raises(AttributeError):
        planned._goal = "size"
    (first, *_) = planned.ring_costs()
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.count = 5
    with pytest.raises(TypeError):
        sf.ckks.Parameters.plan("exact")
