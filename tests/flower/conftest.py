"""Nodes of these tests are a simulation's, unless one says otherwise."""

from __future__ import annotations

import pytest

from methods.keys_made_once import keys_made_once  # noqa: F401


@pytest.fixture(autouse=True)
def simulated(monkeypatch):
    monkeypatch.setattr("shieldfl.flower.mod.is_simulated", lambda: True)
