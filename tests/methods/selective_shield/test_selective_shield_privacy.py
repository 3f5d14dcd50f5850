"""SelectiveShield's noise zone: clipping, noise, hidden positions, and what all of it costs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from methods.method_conformance import SteppedRun, contraction
from methods.selective_shield.selective_shield_twin import (
    SIZE,
    assert_gaussian,
    shield,
    twin_round,
    values_of,
    zeros,
)

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
