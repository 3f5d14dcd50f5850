from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("typer")
pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

from cli.profile.profile_files import FLEET, invoke, save_made_up_profile
from small_pictures import small_pictures


@pytest.fixture(autouse=True)
def _small_pictures() -> Iterator[None]:
    with small_pictures():
        yield


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(FLEET)
    return path


@pytest.mark.slow
def test_writes_a_report_of_several_fleets_and_schemes(fleet: Path, tmp_path: Path) -> None:
    profile = save_made_up_profile(tmp_path / "profile.json")
    folder, figures = tmp_path / "new" / "report", tmp_path / "figures.json"
    given = ("--profile", profile, "--method", "fedavg,full-he", "--report", folder, "--json", figures)
    result = invoke("simulate", fleet, fleet, *given)
    assert result.exit_code == 0, result.output
    assert (folder / "simulation.json").read_text() == figures.read_text()
    assert "full-he" in (folder / "index.html").read_text()
    assert len(list(folder.glob("*.png"))) == 2 + 4 + 2


def test_a_report_folder_that_cannot_be_made_exits_1(fleet: Path) -> None:
    result = invoke("simulate", fleet, "--paper-costs", "--report", fleet / "report")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.count("\n") == 1
