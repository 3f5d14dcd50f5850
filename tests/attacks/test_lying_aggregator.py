"""What an aggregator gets that says to clients what is not so."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from methods.keys_made_once import keys_made_once  # noqa: F401
from methods.method_conformance import SteppedRun, assert_same_model, contraction, every_variant
from methods.selective_shield_noise import SIZE, shield, values_of, zeros
from shieldfl.errors import ParameterError, PolicyError
from shieldfl.masks import Mask
from shieldfl.methods.method import LocalUpdate
from shieldfl.methods.training_client import TrainingClient
from shieldfl.roles.message import Message


def stay(round_number, client, start):
    """An update of zeros: what is uploaded is noise and nothing else."""
    return LocalUpdate(start.parameters, start.buffers, np.zeros(SIZE, dtype=np.float32))


def told(stated_participants: int, min_clients: int = 3) -> SteppedRun:
    """A client of SelectiveShield uploads zeros, told that so many take part; the noise is 10 times the norm of 1."""
    run = SteppedRun(
        shield(noise_multiplier=10.0, clip_norm=1.0), initial=zeros(), train=stay, min_clients=min_clients
    )
    client = run.clients[0]
    client.finish_training(stay(1, 0, client.begin_round(1, stated_participants, run.begin_round(1))))
    run.sent["negotiate"] = {0: client.step("negotiate", None)}
    answer = Message({"encrypted zone": Mask.empty(SIZE).to_bytes()})
    run.sent["update"] = {0: client.step("update", answer)}
    return run


def deviation_of_noise(stated_participants: int, min_clients: int = 3) -> float:
    """Standard deviation of its 20,000 values."""
    return float(values_of(told(stated_participants, min_clients), 0).std())


def test_a_client_that_is_told_of_too_few_participants_sends_nothing():
    assert deviation_of_noise(4) == pytest.approx(20.0, rel=0.05)
    for stated in (2, 1, 0, -4):
        with pytest.raises(PolicyError, match="at least 3"):
            told(stated)


def test_the_noise_never_falls_below_a_single_clients(monkeypatch: pytest.MonkeyPatch):
    assert deviation_of_noise(1, min_clients=1) == pytest.approx(10.0, rel=0.05)
    with pytest.raises(PolicyError, match="at least 1"):
        told(0, min_clients=1)
    # Even where nothing refused the round.
    monkeypatch.setattr(TrainingClient, "begin_round", _begins_any_round(TrainingClient.begin_round))
    for stated in (0, -4):
        assert deviation_of_noise(stated) == pytest.approx(10.0, rel=0.05)


def _begins_any_round(begin):
    return lambda client, number, participants, model: begin(client, number, max(3, participants), model)


@every_variant
def test_no_method_begins_a_round_of_fewer_than_the_set_up_says(variant):
    run = SteppedRun(variant, min_clients=3)
    client, model = run.clients[0], run.method.message_for(0, run.begin_round(1))
    for stated in (0, 2):
        with pytest.raises(PolicyError, match="at least 3"):
            client.begin_round(1, stated, model)
        with pytest.raises(ParameterError, match="before training has finished"):
            client.step(run.method.phases_of(run.model, 1)[0].name, None)
    client.begin_round(1, 3, model)


@every_variant
def test_a_refused_round_does_not_change_how_the_running_one_is_protected(variant):
    """Alt-FL's third round is of another kind: its synthetic updates travel in the clear."""
    run, twin = SteppedRun(variant), SteppedRun(variant)

    def finish_and_be_lied_to(update, finish, index):
        finish(update)
        for number in range(run._round, run._round + 4):
            with pytest.raises(PolicyError, match="at least 2"):
                run.clients[index].begin_round(number, 0, run.method.message_for(index, run.model))

    for index, client in enumerate(run.clients):
        client.finish_training = partial(finish_and_be_lied_to, finish=client.finish_training, index=index)
    for _ in range(3):
        run.run_round()
        twin.run_round()
        for client, honest in zip(run.clients, twin.clients, strict=True):
            assert client.disclosure == honest.disclosure
    assert_same_model(run, twin, variant)
    assert run.method.events.all == twin.method.events.all


@every_variant
def test_a_refused_round_leaves_the_running_one_as_it_was(variant):
    run, undisturbed = SteppedRun(variant, min_clients=3), SteppedRun(variant, min_clients=3)
    for one in (run, undisturbed):
        client = one.clients[0]
        model = one.method.message_for(0, one.begin_round(1))
        client.finish_training(contraction(1, 0, client.begin_round(1, 3, model)))
    with pytest.raises(PolicyError, match="at least 3"):
        run.clients[0].begin_round(2, 2, run.method.message_for(0, run.begin_round(2)))
    phase = run.method.phases_of(run.model, 1)[0].name
    assert set(run.clients[0].step(phase, None)) == set(undisturbed.clients[0].step(phase, None))
