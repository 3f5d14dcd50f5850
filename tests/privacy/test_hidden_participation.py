"""Amplification by hidden participation, held against whole distributions of all sets of a few clients."""

from __future__ import annotations

import math
from dataclasses import replace

import dp_accounting
import numpy as np
import pytest

from documentation_pages import doc
from privacy.sum_noise_twin import divergence_of, excess, of_drawn, summed
from shieldfl.errors import ParameterError
from shieldfl.privacy.accountant import ORDERS, divergences_if_hidden, divergences_of_sum, epsilon_of
from shieldfl.privacy.book import PrivacyBook
from shieldfl.privacy.events import (
    ClearUpload,
    ClientsDrawn,
    DataRelease,
    EncryptedUpload,
    Noise,
    NoisedUpload,
    NoiseOfDrawnSum,
    NoiseOfSum,
    NoiseShareUpload,
    OpenedSum,
)

BOTH = pytest.mark.parametrize("distribution", ["skellam", "discrete-gaussian"])
TRIED = (1.1, 1.5, 2.0, 3.0, 4.5, 8.0, 16.0, 32.0, 64.0, 256.0, 1024.0)
ROUNDING = 1.0 + 1e-9
SHARES = 3

# The first client's contribution is there or zero; all are of the largest norm, or the others of none.
FEDERATIONS = pytest.mark.parametrize(
    ("contributions", "drawn"),
    [
        ([(3,), (-3,), (-3,), (-3,)], 1),
        ([(3,), (-3,), (-3,), (3,), (0,)], 2),
        ([(5,), (0,), (0,), (0,), (0,), (0,), (0,), (0,)], 1),
        ([(2, 2), (-2, -2), (2, -2), (-2, 2), (0, 0)], 2),
        ([(3,), (-3,), (3,)], 2),
        ([(9,), (-9,), (-9,), (-9,), (-9,), (-9,)], 1),
    ],
)


def bounds(distribution, variance, norm_squared, dimension, share):
    once, twice = (
        divergences_of_sum(
            NoiseOfSum(distribution, SHARES, variance, norm_squared, dimension, -100.0), times, TRIED
        )
        for times in (1, 2)
    )
    return once, divergences_if_hidden(np.array(TRIED), once, twice, share)


