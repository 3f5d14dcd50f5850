"""Runs over Flower are those without it, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvg

from flower.digits_app import VARIANTS, DigitsRun
from flower.loopback_grid import LoopbackGrid
from privacy.seeded_draws import noise_from_seeds
from shieldfl.authority.total_opener import GrantedKeys
from shieldfl.flower.mod import ClientSession
from shieldfl.flower.strategy import ShieldStrategy


def evaluated(run, monkeypatch):
    """Return a list that fills with the float vectors of all models that clients evaluate."""
    models = []
    model_of = ClientSession.model

    def kept(session):
        record = model_of(session)
        model = session.layout.model_of(record)
        models.append(np.concatenate((model.parameters, model.buffers)))
        return record

    monkeypatch.setattr(ClientSession, "model", kept)
    return models


SLOW = (
    "alt-fl-pi",
    "batch-crypt",
    "ddp-fedavg",
    "dict-pfl, noised sums",
    "fedml-he",
    "full-he, authority",
    "full-he, ckks",
    "full-he, noised sums, authority",
    "mask-crypt",
    "sense-crypt",
    "top-2, noised sums",
)


@pytest.mark.every_run(
    "batch norm",
    "selective-shield, encrypted votes",
    "dict-pfl",
    "full-he, aggregator",
    "ddp-fedavg, adaptive",
)
@pytest.mark.parametrize(
    "label", [pytest.param(label, marks=[pytest.mark.slow] if label in SLOW else []) for label in VARIANTS]
)
def test_a_run_is_the_one_without_flower(label, monkeypatch):
    method, settings, more = VARIANTS[label]
    run = DigitsRun(method, settings=settings, **more)
    grid = LoopbackGrid(run.app, run.clients)
    models = evaluated(run, monkeypatch)
    secrets = []
    derive = GrantedKeys.shared_secret
    monkeypatch.setattr(
        GrantedKeys, "shared_secret", lambda keys: secrets.append(derive(keys)) or secrets[-1]
    )
    strategy = ShieldStrategy(FedAvg(min_available_nodes=3), run.run_config())
    with noise_from_seeds():
        result = strategy.start(grid, run.arrays(), num_rounds=run.rounds, timeout=10)
        expected = run.embedded(secrets[0] if secrets else None)
    assert set(result.evaluate_metrics_clientapp) == {1, 2}
    for number, of_clients in enumerate(expected):
        got = models[number * run.clients : (number + 1) * run.clients]
        for one, own in zip(got, of_clients, strict=True):
            np.testing.assert_array_equal(one, own)
