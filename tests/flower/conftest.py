"""Nodes of these tests are a simulation's, unless one says otherwise."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def simulated(monkeypatch):
    monkeypatch.setattr("shieldfl.flower.mod.is_simulated", lambda: True)
