"""The example of a fleet: its command runs as written, and says of the profile that is simulated that it is."""

from __future__ import annotations

import re
import shlex

from typer.testing import CliRunner

from documentation_pages import ROOT
from shieldfl.cli.app import app
from shieldfl.lab.fleet.cost_source import load_profile

FOLDER = ROOT / "examples" / "fleets"


def test_the_command_runs_and_every_client_is_told_what_and_why(monkeypatch):
    (command,) = re.findall(r"^```sh\n(.*?)\n```$", (FOLDER / "README.md").read_text(), re.MULTILINE)
    program, *words = shlex.split(command)
    assert program == "shieldfl"
    monkeypatch.chdir(FOLDER)
    monkeypatch.setenv("COLUMNS", "200")
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    for client in ("clinic 1", "board 3"):
        assert re.search(rf"^ {client} +\d+\.\d+ % +[\d.]+ m?s +\w+, [\d.]+ m?s", done.output, re.MULTILINE)
    assert "clinics and boards: board has its own device profile of SIMULATED" in done.output


def test_profiles_say_what_they_are():
    assert load_profile(FOLDER / "raspberry-pi-simulated.json").machine["processor"].startswith("SIMULATED")
    assert "SIMULATED" not in load_profile(FOLDER / "workstation.json").machine["processor"]
