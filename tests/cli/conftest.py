"""What tests of commands share."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("typer")

from cli.command_line import FLEET, save_made_up_profile
from cli.run_stand_in import Driver
from methods.keys_made_once import keys_made_once  # noqa: F401


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    """In the place of the runner."""
    driver = Driver()
    monkeypatch.setattr("shieldfl.lab.simulation.runner.run_seeds", driver)
    return driver


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(FLEET)
    return path


@pytest.fixture(scope="session")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made up, so that tests do not depend on the machine."""
    return save_made_up_profile(tmp_path_factory.mktemp("profile") / "profile.json")
