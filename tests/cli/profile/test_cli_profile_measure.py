from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pytest

pytest.importorskip("typer")
from typer.testing import CliRunner

from shieldfl.cli.app import app
from shieldfl.fleet.costs.calibration import CalibrationSettings, calibrate
from shieldfl.fleet.fleet_file import load_fleet
from shieldfl.fleet.measure.client_processes import ClientProcesses
from shieldfl.fleet.measure.processor_quota import processor_quotas
from shieldfl.fleet.simulate.round_simulation import STAGES
from shieldfl.scheme.registry import DEFAULT_ENCRYPTION

EXPERIMENTS = Path(__file__).parents[3] / "bench" / "experiments"
FLEET = """
[model]
parameters = 3000
train_core_seconds_per_sample = 0.0005
[training]
min_clients = 2
[[client]]
name = "near"
cores = 1
cpu_share = 0.5
bandwidth = "5 MB/s"
samples = 20
[[client]]
name = "far"
cores = 1
cpu_share = 0.25
bandwidth = "2 MB/s"
latency = "5 ms"
samples = 10
"""


def invoke(*arguments: object):
    return CliRunner().invoke(app, ["profile", "measure", *map(str, arguments)])


@pytest.fixture(autouse=True)
def _short_probes(monkeypatch):
    monkeypatch.setattr("shieldfl.fleet.measure.shared_machine._PROBE_SECONDS", 0.0)


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    path = tmp_path / "two.toml"
    path.write_text(FLEET)
    return path


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("profile") / "profile.json"
    calibrate(
        CalibrationSettings(
            schemes=(DEFAULT_ENCRYPTION,), threads=(1,), values=5000, seconds=0.0, other_sets=False
        )
    ).save(path)
    return path


def test_prints_measured_beside_simulated(fleet: Path, profile: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path, picture = tmp_path / "measured.json", tmp_path / "gantt.png"
    options = ("--method", "fedavg,full-he", "--rounds", 2, "--json", path, "--gantt", picture)
    result = invoke(fleet, "--profile", profile, *options)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    assert "\x1b" not in result.stdout
    assert f"two: 2 clients, 3,000 parameters, {DEFAULT_ENCRYPTION}" in result.stdout
    facts = json.loads(path.read_text())
    assert [one["method"] for one in facts["methods"]] == ["fedavg", "full-he"]
    last = facts["methods"][-1]
    error = re.escape(f"{last['round']['error']:+.1%}")
    assert re.search(rf"^ *round .* {error}", result.stdout, re.MULTILINE)
    assert (
        f"{last['mean_error']:.1%} at a client on average, {last['largest_error']:+.1%} at most"
        in result.stdout
    )
    for step in STAGES:
        assert len(last["measured"][f"{step}_seconds"]) == 2
    assert [one["client"] for one in last["clients"]] == ["near", "far"]
    assert last["measured"]["limit"] in result.stdout
    assert "the processor time that the fleet file states" in result.stdout
    assert picture.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_calibrates_first_without_a_profile(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def quick(settings: CalibrationSettings, on_step: object = None):
        asked.append(settings)
        return calibrate(
            CalibrationSettings(
                schemes=settings.schemes, threads=(1,), values=5000, seconds=0.0, other_sets=False
            )
        )

    monkeypatch.setattr("shieldfl.cli.profile.measure.calibrate", quick)
    result = invoke(fleet, "--method", "fedavg", "--rounds", 1, "--json", "-")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["scheme"] == DEFAULT_ENCRYPTION
    (settings,) = asked
    assert (settings.schemes, list(settings.threads), settings.model) == ((DEFAULT_ENCRYPTION,), [1], None)
    # Every client runs here, with the best set.
    assert settings.other_sets is False


def test_clients_that_all_die_exit_1_and_what_was_seen_is_written(
    fleet: Path, profile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered = ClientProcesses.__enter__

    def enter(self: ClientProcesses) -> ClientProcesses:
        entered(self)
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)
        return self

    monkeypatch.setattr(ClientProcesses, "__enter__", enter)
    path, picture = tmp_path / "measured.json", tmp_path / "gantt.png"
    result = invoke(fleet, "--profile", profile, "--rounds", 1, "--json", path, "--gantt", picture)
    assert result.exit_code == 1, result.output
    assert result.stderr.startswith("shieldfl: all clients dropped out under fedavg, full-he, so nothing was")
    assert "dropped out, rounds in brackets: near (1), far (1)" in result.stdout
    assert json.loads(path.read_text())["methods"][0]["measured"]["dropped"] == [[True, True]]


def test_a_fleet_that_does_not_fit_exits_1(fleet: Path, profile: Path) -> None:
    fleet.write_text(FLEET.replace('name = "far"', 'name = "far"\ncount = 10_000'))
    result = invoke(fleet, "--profile", profile)
    assert result.exit_code == 1
    assert "lower count" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-file.toml"],
        ["FLEET", "--method", "magic"],
        ["FLEET", "--scheme", "rsa"],
        ["FLEET", "--scheme", "paillier-dense-pooled"],
        ["FLEET", "--rounds", "0"],
        ["FLEET", "--seed", "-1"],
        ["FLEET", "--profile", "no-such-file.json"],
        ["FLEET", "--gantt", "gantt.pdf"],
        ["FLEET", "--json", "no-such-folder/measured.json"],
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_2(fleet: Path, arguments: list[str]) -> None:
    result = invoke(*(fleet if argument == "FLEET" else argument for argument in arguments))
    assert result.exit_code == 2, result.output
    assert result.stdout == ""


@pytest.mark.parametrize("clients", [4, 8])
def test_the_experiments_fit_on_two_cores(clients: int) -> None:
    fleet = load_fleet(EXPERIMENTS / f"fleet-measured-{clients}.toml")
    assert fleet.size == clients
    assert len(processor_quotas(fleet, 2)) == clients
