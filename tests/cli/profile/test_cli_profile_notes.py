"""What ``shieldfl profile`` says beside its figures: what they are of, and which of them to doubt."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("typer")

from cli.profile.profile_files import FLEET, invoke, save_made_up_profile
from shieldfl.lab.fleet.cost_model import load_profile


def test_what_is_random_is_a_mean_over_a_hundred_rounds(tmp_path: Path) -> None:
    fleet = tmp_path / "small.toml"
    fleet.write_text(FLEET)
    lossy = tmp_path / "lossy.toml"
    lossy.write_text(FLEET + "dropout = 0.5\n")
    path = tmp_path / "rounds.json"
    result = invoke("simulate", fleet, lossy, "--paper-costs", "--method", "full-he", "--json", path)
    assert "Means over 1 or 100 rounds." in result.stdout
    assert re.search(r"dropouts: \d+ in 100 rounds", result.stdout)
    assert [one["rounds"] for one in json.loads(path.read_text())["fleets"]] == [1, 100]
    assert "Means over 3 rounds." in invoke("simulate", lossy, "--paper-costs", "--rounds", 3).stdout
    assert "Of one round." in invoke("simulate", fleet, "--paper-costs").stdout


def test_a_profile_in_which_more_threads_are_slower_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = load_profile(save_made_up_profile(tmp_path / "profile.json"))
    assert quick.notes == []
    slowed = replace(quick.schemes[0], encrypt_seconds={1: 1e-3, 2: 1.3e-3})
    slower = replace(quick, schemes=(slowed, *quick.schemes[1:]))
    slower.machine.update(cores=2, instruction_set="avx2", shieldfl="1", numpy="2", python="3")
    monkeypatch.setattr("shieldfl.cli.profile.command.measure", lambda *args, **kwargs: slower)
    said = invoke("calibrate").stdout
    assert "Warning: ckks encrypts 1.30 times as slowly with 2 threads as with 1." in said
    assert re.search(r"^Measured in .+\.$", said, re.MULTILINE)
