"""SelectiveShield's noise zone: clipping, noise, discrete too, hidden positions, and what all of it costs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from methods.method_conformance import SteppedRun, contraction
from methods.selective_shield.selective_shield_twin import (
    SCORE_LIMIT,
    SIZE,
    assert_gaussian,
    shield,
    twin_round,
    values_of,
    zeros,
)
from methods.variants import Variant
from shieldfl.errors import ParameterError
from shieldfl.privacy.noise import float32_grid

HIDING = {"threshold": 0.5, "consensus": 1.0, "negotiation": "encrypted", "hide_personalised": True}


@pytest.mark.parametrize("clip_norm", [0.1, 1.0, 1e3])
def test_the_noise_zone_is_clipped_and_nothing_else(clip_norm):
    run = SteppedRun(shield(threshold=0.5, noise_multiplier=1e-12, clip_norm=clip_norm))
    start = run.initial.starting_point()
    trained = {client: contraction(1, client, start) for client in range(4)}
    run.run_round()
    twin = twin_round(
        start.parameters,
        {client: update.parameters - start.parameters for client, update in trained.items()},
        {client: update.scores > 0.5 for client, update in trained.items()},
        uploaders=[0, 1, 2, 3],
        consensus=0.5,
        clip_norm=clip_norm,
    )
    np.testing.assert_allclose(run.parameters, twin.parameters, rtol=0.0, atol=3e-7)
    for client in range(4):
        assert np.linalg.norm(values_of(run, client).astype(np.float64)) <= clip_norm * (1 + 1e-6)


def hiding(personal: dict[int, int]):
    """Client i keeps its first ``personal[i]`` positions and moves them, and them alone, by far."""

    def train(round_number, client, start):
        parameters = np.zeros(SIZE, dtype=np.float32)
        parameters[: personal[client]] = 5.0
        scores = (parameters > 0).astype(np.float32)
        scores[-100:] = 1.0  # what all agree on
        return start.trained(parameters, start.buffers, scores)

    return train


@pytest.mark.parametrize("kept", [0, 10, SIZE // 2])
def test_hidden_positions_carry_noise_alone(kept):
    run = SteppedRun(
        shield(**HIDING, noise_multiplier=0.5),
        clients=3,
        initial=zeros(),
        train=hiding({0: kept, 1: 0, 2: 0}),
    )
    run.run_round()
    upload = values_of(run, 0)
    assert upload.size == SIZE - 100
    for part in (upload[:kept], upload[kept:]):
        if part.size >= 1000:
            assert_gaussian(part, 0.5 * math.sqrt(3.0))
    assert run.clients[0].disclosure.shares()["personalised"] == kept / SIZE
    merged = run.clients[0].merged_model(run.model).parameters
    np.testing.assert_array_equal(merged[:kept], np.float32(5.0))


def test_an_upload_has_the_same_parts_and_lengths_whatever_is_hidden():
    lengths = set()
    for kept in (0, 1, SIZE // 2, SIZE - 200):
        run = SteppedRun(
            shield(**HIDING, noise_multiplier=0.5), clients=2, initial=zeros(), train=hiding({0: kept, 1: 0})
        )
        run.run_round()
        for sent in run.sent.values():
            lengths.add(tuple((name, len(part)) for name, part in sent[0].items()))
        assert set(run.closed["update"]) == {"total", "sums"}
    assert len(lengths) == 2  # one shape for each phase
    assert {name for shape in lengths for name, _ in shape} == {"round", "votes", "ciphertexts", "values"}


def test_hidden_contributors_are_counted_from_the_tallies():
    """The divisor at a position that one of three keeps is two, although nobody says who."""

    def train(round_number, client, start):
        scores = np.zeros(SIZE, dtype=np.float32)
        scores[0 if client == 0 else 1] = 1.0
        return start.trained(start.parameters + np.float32(0.001), start.buffers, scores)

    run = SteppedRun(
        shield(**HIDING, noise_multiplier=1e-12, clip_norm=100.0), clients=3, initial=zeros(), train=train
    )
    run.run_round()
    np.testing.assert_allclose(run.parameters, 0.001, rtol=1e-5)


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_a_target_epsilon_is_reached_and_not_exceeded(epsilon):
    run = SteppedRun(shield(target_epsilon=epsilon, delta=1e-5), rounds=5)
    sigma = run.settings()["noise_multiplier"]
    assert run.settings()["target_epsilon"] == epsilon
    for _ in range(5):
        run.account.charge_draw(4)
    spent = run.account.spent()
    assert 0.99 * epsilon <= spent.of_noise <= epsilon
    assert run.settings()["epsilon_of_what_was_charged"] == spent.of_noise
    assert any("bounds what the noise alone is charged" in note for note in run.account.notes)
    # The noise really added is that of sigma * sqrt(4).
    twin = SteppedRun(shield(noise_multiplier=2.0 * sigma), rounds=5)
    for _ in range(5):
        twin.account.charge_draw(1)
    assert spent.if_participants_true == pytest.approx(twin.account.spent().of_noise, rel=1e-9)
    assert spent.if_participants_true < spent.of_noise


def discrete(**settings) -> Variant:
    return shield(**{"noise_distribution": "discrete-gaussian", **settings})


def stay(round_number, client, start):
    return start.trained(start.parameters, start.buffers, np.zeros(start.parameters.size, dtype=np.float32))


def is_on_grid(values: np.ndarray, fraction_bits: int) -> bool:
    steps = np.ldexp(values.astype(np.float64), fraction_bits)
    return np.array_equal(steps, np.rint(steps))


@pytest.mark.parametrize(
    ("clients", "sigma", "clip", "distribution"),
    [
        (2, 0.5, 1.0, "discrete-gaussian"),
        (5, 2.0, 0.25, "discrete-gaussian"),
        (3, 1e-3, 100.0, "discrete-gaussian"),
        (5, 2.0, 0.25, "gaussian"),
    ],
)
def test_uploads_have_the_variance_that_the_paper_states(clients, sigma, clip, distribution):
    """On the grid, where noise is discrete. One client more is there, and not in the round."""
    settings = {"noise_multiplier": sigma, "clip_norm": clip, "noise_distribution": distribution}
    run = SteppedRun(discrete(**settings), clients=clients + 1, initial=zeros(), train=stay)
    run.run_round(list(range(clients)))
    deviation = clip * sigma * math.sqrt(clients)
    uploads = [values_of(run, client) for client in range(clients)]
    for upload in uploads:
        assert upload.size == SIZE
        assert is_on_grid(upload, float32_grid(deviation)) or distribution == "gaussian"
        assert_gaussian(upload, deviation)  # text under eq. 21
    assert abs(np.corrcoef(uploads)[0, 1]) * math.sqrt(SIZE) < SCORE_LIMIT
    assert_gaussian(run.parameters, clip * sigma)


def test_trained_values_are_rounded_to_the_grid_and_floating_point_noise_is_not():
    settings = {"threshold": 0.5, "noise_multiplier": 0.5, "clip_norm": 0.25}
    fraction_bits = float32_grid(0.25 * 0.5 * math.sqrt(4))
    for distribution, expected in (("discrete-gaussian", True), ("gaussian", False)):
        run = SteppedRun(discrete(noise_distribution=distribution, **settings))
        run.run_round()
        assert is_on_grid(values_of(run, 0), fraction_bits) is expected


def test_an_adaptive_norm_sets_the_grid_too():
    def step(round_number, client, start):
        moved = start.parameters + np.float32(1e-3 / math.sqrt(SIZE))
        return start.trained(moved, start.buffers, np.zeros(SIZE, dtype=np.float32))

    run = SteppedRun(
        discrete(noise_multiplier=3.0, adaptive_clip=True), clients=2, initial=zeros(), train=step
    )
    for norm in (1.0, 1e-3):  # the second is the norm observed in the first round
        run.run_round()
        deviation = 3.0 * norm * math.sqrt(2.0)
        assert_gaussian(values_of(run, 0), deviation)
    # Norms are observed to a relative 1e-6 of 1e-3, which does not move the deviation across a power of two.
    assert is_on_grid(values_of(run, 0), float32_grid(deviation))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"noise_multiplier": 1e5}, "too large for discrete-gaussian noise on 20000 parameters of 4 clients"),
        ({"noise_multiplier": 1.5, "clip_norm": 2.0**20}, "below 2\\^21"),  # only with the sqrt of 4 clients
        ({"noise_multiplier": 2.0**-29, "clip_norm": 2.0**-101}, "at least 2\\^-129"),
        ({"target_epsilon": 1.0, "clip_norm": 2.0**20}, "below 2\\^21"),
    ],
)
def test_settings_that_no_grid_fits_are_refused_before_a_round(settings, message):
    with pytest.raises(ParameterError, match=message):
        SteppedRun(discrete(**settings), initial=zeros())
    SteppedRun(discrete(noise_distribution="gaussian", **settings), initial=zeros())


@given(st.floats(2.0**-129, 2.0**20), st.integers(-(2**37), 2**37))
def test_float32_does_not_leave_the_grid(deviation, steps):
    fraction_bits = float32_grid(deviation)
    assert 2.0**20 <= math.ldexp(deviation, fraction_bits) < 2.0**21
    exact = math.ldexp(steps, -fraction_bits)
    sent = np.array([exact]).astype(np.float32)
    assert is_on_grid(sent, fraction_bits)
    if abs(steps) <= 2**24:
        assert float(sent[0]) == exact


@pytest.mark.parametrize("deviation", [0.0, -1.0, math.nan, math.inf, 2.0**21, 2.0**-130])
def test_a_deviation_without_a_grid_is_refused(deviation):
    with pytest.raises(ParameterError, match="standard deviation"):
        float32_grid(deviation)
