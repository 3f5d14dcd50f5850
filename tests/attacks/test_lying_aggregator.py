"""What an aggregator gets that says to clients what is not so."""

from __future__ import annotations

import numpy as np
import pytest

from methods.method_conformance import SteppedRun
from methods.selective_shield_noise import SIZE, shield, values_of, zeros
from shieldfl.masks import Mask
from shieldfl.methods.method import LocalUpdate
from shieldfl.roles.message import Message


def stay(round_number, client, start):
    """An update of zeros: what is uploaded is noise and nothing else."""
    return LocalUpdate(start.parameters, start.buffers, np.zeros(SIZE, dtype=np.float32))


def deviation_of_noise(stated_participants: int) -> float:
    """Standard deviation of 20,000 values that a client uploads for zeros, told that so many take part."""
    run = SteppedRun(shield(noise_multiplier=10.0, clip_norm=1.0), initial=zeros(), train=stay, min_clients=3)
    client = run.clients[0]
    client.finish_training(stay(1, 0, client.begin_round(1, stated_participants, run.model)))
    run.sent["negotiate"] = {0: client.step("negotiate", None)}
    answer = Message({"encrypted zone": Mask.empty(SIZE).to_bytes()})
    run.sent["update"] = {0: client.step("update", answer)}
    return float(values_of(run, 0).std())


def test_a_client_that_is_told_of_no_participants_sends_no_noise():
    assert deviation_of_noise(4) == pytest.approx(20.0, rel=0.05)
    assert deviation_of_noise(0) == 0.0
