"""DP-FedAvg: clients clip and noise their whole updates, and what that is worth against whom."""

from __future__ import annotations

import math

import numpy as np
import pytest

from methods.method_conformance import SteppedRun, contraction
from methods.variants import CLIENTS, PARAMETERS, Variant
from shieldfl.methods.selective_shield.settings import SelectiveShieldSettings
from shieldfl.privacy.accountant import epsilon_of
from shieldfl.privacy.events import Noise


def run_of(*, rounds: int = 3, weights: tuple[int, ...] | None = None, **changes: object) -> SteppedRun:
    variant = Variant("dp-fedavg", SelectiveShieldSettings(), "dp-fedavg").with_others(**changes)
    return SteppedRun(variant, rounds=rounds, weights=weights)


def sent_by(run: SteppedRun, client: int) -> np.ndarray:
    return run.sent["update"][client].vector("update", np.float32, PARAMETERS)


def test_an_update_is_clipped_and_noised():
    quiet, loud = run_of(noise_multiplier=0.0, clip_norm=0.25), run_of(noise_multiplier=4.0, clip_norm=0.25)
    quiet.run_round()
    loud.run_round()
    assert np.linalg.norm(sent_by(quiet, 0)) == pytest.approx(0.25, rel=1e-5)
    noise = sent_by(loud, 0) - sent_by(quiet, 0)
    # The deviation of 333 draws of N(0, 1) lies within 20 % of 1 but for one run in 10^6.
    assert noise.std() == pytest.approx(1.0, rel=0.2)
    assert quiet.clients[0].disclosure.shares()["clear"] == 1.0
    assert loud.clients[0].disclosure.shares()["noise"] == 1.0
    assert loud.clients[0].disclosure.buffers == "local"


def test_the_noise_is_drawn_once_a_round():
    run = run_of()
    run.run_round()
    assert run.clients[2].step("update", None) == run.sent["update"][2]


def test_buffers_stay_with_each_client():
    run = run_of()
    run.run_round()
    assert len(run.model["buffers"]) == 0
    own = [run.merged(client).buffers for client in range(CLIENTS)]
    assert not np.array_equal(own[0], own[1])


def test_both_epsilons_are_those_of_the_accountant():
    run = run_of(noise_multiplier=2.0)
    for _ in range(3):
        run.run_round()
    spent = run.account.spent()
    assert spent.of_noise == epsilon_of({Noise(2.0, "client"): 3}, 1e-5)
    assert spent.if_participants_true == epsilon_of({Noise(2.0 * CLIENTS**0.5, "client"): 3}, 1e-5)
    assert spent.if_participants_true < spent.epsilon == spent.of_noise


def test_a_client_that_left_takes_its_noise_with_it():
    run = run_of(noise_multiplier=2.0)
    run.run_round(dropping=[1, 2])
    together = Noise(2.0 * 2**0.5, "client")
    assert run.account.spent().if_participants_true == epsilon_of({together: 1}, 1e-5)


def test_a_round_that_was_given_up_has_shown_the_aggregator_its_updates():
    run = run_of(noise_multiplier=2.0)
    before = run.account.spent()
    client = run.clients[0]
    client.finish_training(contraction(1, 0, client.begin_round(1, CLIENTS, run.begin_round(1))))
    run.aggregator.begin_phase("update", 1, None)
    run.aggregator.receive("update", 0, client.step("update", None))
    after = run.account.spent()
    assert math.isnan(before.epsilon)
    assert after.if_participants_true == after.epsilon == epsilon_of({Noise(2.0, "client"): 1}, 1e-5)


def test_a_target_is_met_and_not_much_more():
    run = run_of(rounds=5, target_epsilon=6.0)
    for _ in range(5):
        run.run_round()
    assert 0.99 * 6.0 <= run.account.spent().epsilon <= 6.0
    assert run.setup.settings["noise_multiplier"] == run.settings()["noise_multiplier"]


def test_all_clients_weigh_alike_and_a_reader_is_told():
    run, plain = (run_of(noise_multiplier=0.0, clip_norm=100.0, weights=w) for w in ((1, 2, 3, 4), None))
    run.run_round()
    plain.run_round()
    np.testing.assert_array_equal(run.parameters, plain.parameters)
    assert any("weighs all clients alike" in note for note in run.account.notes)
