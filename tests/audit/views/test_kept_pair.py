"""Federations of an audit have one Paillier pair, and each its own session; nobody else has a pair twice."""

from __future__ import annotations

from dataclasses import replace

from shieldfl import ckks, paillier
from shieldfl.audit.audit_config import AuditConfig
from shieldfl.audit.views import recorded_federation as module
from shieldfl.audit.views.recorded_federation import kept_pair
from shieldfl.audit.views.trial import Trial
from shieldfl.methods.settings import MethodSettings
from shieldfl.roles.round_keys import RoundKeys
from shieldfl.simulation.data import Dataset

BOUNDS = {"threads": 1, "weight_bounds": (1.0, 1.0)}


def test_a_pair_that_takes_seconds_is_made_once(digits: Dataset, small: AuditConfig, monkeypatch):
    made: list[str] = []
    real = module.KeyAuthority

    class Counted(real):
        def __new__(cls, parameters, *others, **options):
            made.append(type(parameters).__module__)
            return real(parameters, *others, **options)

    monkeypatch.setattr(module, "KeyAuthority", Counted)
    settings = MethodSettings().changed("batch-crypt", {"key_bits": 2048})
    config = replace(small, rounds=1)
    trials = [Trial("batch-crypt", settings, config, digits, number) for number in (0, 1)]
    assert len(made) <= 1  # none, where another test has made it
    # Both sums are opened, though of one round of one key: each is of a federation of its own.
    assert all(("client 0", 2) in one.record.models for one in trials)


def test_pairs_that_last_are_one_by_parameters_and_policy_and_others_are_new():
    lasting, passing = paillier.Parameters(key_bits=2048, max_clients=4), ckks.Parameters(max_clients=4)
    keys = [
        kept_pair(parameters, clients, **BOUNDS).public_key.to_bytes()
        for parameters, clients in ((lasting, 2), (lasting, 2), (lasting, 3), (passing, 2), (passing, 2))
    ]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 4


def test_nobody_else_has_a_pair_twice():
    parameters = paillier.Parameters(key_bits=2048, max_clients=4)
    first, second = (
        RoundKeys({"update": parameters}, 2).begin_round(1)["round key update"] for _ in range(2)
    )
    assert first != second
