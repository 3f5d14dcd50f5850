from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

pytest.importorskip("typer")
import typer

import shieldfl as sf
from cli.profile.profile_files import CLIENTS, FLEET, invoke, save_made_up_profile
from cli.run.terminal_run import run_on_terminal
from shieldfl.cli.app import app
from shieldfl.lab.fleet.calibration import CalibrationSettings
from shieldfl.lab.fleet.cost_model import DeviceProfile, load_profile
from shieldfl.lab.fleet.cost_source import paper_cost_model, paper_costs_for
from shieldfl.lab.fleet.fleet import load_fleet
from shieldfl.lab.fleet.fleet_simulation import SimulationSettings, client_rows, summarise
from shieldfl.lab.fleet.planner import plan_round
from shieldfl.lab.fleet.round_simulation import simulate
from shieldfl.quantities import seconds_text

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(FLEET)
    return path


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_made_up_profile(tmp_path_factory.mktemp("profile") / "profile.json")


def rows(text: str) -> dict[str, list[str]]:
    """The cells of all tables by the first one, which columns of two spaces set apart."""
    lines = (re.split(r" {2,}", line.strip()) for line in text.splitlines())
    return {cells[0]: cells[1:] for cells in lines if len(cells) > 1}


def test_calibrate_writes_a_profile_that_the_others_read(tmp_path: Path, fleet: Path) -> None:
    path = tmp_path / "profile.json"
    options = ("--quick", "--scheme", "ckks,paillier-single", "--key-bits", 2048, "--threads", 1)
    result = invoke("calibrate", *options, "--output", path)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    profile = load_profile(path)
    assert profile.scheme_names == ("ckks", "paillier-single")
    table = rows(result.stdout)
    assert table["paillier-single"][-1] == "512.00"
    assert len(table["scheme"]) == len(table["ckks"]) == 4
    assert f"instruction set {sf.build_info()['instruction_set']}" in result.stdout
    assert "\x1b" not in result.stdout
    assert invoke("simulate", fleet, "--profile", path).exit_code == 0


