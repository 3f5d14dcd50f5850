"""The figures of the pages on kahe, recomputed from their formulas, the core's constants and the script."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys

import pytest

import shieldfl as sf
from documentation_pages import ROOT, doc, prose_of, table_rows
from shieldfl.encryption.kahe import ATTACK_COSTS

PAGE = doc("docs/explanation/kahe.md")
PROSE = " ".join(prose_of(f"docs/explanation/{name}.md") for name in ("kahe", "kahe-proofs", "kahe-margins"))
MOST_PRIME_BITS = 50


def constant(file: str, name: str) -> float:
    return float(re.search(rf"\b{name} = ([\d.]+)", doc(file)).group(1))


BINOMIALS = int(constant("cpp/kahe/parameters.h", "kBinomials"))
BLOCKS = int(constant("cpp/kahe/parameters.h", "kBlocksPerSecret"))
COINS = 2 * BINOMIALS * int(constant("cpp/ring/sampler_kernels.h", "kErrorCoins"))
LEAST_FAILURE_BITS = constant("cpp/kahe/parameter_search.h", "kLeastFailureBits")
MOST_DROPPED_BITS = 16


def failure_bits(clients: int, log2_scale: int, dropped: int) -> float:
    variance = clients * (COINS / 4 + (4**dropped - 1) / 12)
    margin = 2 ** (log2_scale - 1) - (0.5 if dropped else 0.0)
    return margin**2 / (2 * variance) / math.log(2) - 1


def shortest(value_bits: int, clients: int, degree: int) -> tuple[float, int]:
    """Bytes a value and fields: the search that the page describes, were there a prime of every length."""
    largest, field = clients * (2 ** (value_bits - 1) - 1), value_bits + (clients - 1).bit_length()
    room = MOST_PRIME_BITS * degree // 2048
    least_scale = next(
        scale for scale in range(1, 60) if failure_bits(clients, scale, 0) >= LEAST_FAILURE_BITS
    )
    found = []
    for fields in range(1, room // field + 1):
        for scale in range(least_scale, least_scale + 7):
            kept = [failure_bits(clients, scale, dropped) for dropped in range(MOST_DROPPED_BITS + 1)]
            dropped = max(d for d, bits in enumerate(kept) if bits >= LEAST_FAILURE_BITS)
            message = sum(largest << (scale + number * field) for number in range(fields))
            modulus_bits = (2 * message + (1 << scale)).bit_length()
            if modulus_bits <= room:
                wire = (modulus_bits - dropped) * degree / (8 * fields * (degree - 1))
                found.append((wire, fields))
    return min(found)


# Bits and clients; degree, fields, log2 of the scale, dropped bits, bits of q, bytes a value, wrong with 2^-this.
SHORTEST = (
    (24, 64, 2048, 1, 11, 5, 41, "4.50", "110.1"),
    (24, 64, 4096, 3, 10, 3, 100, "4.04", "111.3"),
    (24, 64, 8192, 6, 11, 5, 191, "3.88", "110.1"),
    (16, 32, 2048, 1, 11, 5, 32, "3.38", "221.2"),
    (16, 32, 4096, 4, 10, 4, 94, "2.81", "138.6"),
    (16, 32, 8192, 9, 10, 4, 199, "2.71", "138.6"),
    (16, 1000, 2048, 1, 13, 5, 39, "4.25", "112.9"),
    (16, 1000, 4096, 3, 13, 5, 91, "3.58", "112.9"),
    (16, 1000, 8192, 7, 13, 5, 195, "3.39", "112.9"),
)


@pytest.mark.parametrize("row", SHORTEST)
def test_parameters_are_the_shortest(row):
    value_bits, clients, degree, fields, scale, dropped, modulus_bits, size, wrong = row
    parameters = sf.kahe.Parameters(max_clients=clients, value_bits=value_bits, ring_degree=degree)
    facts = parameters._facts
    assert [fields, scale, dropped] == [
        facts[name] for name in ("values_per_coefficient", "log2_scale", "dropped_bits")
    ]
    assert modulus_bits == sum(prime.bit_length() for prime in facts["primes"])
    assert modulus_bits <= MOST_PRIME_BITS * degree // 2048
    assert (f"{parameters.bytes_per_value:.2f}", parameters.values_per_coefficient) == (size, fields)
    best = shortest(value_bits, clients, degree)
    assert (f"{best[0]:.2f}", best[1]) == (size, fields)
    assert parameters.failure_bits == pytest.approx(failure_bits(clients, scale, dropped))
    assert wrong == f"{parameters.failure_bits:.1f}"


def test_worked_failure_is_computed():
    parameters = sf.kahe.Parameters(max_clients=64, value_bits=24)
    scale, dropped = parameters._facts["log2_scale"], parameters._facts["dropped_bits"]
    variance = 64 * (COINS / 4 + (4**dropped - 1) / 12)
    assert f"d = {dropped} and Δ = 2^{scale}" in PROSE
    assert f"V = 64·{variance / 64:g} = {variance:,.0f}" in PROSE
    wrong = f"2^-{parameters.failure_bits:.1f}"
    assert f"the margin is {2 ** (scale - 1) - 0.5:g}, and the probability {wrong}" in PROSE
    least = LEAST_FAILURE_BITS
    assert f"below 2^-{least:.0f}: among 2^40 coefficients none fails but for 2^-{least - 40:.0f}" in PROSE


def test_dependent_secrets_are_as_unlikely_as_stated():
    """A secret in the span of the others: what is not a pivot of theirs has to take given values."""
    likeliest = math.comb(COINS, COINS // 2) / 2**COINS
    at_most = 4 * sum(likeliest ** (40 + more) for more in range(1, 50))
    assert "up to N - 40 clients" in PROSE
    stated = re.search(r"but for a probability of 2\^-(\d+)", PROSE)
    assert at_most < 2.0 ** -int(stated.group(1)) < 2**12 * at_most


def test_coins_and_blocks_are_the_core_s():
    half = COINS // 2
    assert f"{half} coins minus {half} coins, {COINS} in all, variance {COINS // 4}" in PROSE
    assert f"w = {COINS} and r = {BLOCKS}" in PROSE
    assert f"A mean width of {half} gives variance {half / 4:g}" in PROSE
    assert f"u < {BLOCKS}" in PROSE
    assert f"S_v is short: {(COINS * 64).bit_length()} bits a coefficient for 64 clients" in PROSE


def test_loss_of_the_theorem_is_computed():
    fields = shortest(24, 64, 4096)[1]
    blocks = math.ceil(10**6 / (fields * 4095))
    secrets = math.ceil(blocks / BLOCKS)
    assert f"(T = {secrets}) make n(3n-1)T = 2^{math.log2(64 * (3 * 64 - 1) * secrets):.1f}" in PROSE


def test_many_values_take_these_rings():
    many = {goal: sf.kahe.Parameters.plan(goal=goal).ring_degree for goal in ("speed", "size")}
    assert many == {"speed": 4096, "size": 8192}


def test_costs_of_attacks_are_the_package_s():
    rows = {int(degree): [int(cell) for cell in cells] for degree, *cells in table_rows(PAGE, "N")}
    assert rows == {
        degree: [modulus_bits, core_svp, quantum, standard]
        for degree, (modulus_bits, standard, core_svp, quantum) in ATTACK_COSTS.items()
    }
    assert min(rows, key=lambda degree: rows[degree][1]) == 8192


def estimates(*options: str) -> str:
    pytest.importorskip("typer")
    return subprocess.run(
        [sys.executable, str(ROOT / "bench" / "lattice_estimates.py"), *options],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env=os.environ | {"COLUMNS": "120"},
    ).stdout


@pytest.fixture(scope="module")
def printed() -> str:
    return "\n".join(line.rstrip() for line in estimates().splitlines()).strip("\n")


def of_sums_alone(narrowest: float) -> float:
    """Geometric mean of the deviations of hypergeometric coefficients, those of the narrowest share of rows."""
    heads = range(1, 2 * COINS)
    rows = sorted((each * (2 * COINS - each), math.comb(2 * COINS, each) / 4**COINS) for each in heads)
    left, logarithms = narrowest, 0.0
    for product, share in rows:
        logarithms += min(left, share) * math.log(math.sqrt(product / (4 * (2 * COINS - 1))))
        left -= min(left, share)
    return math.exp(logarithms / (narrowest - left))


def test_estimates_for_other_hints_are_the_script_s():
    gaussian = math.sqrt(COINS / 4) / 2
    costs = []
    for deviations in ((), (of_sums_alone(1.0), of_sums_alone(1 / BLOCKS)), (gaussian, gaussian)):
        named = zip(("--sigma-s", "--sigma-e"), map(str, deviations), strict=False)
        options = (word for pair in named for word in pair)
        attacks = json.loads(estimates("--ring", "4096:100", *options, "--json", "-"))["rings"][0]["attacks"]
        costs.append(f"{min(attack['core_svp_classical'] for attack in attacks):.1f}")
    assert f"costs {costs[0]} bits by classical core-SVP with the coins given away" in PROSE
    deviations = f"{of_sums_alone(1.0):.2f} and, in the narrowest 1/{BLOCKS}, {of_sums_alone(1 / BLOCKS):.2f}"
    assert f"With the sums alone it costs {costs[1]} (deviations {deviations})" in PROSE
    of_gaussians = (
        f"With the {gaussian:.2f} that the theorem for Gaussians would leave of a variance of {COINS // 4}"
    )
    assert f"{of_gaussians} it costs {costs[2]}." in PROSE


def test_deviations_are_what_the_script_prints(printed):
    secret, error = re.match(r"deviations: secret ([\d.]+), error ([\d.]+) ", printed).groups()
    assert f"The secret's is {secret} (root mean square: {math.sqrt(COINS / 8):.2f})" in PROSE
    assert f"It takes the narrowest 1/{BLOCKS} of them, whose errors have {error}." in PROSE


def test_estimates_in_words_are_the_script_s(printed):
    rows = [line.split() for line in printed.splitlines() if " primal " in line or " dual " in line]
    cheapest: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        costs = [float(cost) for cost in row[6:]]
        known = cheapest.setdefault((row[0], row[1]), costs)
        cheapest[row[0], row[1]] = [min(pair) for pair in zip(known, costs, strict=True)]
    core_svp, quantum, newer, standard, _ = cheapest["4096", "100"]
    assert f"**{core_svp:.0f} bits by classical core-SVP**" in PROSE
    assert f"On a quantum computer it is {quantum:.0f} (0.265β), and {newer:.0f} with" in PROSE
    assert f"**{standard:.0f} bits by the homomorphic encryption standard's model**" in PROSE
    assert [ring for ring, costs in cheapest.items() if costs[0] >= 128] == [("2048", "41")]
    assert "prints, only N = 2048 with 41 bits of q has it" in PROSE
    most = [(str(degree), str(MOST_PRIME_BITS * degree // 2048)) for degree in (2048, 4096, 8192)]
    assert all(ring in cheapest for ring in most)
    assert all(costs[3] > 128 for costs in cheapest.values())
    assert [tuple(row[:2]) for row in table_rows(PAGE, "N")] == most