def both_runs(distribution, variance, contributions, drawn):
    """What is seen with the first client's contribution, and with zeros in its place; and up to which order truly.

    The mean of a divergence of order a is of draws about a shifts out, and those that are cut have no part in it.
    """
    noise = summed(distribution, variance, SHARES)
    dimension = len(contributions[0])
    noise = noise[np.flatnonzero(noise > (1e-250 if dimension == 1 else 1e-40))]
    shift = 2 * max(abs(one) for vector in contributions for one in vector)
    most_order = (noise.size // 2 - 8.0 * math.sqrt(SHARES * variance)) / shift
    noise = np.pad(noise, 30)
    runs = (contributions, [(0,) * dimension, *contributions[1:]])
    there, gone = (of_drawn(noise, one, drawn) for one in runs)
    return there, gone, most_order


@BOTH
@FEDERATIONS
@pytest.mark.parametrize("variance", [4, 12, 40])
def test_claimed_divergences_are_above_the_true_ones(distribution, contributions, drawn, variance):
    there, gone, most_order = both_runs(distribution, variance, contributions, drawn)
    assert most_order > 2.0
    norm_squared = max(sum(one**2 for one in vector) for vector in contributions)
    once, found = bounds(
        distribution, variance, norm_squared, len(contributions[0]), drawn / len(contributions)
    )
    assert np.all(found <= once)
    for order, claimed in zip(TRIED, found, strict=True):
        if order > most_order:
            break
        assert divergence_of(there, gone, order) <= claimed * ROUNDING
        assert divergence_of(gone, there, order) <= claimed * ROUNDING


def of_one_among(others, clients, distribution="discrete-gaussian", variance=400):
    """True divergences (both ways, the larger), and what is claimed of them, of one client of so many that is drawn."""
    there, gone, most_order = both_runs(distribution, variance, [(9,)] + [(others,)] * (clients - 1), 1)
    once, found = bounds(distribution, variance, 81, 1, 1 / clients)
    whole = sum(order <= most_order for order in TRIED)
    true = [
        max(divergence_of(*pair, order) for pair in ((there, gone), (gone, there))) for order in TRIED[:whole]
    ]
    return np.array(true), once[:whole], found[:whole]


@pytest.mark.parametrize("clients", [3, 12, 30])
def test_hidden_participation_amplifies_and_is_not_claimed_far_above_the_truth(clients):
    true, once, found = of_one_among(-9, clients)
    assert np.all(true <= found * ROUNDING)
    assert found[0] < once[0] / clients
    # A claim that is lower by two thirds would be disproved, also where it is far below that without amplification.
    amplified = found < 0.9 * once
    assert amplified.any()
    assert np.any(true[amplified] > found[amplified] / 3.0)


def test_contributions_of_other_clients_count_at_twice_the_norm():
    """Who stands in the place of the client may have sent the opposite: one norm is no bound of that."""
    for others, is_disproved in ((-9, True), (0, False)):
        true, _, _ = of_one_among(others, 12)
        once, _ = bounds("discrete-gaussian", 400, 81, 1, 1 / 12)
        of_one_norm = divergences_if_hidden(np.array(TRIED), once, once, 1 / 12)[: true.size]
        assert np.any(true > of_one_norm) == is_disproved


@BOTH
def test_delta_at_the_claimed_epsilon_of_two_rounds_is_no_more_than_claimed(distribution):
    """Draws of rounds are independent, so that what is seen in both is a product."""
    variance, contributions, delta = 150, [(9,), (-9,), (-9,), (-9,)], 1e-2
    rounds = [both_runs(distribution, variance, contributions, 1)[:2]] * 2
    there, gone = (np.multiply.outer(*both).ravel() for both in zip(*rounds, strict=True))
    noise = NoiseOfSum(distribution, SHARES, variance, 81, 1, -100.0)
    hidden = epsilon_of({NoiseOfDrawnSum(noise, 1, 4): 2}, delta)
    assert hidden < epsilon_of({noise: 2}, delta)
    assert excess(there, gone, hidden) <= delta
    assert excess(there, gone, 0.25 * hidden) > delta


def test_more_drawn_clients_cost_more_up_to_what_all_of_them_do():
    noise = NoiseOfSum("skellam", 80, 500, 2_000, 100, -100.0)
    found = [
        epsilon_of({NoiseOfDrawnSum(noise, drawn, 1_000): 50}, 1e-5) for drawn in (1, 50, 100, 500, 1_000)
    ]
    assert found == sorted(found)
    assert found[2] < 0.3 * found[-1]
    assert found[-1] == epsilon_of({noise: 50}, 1e-5)


def test_the_figures_of_the_page_are_these():
    """Of the Gaussian mechanism: by this proof, by Poisson draws of once the norm, and without amplification."""
    orders, rounds, deviation, share, delta = np.array(ORDERS, dtype=float), 100, 3.0, 0.1, 1e-5
    whole = orders / 2.0 / deviation**2
    accountant = dp_accounting.rdp.RdpAccountant(ORDERS, dp_accounting.NeighboringRelation.REPLACE_SPECIAL)
    accountant.compose(dp_accounting.PoissonSampledDpEvent(share, dp_accounting.GaussianDpEvent(deviation)))
    bounds = (divergences_if_hidden(orders, whole, 4.0 * whole, share), accountant.rdp, whole)
    found = [dp_accounting.rdp.compute_epsilon(ORDERS, rounds * one, delta)[0] for one in bounds]
    page = doc("docs/reference/methods/ddp-fedavg.md").replace("\n ", "")
    assert "N = 1,000, K = 100, z = 3 and 100 rounds" in page
    sentence = page[page.index("N = 1,000, K = 100") :]
    for figure, words in zip(
        found, ("would be {:.1f}", "one norm, is {:.1f}", "amplification {:.0f}"), strict=True
    ):
        assert words.format(figure) in sentence


@pytest.mark.parametrize(("drawn", "clients"), [(0, 3), (4, 3), (1, 0)])
def test_what_is_no_draw_is_refused(drawn, clients):
    with pytest.raises(ParameterError):
        NoiseOfDrawnSum(NoiseOfSum("skellam", 1, 1, 1, 1, -1.0), drawn, clients)
    with pytest.raises(ParameterError):
        ClientsDrawn(4, drawn_from=3)


NOISE = NoiseOfSum("skellam", 2, 4_000, 1_000, 10, -100.0)


def events(draws=((3, 30), (4, 30)), rounds=((1, 3), (2, 4)), noise=NOISE):
    """A run: of each draw the number and of how many, of each round the number and how many have sent."""
    yield from (ClientsDrawn(drawn, drawn_from=of) for drawn, of in draws)
    for number, senders in rounds:
        yield from (NoiseShareUpload(number, client, noise) for client in range(senders))
        yield OpenedSum(number)


def hidden(*more, **of_run):
    return PrivacyBook([*events(**of_run), *more]).spent(1e-5).if_participation_hidden


def test_a_book_charges_every_round_to_whoever_does_not_see_who_takes_part():
    spent = PrivacyBook(events()).spent(1e-5)
    assert spent.epsilon == epsilon_of({NOISE: 2}, 1e-5)
    expected = epsilon_of({NoiseOfDrawnSum(NOISE, 3, 30): 1, NoiseOfDrawnSum(NOISE, 4, 30): 1}, 1e-5)
    assert spent.if_participation_hidden == expected < spent.epsilon
    # A draw that was too small and is drawn again opens nothing; the largest are charged.
    assert hidden(draws=((3, 30), (1, 30), (4, 30))) == expected
    # Also of a client that was in one round alone, since nobody knows that it was.
    assert hidden(rounds=((1, 3), (2, 2))) == expected


@pytest.mark.parametrize(
    "of_run",
    [
        {"draws": ((3, None), (4, None))},
        {"draws": ((3, 30), (4, None))},
        {"draws": ((3, 30), (4, 40))},
        {"draws": ((4, 30),)},
        {"draws": ((3, 30), (3, 30))},
        {"draws": ()},
        {"rounds": ((1, 3), (1, 3))},
    ],
)
def test_no_figure_where_draws_are_not_known_to_be_what_it_needs(of_run):
    assert math.isnan(hidden(**of_run))
    assert math.isfinite(PrivacyBook(events(**of_run)).spent(1e-5).epsilon)


@pytest.mark.parametrize(
    "other",
    [
        NoisedUpload(1, 0, Noise(1.0, "client")),
        DataRelease(Noise(1.0, "client")),
        EncryptedUpload(1, 0, Noise(1.0, "client")),
        ClearUpload(1, 0),
        NoiseShareUpload(3, 0, replace(NOISE, dimension=9)),
    ],
)
def test_no_figure_beside_anything_but_sums_of_one_noise(other):
    assert math.isnan(hidden(other))


def test_the_figure_ends_with_an_opened_sum_without_noise():
    assert hidden(OpenedSum(3)) == math.inf
