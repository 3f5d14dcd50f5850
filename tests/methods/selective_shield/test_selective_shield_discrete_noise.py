"""SelectiveShield's noise zone under discrete Gaussian noise: on the grid, with the stated variance, charged alike."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from methods.method_conformance import SteppedRun, contraction
from methods.selective_shield.selective_shield_noise import (
    SCORE_LIMIT,
    SIZE,
    assert_gaussian,
    values_of,
    zeros,
)
from methods.selective_shield.selective_shield_noise import shield as plain_shield
from methods.variants import Variant
from shieldfl.errors import ParameterError
from shieldfl.privacy.noise import float32_grid


def shield(**settings) -> Variant:
    return plain_shield(**{"noise_distribution": "discrete-gaussian", **settings})


def stay(round_number, client, start):
    return start.trained(start.parameters, start.buffers, np.zeros(start.parameters.size, dtype=np.float32))


def is_on_grid(values: np.ndarray, fraction_bits: int) -> bool:
    steps = np.ldexp(values.astype(np.float64), fraction_bits)
    return np.array_equal(steps, np.rint(steps))


@pytest.mark.parametrize(("clients", "sigma", "clip"), [(2, 0.5, 1.0), (5, 2.0, 0.25), (3, 1e-3, 100.0)])
def test_uploads_are_on_the_grid_with_the_variance_that_the_paper_states(clients, sigma, clip):
    run = SteppedRun(
        shield(noise_multiplier=sigma, clip_norm=clip), clients=clients, initial=zeros(), train=stay
    )
    run.run_round()
    deviation = clip * sigma * math.sqrt(clients)
    uploads = [values_of(run, client) for client in range(clients)]
    for upload in uploads:
        assert upload.size == SIZE
        assert is_on_grid(upload, float32_grid(deviation))
        assert_gaussian(upload, deviation)  # text under eq. 21
    assert abs(np.corrcoef(uploads)[0, 1]) * math.sqrt(SIZE) < SCORE_LIMIT
    assert_gaussian(run.parameters, clip * sigma)


def test_trained_values_are_rounded_to_the_grid_and_floating_point_noise_is_not():
    settings = {"threshold": 0.5, "noise_multiplier": 0.5, "clip_norm": 0.25}
    fraction_bits = float32_grid(0.25 * 0.5 * math.sqrt(4))
    for distribution, expected in (("discrete-gaussian", True), ("gaussian", False)):
        run = SteppedRun(shield(noise_distribution=distribution, **settings))
        run.run_round()
        assert is_on_grid(values_of(run, 0), fraction_bits) is expected


@pytest.mark.parametrize("clip_norm", [0.1, 8.0])
def test_values_are_clipped_before_the_noise(clip_norm):
    run = SteppedRun(shield(threshold=0.5, noise_multiplier=2.0**-29, clip_norm=clip_norm))
    start = run.initial.starting_point()
    run.run_round()
    for client in range(4):
        update = contraction(1, client, start)
        zone = run.clients[client]._zones.noise
        sent = zone.gather(update.parameters - start.parameters).astype(np.float64)
        expected = sent * min(1.0, clip_norm / np.linalg.norm(sent))
        np.testing.assert_allclose(values_of(run, client), expected, rtol=1e-6, atol=2e-7)


def test_without_a_noise_multiplier_the_distribution_changes_nothing():
    runs = [
        SteppedRun(shield(threshold=0.5, noise_distribution=name))
        for name in ("gaussian", "discrete-gaussian")
    ]
    for run in runs:
        run.run_round()
    np.testing.assert_array_equal(values_of(runs[0], 0), values_of(runs[1], 0))
    np.testing.assert_array_equal(runs[0].parameters, runs[1].parameters)
    assert runs[1].clients[0].disclosure.shares()["clear"] > 0.0


def test_a_client_that_is_asked_again_sends_the_same_noise_again():
    run = SteppedRun(shield(noise_multiplier=0.5), initial=zeros())
    run.run_round()
    again = run.clients[0].step("update", run.answers["negotiate"])
    assert again.to_bytes() == run.sent["update"][0].to_bytes()
    before = values_of(run, 0)
    run.run_round()
    assert not np.array_equal(values_of(run, 0), before)


def test_hidden_positions_carry_noise_of_the_same_grid():
    kept = SIZE // 2

    def keep_half(round_number, client, start):
        parameters = np.zeros(SIZE, dtype=np.float32)
        parameters[:kept] = 5.0 if client == 0 else 0.0
        return start.trained(parameters, start.buffers, (parameters > 0).astype(np.float32))

    hidden = shield(
        threshold=0.5, consensus=1.0, noise_multiplier=0.5, negotiation="encrypted", hide_personalised=True
    )
    run = SteppedRun(hidden, clients=3, initial=zeros(), train=keep_half)
    run.run_round()
    upload, deviation = values_of(run, 0), 0.5 * math.sqrt(3.0)
    assert is_on_grid(upload, float32_grid(deviation))
    for part in (upload[:kept], upload[kept:]):
        assert_gaussian(part, deviation)


def test_an_adaptive_norm_sets_the_grid_too():
    def step(round_number, client, start):
        moved = start.parameters + np.float32(1e-3 / math.sqrt(SIZE))
        return start.trained(moved, start.buffers, np.zeros(SIZE, dtype=np.float32))

    run = SteppedRun(shield(noise_multiplier=3.0, adaptive_clip=True), clients=2, initial=zeros(), train=step)
    for norm in (1.0, 1e-3):  # the second is the norm observed in the first round
        run.run_round()
        deviation = 3.0 * norm * math.sqrt(2.0)
        assert_gaussian(values_of(run, 0), deviation)
    # Norms are observed to a relative 1e-6 of 1e-3, which does not move the deviation across a power of two.
    assert is_on_grid(values_of(run, 0), float32_grid(deviation))


def test_both_distributions_are_charged_alike():
    spent = []
    for distribution in ("gaussian", "discrete-gaussian"):
        account = SteppedRun(shield(noise_multiplier=0.5, noise_distribution=distribution)).account
        account.charge_draw(4)
        spent.append(account.spent())
    assert repr(spent[0]) == repr(spent[1])  # without an upload epsilon is NaN
    assert 0.0 < spent[1].if_participants_true < spent[1].of_noise < math.inf


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
        SteppedRun(shield(**settings), initial=zeros())
    SteppedRun(shield(noise_distribution="gaussian", **settings), initial=zeros())


def test_the_largest_multiplier_that_is_taken_works():
    sigma = 2.0**20 / math.sqrt(4 * SIZE)
    run = SteppedRun(shield(noise_multiplier=sigma), initial=zeros(), train=stay)
    run.run_round()
    assert_gaussian(values_of(run, 0), 2.0 * sigma)


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


def test_the_command_line_runs_it_and_states_it(tmp_path):
    testing = pytest.importorskip("typer.testing")
    pytest.importorskip("sklearn")
    from shieldfl.cli.app import app

    path = tmp_path / "result.json"
    arguments = ["run", "--rounds", "1", "--clients", "3", "--local-epochs", "1", "--threads", "1"]
    arguments += ["--noise-distribution", "discrete-gaussian", "--noise-multiplier", "0.02"]
    result = testing.CliRunner().invoke(app, [*arguments, "--json", str(path)])
    assert result.exit_code == 0, result.output
    method = json.loads(path.read_text())["methods"][0]
    assert method["settings"]["noise_distribution"] == "discrete-gaussian"
    assert method["rounds"][0]["zone_shares"]["noise"] > 0.0
    assert method["rounds"][0]["epsilon_of_noise"] > 0.0
