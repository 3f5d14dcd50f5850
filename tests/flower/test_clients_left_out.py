"""Clients that were not in a round have its model all the same."""

from __future__ import annotations

import random
from contextlib import nullcontext

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvg

from flower.digits_app import DigitsRun
from flower.loopback_grid import LoopbackGrid
from shieldfl.errors import PolicyError
from shieldfl.flower.client_session import ClientSession
from shieldfl.flower.strategy import ShieldStrategy


@pytest.mark.parametrize("opener", [None, "aggregator"])
def test_a_client_that_was_not_in_a_round_evaluates_its_model(opener, monkeypatch):
    run = DigitsRun("full-he", clients=5, rounds=4, opener=opener)
    evaluated, model_of = {}, ClientSession.model

    def kept(session, message):
        record = model_of(session, message)
        evaluated.setdefault(session.index, []).append(session.layout.model_of(record).parameters)
        return record

    monkeypatch.setattr(ClientSession, "model", kept)
    random.seed(1)
    strategy = ShieldStrategy(FedAvg(fraction_train=0.4, fraction_evaluate=1.0), run.run_config())
    strategy.start(LoopbackGrid(run.app, run.clients), run.arrays(), num_rounds=run.rounds, timeout=10)
    assert sorted(evaluated) == [0, 1, 2, 3, 4]
    for models in evaluated.values():
        for number, model in enumerate(models[: run.rounds]):
            np.testing.assert_array_equal(model, evaluated[0][number])
    rounds = [run.initial.parameters, *evaluated[0][: run.rounds]]
    assert all((one != other).any() for one, other in zip(rounds[1:], rounds, strict=False))


@pytest.mark.every_run("[2]")
@pytest.mark.parametrize("lost", [1, 2, 3])
def test_ends_of_rounds_that_come_twice_change_nothing(lost, caplog):
    """A client evaluates, its reply is lost, and it gets again all that it is not known to have, and more."""
    run = DigitsRun("full-he", clients=5, rounds=4)
    grid = LoopbackGrid(run.app, run.clients)
    grid.after = lambda node, reply: reply.metadata.group_id != f"evaluation {lost}"
    random.seed(1)
    strategy = ShieldStrategy(FedAvg(fraction_train=0.4, fraction_evaluate=1.0), run.run_config())
    result = strategy.start(grid, run.arrays(), num_rounds=run.rounds, timeout=0.3)
    assert set(result.evaluate_metrics_clientapp) == {1, 2, 3, 4} - {lost}
    left = [one.getMessage() for one in caplog.records if " left " in one.getMessage()]
    assert len(left) == 5
    assert all(f"left evaluation {lost}: it has not answered in time" in one for one in left)


@pytest.mark.parametrize(("fraction", "fits"), [(0.4, True), (0.8, False)])
def test_a_round_of_more_than_max_clients_does_not_happen(fraction, fits):
    run = DigitsRun("full-he", clients=5, rounds=2)
    inner = FedAvg(fraction_train=fraction, fraction_evaluate=0.0)
    strategy = ShieldStrategy(inner, run.run_config(**{"max-clients": 3}))
    with nullcontext() if fits else pytest.raises(PolicyError, match="max_clients is 3"):
        strategy.start(LoopbackGrid(run.app, run.clients), run.arrays(), num_rounds=run.rounds, timeout=10)