def test_calibrate_measures_a_training_step(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    options = ("--quick", "--scheme", "ckks", "--threads", "1", "--model", "linear")
    result = invoke("calibrate", *options, "--sample-shape", "4,4", "--batch-size", 8, "--json", "-")
    assert result.exit_code == 0, result.output
    profile = DeviceProfile.from_json(json.loads(result.stdout))
    assert profile.model is not None
    assert (profile.model.name, profile.model.parameters) == ("linear", 170)


@pytest.fixture
def calibrated(monkeypatch: pytest.MonkeyPatch) -> Callable[..., CalibrationSettings]:
    """The settings of a calibration under some options, which measures nothing."""
    asked = []

    def note(settings: CalibrationSettings, on_step: object) -> None:
        asked.append(settings)
        raise sf.ShieldError("noted")

    def run(*options: object) -> CalibrationSettings:
        assert invoke("calibrate", *options).stderr == "shieldfl: noted\n"
        return asked.pop()

    monkeypatch.setattr("shieldfl.cli.profile.command.measure", note)
    return run


def test_calibrate_without_options_is_a_calibration_without_settings(
    calibrated: Callable[..., CalibrationSettings],
) -> None:
    assert calibrated() == CalibrationSettings()


@pytest.mark.parametrize(
    ("options", "differs"),
    [
        ((), {}),
        (("--values", 3000), {"values": 3000}),
        (("--slow-ciphertexts", 5, "--seconds", 0.25), {"slow_ciphertexts": 5, "seconds": 0.25}),
        # As they are without --quick, and given all the same.
        (("--values", CalibrationSettings().values), {"values": CalibrationSettings().values}),
    ],
    ids=lambda one: " ".join(map(str, one)),
)
def test_what_is_given_goes_before_what_a_quick_calibration_takes(
    calibrated: Callable[..., CalibrationSettings], options: tuple[object, ...], differs: dict[str, object]
) -> None:
    quick = calibrated("--quick")
    assert quick.values < CalibrationSettings().values
    assert calibrated("--quick", *options) == replace(quick, **differs)


def test_simulate_prints_what_the_simulation_says(fleet: Path) -> None:
    result = invoke("simulate", fleet, "--paper-costs", "--clients-table")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    assert "\x1b" not in result.stdout
    overview, *of_clients = re.split(r"^\S+, each client\n", result.stdout, flags=re.MULTILINE)
    assert "small: 3 clients, 10,000 parameters, python-paillier-2048" in overview
    table = rows(overview)
    assert set(SimulationSettings().methods) <= set(table)
    for method, text in zip(SimulationSettings().methods, of_clients, strict=True):
        rounds = simulate(method, load_fleet(fleet), paper_costs_for(method, paper_cost_model()))
        assert table[method][2] == f"{rounds.straggler_index[0]:.2f}"
        assert table[method][-1] == rounds.stragglers[0]
        values = {name: cells[0] for name, cells in rows(text).items() if name in rounds.fleet.client_names}
        assert values == {
            name: f"{count:,}"
            for name, count in zip(rounds.fleet.client_names, rounds.plan.values.tolist(), strict=True)
        }


def test_json_holds_every_figure(fleet: Path, profile: Path, tmp_path: Path) -> None:
    path = tmp_path / "simulation.json"
    options = ("--method", "full-he,sense-crypt", "--rounds", 2, "--seed", 7, "--exposed-share", 0.5)
    result = invoke("simulate", fleet, fleet, "--profile", profile, *options, "--json", path)
    assert result.exit_code == 0, result.output
    facts = json.loads(path.read_text())
    assert facts["costs"] == {
        "source": "device profile",
        "machine": {"processor": "a processor", "date": "a day"},
        "schemes": ["ckks", "paillier-single"],
    }
    assert (facts["seed"], facts["fleets"][0]["rounds"], facts["notes"]) == (7, 2, [])
    assert facts["fleets"][0] == facts["fleets"][1]
    runs = facts["fleets"][0]["runs"]
    assert [(run["scheme"], run["method"]) for run in runs] == [
        (scheme, method) for scheme in ("ckks", "paillier-single") for method in ("full-he", "sense-crypt")
    ]
    costs = load_profile(profile).cost_model("paillier-single")
    rounds = simulate("full-he", load_fleet(fleet), costs, rounds=2, seed=7)
    assert runs[2] == asdict(summarise(rounds)) | {"timelines": client_rows(rounds)}


def test_masks_follow_their_options(fleet: Path, profile: Path) -> None:
    def run(*options: object) -> dict[str, float]:
        given = ("--profile", profile, "--scheme", "paillier-single", "--json", "-")
        result = invoke("simulate", fleet, *given, *options)
        assert result.exit_code == 0, result.output
        runs = json.loads(result.stdout)["fleets"][0]["runs"]
        return {one["method"]: one["union_share"] for one in runs}

    assert run("--uniform-ratio", 0.25)["mask-crypt"] == 0.25
    few, many = run("--mask-overlap", 1.0), run("--mask-overlap", 0.0)
    assert few["sense-crypt"] == few["mask-crypt"] < many["sense-crypt"]
    assert run("--exposed-share", 0.0)["sense-crypt"] == 1.0
    assert run("--exposure-decay", 5.0, "--mask-overlap", 1.0)["sense-crypt"] > few["sense-crypt"]


def test_dropouts_and_small_budgets_are_told(tmp_path: Path) -> None:
    path = tmp_path / "lossy.toml"
    path.write_text(FLEET + "dropout = 1.0\n")
    options = ("--paper-costs", "--exposed-share", 0.01, "--clients-table", "--rounds", 3)
    result = invoke("simulate", path, "--method", "sense-crypt", *options)
    assert "sense-crypt: dropouts: 3 in 3 rounds, " in result.stdout
    assert "sense-crypt: budgets smaller than what security asks for: 1 of 3 clients" in result.stdout
    assert rows(result.stdout)["phone"][-1] == "3"


def test_says_that_training_was_not_counted(tmp_path: Path, profile: Path) -> None:
    path = tmp_path / "untold.toml"
    path.write_text(f"[model]\nparameters = 10\n{CLIENTS}")
    result = invoke("simulate", path, "--profile", profile, "--json", "-")
    (note,) = json.loads(result.stdout)["notes"]
    assert note.startswith("untold: training is counted as taking no time")
    assert note in invoke("plan", path, "--profile", profile, "--target-seconds", 9).stdout


def test_plan_recommends_what_the_planner_does(fleet: Path, profile: Path, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    given = ("--profile", profile, "--target-seconds", 2, "--clients-table", "--json", path)
    result = invoke("plan", fleet, *given)
    assert result.exit_code == 0, result.output
    measured = load_profile(profile)
    costs = {name: measured.cost_model(name) for name in measured.scheme_names}
    found = plan_round(load_fleet(fleet), costs, 2.0)
    assert result.stdout.startswith(found.describe())
    facts = json.loads(path.read_text())
    assert facts["feasible"] is True
    assert facts["clients"] == ["laptop 1", "laptop 2", "phone"]
    assert [one["scheme"] for one in facts["schemes"]] == [found.best.scheme, found.others[0].scheme]
    assert facts["schemes"][0]["budgets"] == list(found.best.budgets)
    assert facts["schemes"][1]["limit"]["step"] == found.others[0].limit.step
    share, after, *longest = rows(result.stdout)["phone"]
    assert share == f"{found.best.budgets[2] * 100:.2f} %"
    assert after == seconds_text(found.best.update_seconds[2])
    assert " ".join(longest).startswith(f"{found.best.longest_steps[2].step}, ")
    assert found.best.longest_steps[2].client == "phone"
    assert facts["schemes"][0]["longest_steps"][2]["step"] == found.best.longest_steps[2].step


def test_a_target_that_cannot_be_met_exits_1(fleet: Path, profile: Path) -> None:
    result = invoke("plan", fleet, "--profile", profile, "--target-seconds", 1e-3, "--json", "-")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["feasible"] is False
    assert result.stderr.startswith("shieldfl: no scheme meets 0.001 s")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (FLEET + "clock = 3\n", "'phone' has the unknown key 'clock'"),
        (FLEET.replace("100 Mbit/s", "0 Mbit/s"), "bandwidth: upload must be a number, above 0"),
        (FLEET.replace("100 Mbit/s", "100 furlong"), "must be a number and a unit"),
        ("[model]\nparameters = 10\n", "no clients"),
        ("[model", "not valid TOML"),
    ],
    ids=["key", "bandwidth", "unit", "no-clients", "no-toml"],
)
@pytest.mark.parametrize("command", [["simulate"], ["plan", "--target-seconds", "1"]], ids=" ".join)
def test_a_bad_fleet_exits_1_with_one_line(tmp_path: Path, command: list[str], text: str, said: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    result = invoke(*command, path, "--paper-costs")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("shieldfl: ")
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_file_that_is_no_profile_exits_1(fleet: Path) -> None:
    result = invoke("simulate", fleet, "--profile", fleet)
    assert result.exit_code == 1
    assert "device profile" in result.stderr
    assert result.stderr.count("\n") == 1


PAPER = ["--paper-costs"]
PLAN = ["plan", "FLEET", "--paper-costs"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["simulate", *PAPER],
        ["simulate", "no-such-file.toml", *PAPER],
        ["simulate", "FLEET"],
        ["simulate", "FLEET", "--profile", "no-such-file.json"],
        ["simulate", "FLEET", "--profile", "PROFILE", *PAPER],
        ["simulate", "FLEET", "--profile", "PROFILE", "--scheme", "rsa"],
        ["simulate", "FLEET", *PAPER, "--scheme", "ckks"],
        ["simulate", "FLEET", *PAPER, "--method", "magic"],
        ["simulate", "FLEET", *PAPER, "--method", ","],
        ["simulate", "FLEET", *PAPER, "--rounds", "0"],
        ["simulate", "FLEET", *PAPER, "--seed", "-1"],
        ["simulate", "FLEET", *PAPER, "--uniform-ratio", "2"],
        ["simulate", "FLEET", *PAPER, "--exposed-share", "nan"],
        ["simulate", "FLEET", *PAPER, "--report", "FLEET"],
        ["simulate", "FLEET", *PAPER, "--json", "no-such-folder/simulation.json"],
        PLAN,
        [*PLAN, "--target-seconds", "0"],
        [*PLAN, "--target-seconds", "nan"],
        [*PLAN, "--target-seconds", "1", "--least-ratio", "1.5"],
        ["calibrate", "--scheme", "rsa"],
        ["calibrate", "--key-bits", "1024"],
        ["calibrate", "--threads", "0"],
        ["calibrate", "--values", "0"],
        ["calibrate", "--model", "linear", "--sample-shape", ""],
        ["calibrate", "--output", "no-such-folder/profile.json"],
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_2(fleet: Path, profile: Path, arguments: list[str]) -> None:
    places = {"FLEET": fleet, "PROFILE": profile}
    result = invoke(*(places.get(argument, argument) for argument in arguments))
    assert result.exit_code == 2, result.output
    assert result.stdout == ""


def test_options_in_the_documentation_exist() -> None:
    commands = typer.main.get_command(app).commands["profile"].commands
    known = {option for one in commands.values() for parameter in one.params for option in parameter.opts}
    page = (ROOT / "docs" / "fleet.md").read_text()
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", page))
    assert {"--output", "--report", "--target-seconds"} <= named
    assert named <= known
    assert set(re.findall(r"shieldfl profile ([a-z]+)", page)) == set(commands)


def test_progress_is_on_the_terminal_and_the_piped_table_is_clean() -> None:
    out, err = run_on_terminal(["profile", "calibrate", "--quick", "--scheme", "ckks", "--threads", "1"])
    assert "\x1b" not in out
    assert "ckks" in rows(out)
    assert "1/2" in err


def test_a_simulation_needs_neither_torch_nor_the_plots(fleet: Path) -> None:
    code = (
        "import sys\n"
        "for name in ('torch', 'sklearn', 'opacus', 'matplotlib', 'jinja2'): sys.modules[name] = None\n"
        f"sys.argv[1:] = ['profile', 'simulate', {str(fleet)!r}, '--paper-costs', *sys.argv[1:]]\n"
        "from shieldfl.cli.main import main\n"
        "main()\n"
    )

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", code, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    done = run()
    assert (done.returncode, done.stderr) == (0, "")
    assert "full-he" in rows(done.stdout)
    done = run("--report", str(fleet.with_suffix("")))
    assert done.returncode == 1
    assert "this needs the Python package" in done.stderr
    assert done.stderr.count("\n") == 1
