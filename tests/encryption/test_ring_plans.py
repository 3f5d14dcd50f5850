"""Which ring a plan chooses, and what parameters of any scheme say of themselves and refuse."""

from __future__ import annotations

import copy
import itertools
import logging
import math
import pickle
import re
from fractions import Fraction

import numpy as np
import pytest

import shieldfl as sf
from documentation_pages import doc
from encryption.paillier_keys import encode_parameters
from encryption.wire_twin import identifier
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


def named(one):
    return one.__name__[20:] if hasattr(one, "__name__") else str(one)


SHAPES = [
    *((sf.kahe, one) for one in ({}, {"ring_degree": 2048}, {"max_clients": 65}, {"sum_bits": 27})),
    *((sf.pads, one) for one in ({}, {"max_clients": 65}, {"value_bits": 23}, {"sum_bits": 27})),
    *((sf.ckks, one) for one in ({}, {"packing": "slots"}, {"ring_degree": 4096}, {"fraction_bits": 19})),
    *(
        (sf.paillier, one)
        for one in (
            {},
            {"key_bits": 4096},
            {"packing": "single"},
            {"max_clients": 65},
            {"value_bits": 23},
            {"fraction_bits": 19},
            {"max_weight": 2},
            {"randomizer": "classical"},
            {"max_clients": 1, "value_bits": 2, "fraction_bits": 0},
            {"max_clients": 2**14, "value_bits": 40, "fraction_bits": 52},
            {"max_clients": 100, "max_weight": 7, "value_bits": 8, "fraction_bits": 3},
        )
    ),
]


@pytest.mark.parametrize(("scheme", "settings"), SHAPES, ids=named)
def test_they_are_equal_where_everything_is_and_cannot_be_changed(scheme, settings):
    parameters = scheme.Parameters(**settings)
    for name, value in settings.items():
        assert parameters._facts[name] == value
    copies = [pickle.loads(pickle.dumps(parameters)), copy.copy(parameters), copy.deepcopy(parameters)]
    for again in (*copies, eval(repr(parameters), {"Parameters": scheme.Parameters})):
        assert again == parameters
        assert (repr(again), hash(again)) == (repr(parameters), hash(parameters))
    assert parameters != "parameters"
    with pytest.raises(AttributeError, match="immutable"):
        parameters.max_clients = 5
    with pytest.raises(TypeError):
        scheme.Parameters(3072)


def test_every_setting_is_part_of_the_identity():
    assert len({scheme.Parameters(**settings).id for scheme, settings in SHAPES}) == len(SHAPES)


OF_NO_SCHEME = [
    *(({"max_clients": clients}, "max_clients") for clients in (0, 2**20 + 1, 2**40, -1)),
    *(({"value_bits": bits}, "value_bits") for bits in (1, 41, 256 + 24, 2.5)),
    ({"fraction_bits": 53}, "fraction_bits"),
    ({"max_clients": 2**20, "value_bits": 40}, "bits"),
]


@pytest.mark.parametrize(
    ("scheme", "settings", "said"),
    [
        *((scheme, *wrong) for scheme in (sf.kahe, sf.pads, sf.ckks, sf.paillier) for wrong in OF_NO_SCHEME),
        (sf.kahe, {"ring_degree": 1024}, "ring"),
        (sf.ckks, {"ring_degree": 1024}, "ring"),
        (sf.ckks, {"packing": "dense"}, "'exact' or 'slots'"),
        (sf.ckks, {"ring_degree": 2048, "value_bits": 40}, "bits"),
        (sf.ckks, {"packing": "slots", "fraction_bits": 52}, "ring"),
        (sf.paillier, {"key_bits": 1024}, "2048, 3072 or 4096"),
        (sf.paillier, {"key_bits": 2**16 + 2048}, "2048, 3072 or 4096"),
        (sf.paillier, {"key_bits": "3072"}, "key_bits"),
        (sf.paillier, {"packing": "exact"}, "'dense' or 'single'"),
        (sf.paillier, {"packing": None}, "'dense' or 'single'"),
        (sf.paillier, {"randomizer": "none"}, "'short-exponent' or 'classical'"),
        (sf.paillier, {"max_weight": 0}, "max_weight"),
        (sf.paillier, {"max_weight": 2**40}, "max_weight"),
        (sf.paillier, {"max_weight": 2**16, "max_clients": 2**10, "value_bits": 30}, "bits"),
    ],
    ids=named,
)
def test_what_a_scheme_does_not_take_is_named(scheme, settings, said):
    with pytest.raises(sf.ParameterError, match=said):
        scheme.Parameters(**settings)


@pytest.mark.parametrize("settings", [one for scheme, one in SHAPES if scheme is sf.paillier], ids=str)
def test_facts_of_paillier_follow_from_the_settings(settings):
    parameters = sf.paillier.Parameters(**settings)
    facts = parameters._facts
    guard_bits = (parameters.max_clients * parameters.max_weight - 1).bit_length()
    fields = (parameters.key_bits - 42) // (parameters.value_bits + guard_bits)
    assert parameters.values_per_ciphertext == (1 if parameters.packing == "single" else fields)
    assert parameters.bytes_per_value == parameters.key_bits / 4 / parameters.values_per_ciphertext
    top = 2 ** (parameters.value_bits - 1) - 1
    assert parameters.value_limit == top / 2.0**parameters.fraction_bits
    assert (parameters.security_bits, facts["guard_bits"]) == (128, guard_bits)
    assert parameters.id == identifier(encode_parameters(parameters))


def test_description_of_paillier_says_what_follows():
    text = sf.paillier.Parameters(max_weight=3).describe()
    for part in ("Paillier, dense packing, 128-bit security", "n of 3,072 bits", "768 bytes", "1,536 bits"):
        assert part in text
    assert "up to 64, weights up to 3, 8 guard bits" in text
    assert "101 values in 768 bytes: 7.60 bytes a value" in sf.paillier.Parameters().describe()
    single = sf.paillier.Parameters(packing="single", randomizer="classical").describe()
    assert "1 value in 768 bytes: 768.00 bytes a value" in single
    assert "r^n" in single


def test_less_than_128_bits_is_logged_when_it_is_asked_for_and_only_then(caplog):
    with caplog.at_level(logging.INFO, logger="shieldfl"):
        sf.paillier.Parameters(key_bits=4096)
        assert not caplog.records
        parameters = sf.paillier.Parameters(key_bits=2048)
        assert parameters.security_bits == 112
        (record,) = caplog.records
        assert (record.name, record.levelname) == ("shieldfl", "WARNING")
        assert "112-bit security" in record.getMessage()
        pickle.loads(pickle.dumps(parameters))
        assert len(caplog.records) == 1
        sf.paillier.Parameters(key_bits=2048)
        assert len(caplog.records) == 2
