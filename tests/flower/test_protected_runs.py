"""Runs over Flower are those without it, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvg

from flower.digits_app import DigitsRun
from flower.loopback_grid import LoopbackGrid
from privacy.seeded_draws import noise_from_seeds
from shieldfl.authority.granted_keys import GrantedKeys
from shieldfl.flower.client_session import ClientSession
from shieldfl.flower.strategy import ShieldStrategy


def evaluated(run, monkeypatch):
    """Return a list that fills with the float vectors of all models that clients evaluate."""
    models = []
    model_of = ClientSession.model

    def kept(session, message):
        record = model_of(session, message)
        model = session.layout.model_of(record)
        models.append(np.concatenate((model.parameters, model.buffers)))
        return record

    monkeypatch.setattr(ClientSession, "model", kept)
    return models


VARIANTS = {
    "fedavg": ("fedavg", {}, {}),
    "full-he": ("full-he", {}, {}),
    "full-he by samples": ("full-he", {}, {"by_samples": True}),
    "full-he, aggregator": ("full-he", {}, {"opener": "aggregator"}),
    "full-he, authority": ("full-he", {}, {"opener": "authority"}),
    "full-he, ckks": ("full-he", {"encryption": "ckks"}, {}),
    "selective-shield, clear votes": ("selective-shield", {"noise_multiplier": 0.0}, {}),
    "selective-shield, encrypted votes": (
        "selective-shield",
        {"noise_multiplier": 0.0, "negotiation": "encrypted"},
        {},
    ),
    "dict-pfl": ("dict-pfl", {}, {}),
    "alt-fl-pi": ("alt-fl-pi", {"noise_multiplier": 0.0}, {"by_samples": True}),
    "sense-crypt": ("sense-crypt", {}, {}),
    "mask-crypt": ("mask-crypt", {}, {}),
    "fedml-he": ("fedml-he", {}, {}),
    "batch-crypt": ("batch-crypt", {}, {}),
    "batch norm": ("full-he", {}, {"model": "simple-cnn"}),
    "ddp-fedavg": ("ddp-fedavg", {}, {}),
    "ddp-fedavg, adaptive": ("ddp-fedavg", {"clipping": "adaptive", "clip_norm": 0.3}, {}),
    "full-he, noised sums": ("full-he", {"sum_noise_multiplier": 1.0}, {}),
    "full-he, noised sums, authority": ("full-he", {"sum_noise_multiplier": 1.0}, {"opener": "authority"}),
    "top-2, noised sums": ("top-2", {"sum_noise_multiplier": 1.0}, {}),
    "dict-pfl, noised sums": ("dict-pfl", {"sum_noise_multiplier": 1.0}, {}),
}


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
