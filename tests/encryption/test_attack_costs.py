"""What attacks on the rings of key-additive encryption cost, as its parameters state it."""

from __future__ import annotations

import itertools
import math
import re

from documentation_pages import doc
from encryption.test_ring_plans import BINOMIALS, BLOCKS_PER_SECRET, DEGREES, rings_with_room
from lattice_script import lattice_estimates
from shieldfl.encryption import kahe
from shieldfl.encryption.kahe import ATTACK_COSTS


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
