"""The loop of a round over clients that answer in any order, or not at all."""

from __future__ import annotations

import numpy as np
import pytest

from methods.method_conformance import initial_model
from methods.small_plan import small_plan
from shieldfl.methods.registry import make_method
from shieldfl.methods.settings import MethodSettings
from shieldfl.rounds.driver import RoundDriver

CLIENTS = 3


class Backwards:
    """Clients that answer in the opposite order; those in ``gone`` train and are then never heard of."""

    def __init__(self, steps, gone=()):
        self._steps = steps
        self._gone = gone

    def begin_round(self, clients, round_number, participants, message_of):
        for index in reversed(clients):
            start = self._steps[index].begin_round(round_number, participants, message_of(index))
            moved = start.parameters + np.float32(index)
            self._steps[index].finish_training(start.trained(moved, start.buffers))

    def step(self, clients, phase, message_of):
        for index in reversed(clients):
            if index not in self._gone:
                answer = None if message_of is None else message_of(index)
                yield index, self._steps[index].step(phase, answer).to_bytes()

    def end_round(self, clients, message_of):
        for index in clients:
            self._steps[index].end_round(message_of(index))


def driver_of(gone=()):
    method = make_method("fedavg", MethodSettings(), small_plan(clients=CLIENTS))
    initial = initial_model()
    authority, setup = method.authority_setup(initial)
    steps = [method.client_steps(setup, index, 1, initial) for index in range(CLIENTS)]
    aggregator = method.aggregator_steps(setup, [1] * CLIENTS, initial=initial)
    account = method.account()
    clients = Backwards(steps, gone)
    return RoundDriver(method, authority, aggregator, clients, account)


@pytest.mark.parametrize(("gone", "mean"), [((), 1.0), ((2,), 0.5)])
def test_the_mean_is_of_those_who_answered(gone, mean):
    driver = driver_of(gone)
    traffic = driver.run_round(1, range(CLIENTS), min_clients=2)
    assert sorted(traffic.finished) == [index for index in range(CLIENTS) if index not in gone]
    assert traffic.senders == sorted(traffic.finished, reverse=True)
    moved = np.frombuffer(driver.model["parameters"], np.float32) - initial_model().parameters
    assert np.allclose(moved, mean, atol=1e-6)


def test_a_round_is_given_up_where_too_few_answer():
    driver = driver_of(gone=(1, 2))
    before = driver.model
    assert driver.run_round(1, range(CLIENTS), min_clients=2).finished == []
    assert driver.model is before
