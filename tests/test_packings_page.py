"""The figures of docs/explanation/packings.md and its reference, recomputed by formula and compared with the core's."""

from __future__ import annotations

import math
import re

import pytest

import shieldfl as sf
from documentation_pages import doc, prose_of, table_rows

PAGES = ("docs/explanation/packings.md", "docs/reference/packings-reference.md")
PAGE = "\n".join(map(doc, PAGES))
PROSE = " ".join(map(prose_of, PAGES))
SCHEMES = {"ckks": PAGE, "kahe": doc("docs/explanation/kahe.md")}
DESCRIBED = SCHEMES | {"pads": doc("docs/explanation/pads.md")}
DESCRIPTIONS = [
    (scheme, *one)
    for scheme, page in DESCRIBED.items()
    for one in re.findall(r"<!-- (describe|plan):(.*?)-->\n```text\n(.*?)\n```", page, re.DOTALL)
]
MOST_DROPPED_BITS = 16


def settings_of(text: str) -> dict:
    return eval(f"dict({text})")


@pytest.mark.parametrize(("scheme", "make", "settings", "text"), DESCRIPTIONS)
def test_described_parameters_are_what_describe_says(scheme, make, settings, text):
    assert {one for one, *_ in DESCRIPTIONS} == DESCRIBED.keys()
    parameters = getattr(sf, scheme).Parameters
    make = parameters if make == "describe" else parameters.plan
    assert make(**settings_of(settings)).describe() == text


def noise_variance(degree: int, clients: int) -> float:
    return clients * (10.5 * (1 + 0.8 * degree) + 2 / 3 * 1.35 * 10.5 * degree)


def tail_bound(variance_proxy: float) -> float:
    return math.sqrt(2 * variance_proxy * 98 * math.log(2))


def noise_bound(degree: int, clients: int) -> float:
    return tail_bound(noise_variance(degree, clients))


def dropping_bounds(degree: int, clients: int, dropped: tuple[int, int]) -> tuple[float, float]:
    """D0 and D1."""
    half0 = clients * 2 ** (dropped[0] - 1) + 0.5 if dropped[0] else 0.0
    half1 = tail_bound(clients * 0.8 * degree * 4 ** dropped[1] / 12) + 0.4 * degree if dropped[1] else 0.0
    return half0, half1


def error_bound(degree: int, clients: int, dropped: tuple[int, int]) -> float:
    return noise_bound(degree, clients) + sum(dropping_bounds(degree, clients, dropped))


def most_dropped(degree: int, clients: int, limit: float) -> tuple[int, int]:
    bits = range(MOST_DROPPED_BITS + 1)
    allowed = [(d0, d1) for d1 in bits for d0 in bits if error_bound(degree, clients, (d0, d1)) <= limit]
    return max(allowed, key=lambda dropped: (sum(dropped), -dropped[1]))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"ring_degree": 4096},
        {"max_clients": 1, "value_bits": 2, "fraction_bits": 0},
        {"max_clients": 1000, "value_bits": 30},
        {"max_clients": 2**20, "value_bits": 16, "fraction_bits": 14},
        {"packing": "slots"},
        {"packing": "slots", "max_clients": 1000, "value_bits": 12, "fraction_bits": 8},
    ],
    ids=str,
)
def test_dropped_bits_are_the_most_that_the_bound_allows(settings):
    parameters = sf.ckks.Parameters(**settings)
    facts = parameters._facts
    degree, clients, dropped = facts["ring_degree"], facts["max_clients"], facts["dropped_bits"]
    exact = parameters.packing == "exact"
    limit = 2.0 ** (facts["log2_scale"] - 1) if exact else 2 * noise_bound(degree, clients)
    assert dropped == most_dropped(degree, clients, limit)
    assert parameters._handle.error_bound == pytest.approx(error_bound(degree, clients, dropped))
    assert parameters._handle.error_bound <= limit


