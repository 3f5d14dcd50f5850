"""Federations of an audit have one Paillier pair, and each its own session; nobody else has a pair twice."""

from __future__ import annotations

from dataclasses import replace

from shieldfl.audit.audit_config import AuditConfig
from shieldfl.audit.views.trial import Trial
from shieldfl.methods.settings import MethodSettings
from shieldfl.roles.round_keys import RoundKeys
from shieldfl.simulation.data import Dataset


def test_a_pair_that_takes_seconds_is_made_once(digits: Dataset, small: AuditConfig, monkeypatch):
    made: list[str] = []
    real = RoundKeys._make

    def counted(keys: RoundKeys, purpose: str) -> object:
        made.append(purpose)
        return real(keys, purpose)

    monkeypatch.setattr(RoundKeys, "_make", counted)
    settings = MethodSettings().changed("batch-crypt", {"key_bits": 2048})
    config = replace(small, rounds=1)
    trials = [Trial("batch-crypt", settings, config, digits, number) for number in (0, 1)]
    assert made in (["update"], [])  # none, where another test has made it
    # Both sums are opened, though of one round of one key: each is of a federation of its own.
    assert all(("client 0", 2) in one.record.models for one in trials)
    assert RoundKeys._make is counted  # outside of recorded federations nothing is kept