def test_worked_noise_bound_is_computed():
    assert f"{tail_bound(1.0):.2f} times the square root of V" in PROSE
    exact, slots = (sf.ckks.Parameters(packing=packing).bytes_per_value for packing in ("exact", "slots"))
    assert f"| bytes a value, default settings | {exact:.2f} | {slots:.2f} |" in PAGE
    variance, bound = noise_variance(2048, 64), noise_bound(2048, 64)
    parameters = sf.ckks.Parameters()
    facts = parameters._facts
    largest_sum = 64 * (2**23 - 1)
    half0, half1 = dropping_bounds(2048, 64, facts["dropped_bits"])
    error = bound + half0 + half1
    assert f"below {error:,.0f} in a sum of 64" in parameters.describe()
    assert (2 * largest_sum + 1) << facts["log2_scale"] < facts["primes"][0]
    for figure in (variance, bound, 2 * bound, math.sqrt(variance), half0, half1):
        assert f"{figure:,.1f}" in PROSE
    sizes = (facts["ciphertext_bytes"], facts["total_ciphertext_bytes"])
    for number in (largest_sum, facts["primes"][0], *sizes, 2**32 // 2048):
        assert f"{number:,}" in PROSE
    assert f"{2**32 // 2048 * facts['total_ciphertext_bytes'] / 1e9:.1f} GB of totals" in PROSE

    noise = 64 * (10.5 * (1 + 2 / 3 * 2048) + 2 / 3 * 10.5 * 2048)
    assert f"standard deviation of {math.sqrt(noise):,.0f}" in PROSE
    assert f"lies {bound / math.sqrt(noise):.0f} of them away" in PROSE
    d0, d1 = facts["dropped_bits"]
    typical = math.sqrt(noise + 64 * (4**d0 - 1) / 12 + 64 * 2 / 3 * 2048 * (4**d1 - 1) / 12)
    assert f"has one of {typical:,.0f}" in PROSE
    assert f"Δ/2 lies {2 ** (facts['log2_scale'] - 1) / typical:.0f} of these away" in PROSE


def test_table_of_scales_is_computed():
    rows = table_rows(PAGE, "log2 Δ")
    least = math.ceil(math.log2(2 * noise_bound(2048, 64)))
    sizes = []
    for row, scale in zip(rows, range(least, least + len(rows)), strict=True):
        modulus_bits = ((2 * 64 * (2**23 - 1) + 1) << scale).bit_length()
        dropped = most_dropped(2048, 64, 2.0 ** (scale - 1))
        sizes.append(2048 * (2 * modulus_bits - sum(dropped)) // 8)
        error = error_bound(2048, 64, dropped)
        assert row == [
            str(scale),
            str(modulus_bits),
            f"{dropped[0]}, {dropped[1]}",
            f"{error:,.0f}",
            f"{2 ** (scale - 1):,}",
            f"{sizes[-1]:,}",
        ]
    assert modulus_bits == 50
    facts = sf.ckks.Parameters()._facts
    assert facts["log2_scale"] == least + sizes.index(min(sizes))
    assert facts["ciphertext_bytes"] == min(sizes)


def non_uniformity(parameters: sf.ckks.Parameters) -> float:
    """By how much a probability can grow because a prime is no multiple of 2^d1."""
    facts = parameters._facts
    n = parameters.max_clients * 0.8 * parameters.ring_degree
    return math.exp(n * math.exp(tail_bound(1.0) * math.sqrt(12) / 2 / math.sqrt(n)) / facts["primes"][0])


@pytest.mark.parametrize(("clients", "rounded"), [(1000, "below 1.002"), (2**20, "reaches 1.5")])
def test_factor_for_primes_that_are_no_powers_of_two_is_computed(clients, rounded):
    factors = []
    for value_bits in range(2, 55 - (clients - 1).bit_length()):
        for degree in (2048, 4096):
            try:
                parameters = sf.ckks.Parameters(
                    max_clients=clients, value_bits=min(value_bits, 40), ring_degree=degree
                )
            except sf.ParameterError:
                continue
            facts = parameters._facts
            assert (facts["primes"][0] - 1) % 2 ** facts["dropped_bits"][1] == 0
            factors.append(non_uniformity(parameters))
    assert rounded in PROSE
    if rounded == "below 1.002":
        assert max(factors) < 1.002
    else:
        assert f"{max(factors):.1f}" == "1.5"
        assert f"2^{math.log2(2**-97 * (1 + max(factors))):.1f}." in PROSE
    assert f"{tail_bound(1.0) * math.sqrt(12) / 2:.1f} / sqrt(n)" in PROSE


def test_flooding_figures_are_computed():
    facts = sf.ckks.Parameters(packing="slots")._facts
    degree, deviation = facts["ring_degree"], 2.0 ** facts["log2_flooding"]
    bound = noise_bound(degree, 64)
    least = 2 * 2 * bound * math.sqrt(degree / 2) * 2**20
    assert f"B = {bound:,.1f}, so E = {2 * bound:,.1f}" in PROSE
    assert f"to {error_bound(degree, 64, facts['dropped_bits']):,.1f} at most" in PROSE
    assert f"is 2^{math.log2(least):.1f}." in PROSE
    assert facts["log2_flooding"] == math.ceil(math.log2(least))
    for distance in (4 * bound, 2 * bound):
        assert f"2^{math.log2(degree * distance**2 / (2 * deviation**2)):.1f}" in PAGE
    for row, opened in zip(table_rows(PAGE, "opened ciphertexts T"), (1, 2**10, 2**20), strict=True):
        assert row[1] == f"2^{math.log2(math.sqrt(opened * 2.0**-41)):.1f}"
        claimed = 2.0 ** float(row[2].removeprefix("2^"))
        base = 2.0**-128
        divergence = claimed * math.log(claimed / base) + (1 - claimed) * (
            math.log1p(-claimed) - math.log1p(-base)
        )
        assert opened * 2.0**-40 <= divergence <= 1.1 * opened * 2.0**-40


def number(text: str) -> int:
    return int(text.replace(",", ""))


def test_table_of_rings_is_computed():
    for clients, value_bits, small, large in table_rows(PAGE, "max_clients"):
        settings = {"max_clients": number(clients), "value_bits": number(value_bits)}
        planned = {goal: sf.ckks.Parameters.plan(**settings, goal=goal) for goal in ("speed", "size")}
        assert {one.ring_degree for one in planned.values()} == {4096}
        costs = {
            degree: f"{wire:.2f}, {work:.1f}" for degree, (wire, work) in planned["size"].ring_costs().items()
        }
        assert [small, large] == [costs.get(degree, "no room") for degree in (2048, 4096)]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_table_of_counts_is_computed(scheme):
    plan = getattr(sf, scheme).Parameters.plan
    for count, *sizes, speed, size in table_rows(SCHEMES[scheme], "count"):
        planned = {goal: plan(goal=goal, count=number(count)) for goal in ("speed", "size")}
        assert [speed, size] == [str(planned[goal].ring_degree) for goal in ("speed", "size")]
        costs = planned["size"].ring_costs(number(count)).values()
        assert [number(one) for one in sizes] == [round(wire * number(count)) for wire, _ in costs]


@pytest.mark.parametrize(("clients", "stated"), [(8, "0.125"), (64, "1 - 1.2e-7")])
def test_what_the_range_check_lets_pass_is_computed(clients, stated):
    parameters = sf.ckks.Parameters()
    facts = parameters._facts
    largest = clients * (2 ** (parameters.value_bits - 1) - 1)
    choices = (2 * largest + 1) ** facts["values_per_coefficient"] << facts["log2_scale"]
    modulus = math.prod(facts["primes"])
    passing, rest = choices / modulus, (modulus - choices) / modulus
    assert stated == (f"{passing:.3f}" if clients < 64 else f"1 - {rest:.1e}".replace("e-07", "e-7"))
    assert f"it is {stated}" in PROSE or f"that is {stated}" in PROSE
