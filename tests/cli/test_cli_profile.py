from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest

pytest.importorskip("typer")

import shieldfl as sf
from cli.command_line import CLIENTS, FLEET, invoke, save_made_up_profile
from shieldfl.lab.fleet.calibration import CalibrationSettings
from shieldfl.lab.fleet.cost_source import CostSource, load_profile
from shieldfl.lab.fleet.fleet import load_fleet
from shieldfl.lab.fleet.fleet_simulation import SimulationSettings, client_rows, summarise
from shieldfl.lab.fleet.round_simulation import plan_round, simulate
from shieldfl.quantities import seconds_text
from small_pictures import small_pictures


def rows(text: str) -> dict[str, list[str]]:
    """The cells of all tables by the first one, which columns of two spaces set apart."""
    lines = (re.split(r" {2,}", line.strip()) for line in text.splitlines())
    return {cells[0]: cells[1:] for cells in lines if len(cells) > 1}


def test_calibrate_writes_a_profile_that_the_others_read(tmp_path: Path, fleet: Path) -> None:
    pytest.importorskip("torch")
    path = tmp_path / "profile.json"
    options = ("--quick", "--scheme", "ckks,paillier-single", "--key-bits", 2048, "--threads", 1)
    training = ("--model", "linear", "--sample-shape", "4,4", "--batch-size", 8)
    result = invoke("profile", "calibrate", *options, *training, "--output", path)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    profile = load_profile(path)
    assert profile.scheme_names == ("ckks", "paillier-single")
    assert (profile.model.name, profile.model.parameters) == ("linear", 170)
    table = rows(result.stdout)
    assert table["paillier-single"][-1] == "512.00"
    assert len(table["scheme"]) == len(table["ckks"]) == 4
    assert f"instruction set {sf.build_info()['instruction_set']}" in result.stdout
    assert "\x1b" not in result.stdout
    assert invoke("profile", "simulate", fleet, "--profile", path).exit_code == 0


@pytest.mark.parametrize(
    ("options", "differs"),
    [
        (("--values", 3000), {"values": 3000}),
        (("--slow-ciphertexts", 5, "--seconds", 0.25), {"slow_ciphertexts": 5, "seconds": 0.25}),
        # As they are without --quick, and given all the same.
        (("--values", CalibrationSettings().values), {"values": CalibrationSettings().values}),
    ],
    ids=lambda one: " ".join(map(str, one)),
)
def test_what_is_given_goes_before_what_a_quick_calibration_takes(
    monkeypatch: pytest.MonkeyPatch, options: tuple[object, ...], differs: dict[str, object]
) -> None:
    asked = []

    def note(settings: CalibrationSettings, on_step: object) -> None:
        asked.append(settings)
        raise sf.ShieldError("noted")

    monkeypatch.setattr("shieldfl.cli.profile.measure", note)
    for given in ((), options):
        assert invoke("profile", "calibrate", "--quick", *given).stderr == "shieldfl: noted\n"
    assert asked[0].values < CalibrationSettings().values
    assert asked[1] == replace(asked[0], **differs)


def test_simulate_prints_what_the_simulation_says(fleet: Path) -> None:
    result = invoke("profile", "simulate", fleet, "--paper-costs", "--clients-table")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    assert "\x1b" not in result.stdout
    overview, *of_clients = re.split(r"^\S+, each client\n", result.stdout, flags=re.MULTILINE)
    assert "small: 3 clients, 10,000 parameters, python-paillier-2048" in overview
    table = rows(overview)
    assert set(SimulationSettings().methods) <= set(table)
    for method, text in zip(SimulationSettings().methods, of_clients, strict=True):
        costs = CostSource.of_paper([load_fleet(fleet)])
        (scheme,) = costs.models
        rounds = simulate(method, load_fleet(fleet), costs.for_method(method, scheme))
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
    result = invoke("profile", "simulate", fleet, fleet, "--profile", profile, *options, "--json", path)
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


def test_dropouts_and_small_budgets_are_told(tmp_path: Path) -> None:
    path = tmp_path / "lossy.toml"
    path.write_text(FLEET + "dropout = 1.0\n")
    options = ("--paper-costs", "--exposed-share", 0.01, "--clients-table", "--rounds", 3)
    result = invoke("profile", "simulate", path, "--method", "sense-crypt", *options)
    assert "sense-crypt: dropouts: 3 in 3 rounds, " in result.stdout
    assert "sense-crypt: budgets smaller than what security asks for: 1 of 3 clients" in result.stdout
    assert rows(result.stdout)["phone"][-1] == "3"


def test_says_that_training_was_not_counted(tmp_path: Path, profile: Path) -> None:
    path = tmp_path / "untold.toml"
    path.write_text(f"[model]\nparameters = 10\n{CLIENTS}")
    result = invoke("profile", "simulate", path, "--profile", profile, "--json", "-")
    (note,) = json.loads(result.stdout)["notes"]
    assert note.startswith("untold: training is counted as taking no time")
    assert note in invoke("profile", "plan", path, "--profile", profile, "--target-seconds", 9).stdout


def test_plan_recommends_what_the_planner_does(fleet: Path, profile: Path, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    given = ("--profile", profile, "--target-seconds", 2, "--clients-table", "--json", path)
    result = invoke("profile", "plan", fleet, *given)
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
    result = invoke("profile", "plan", fleet, "--profile", profile, "--target-seconds", 1e-3, "--json", "-")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["feasible"] is False
    assert result.stderr.startswith("shieldfl: no scheme meets 0.001 s")
    assert result.stderr.count("\n") == 1


def test_what_is_random_is_a_mean_over_a_hundred_rounds(fleet: Path, tmp_path: Path) -> None:
    lossy = tmp_path / "lossy.toml"
    lossy.write_text(FLEET + "dropout = 0.5\n")
    path = tmp_path / "rounds.json"
    result = invoke(
        "profile", "simulate", fleet, lossy, "--paper-costs", "--method", "full-he", "--json", path
    )
    assert "Means over 1 or 100 rounds." in result.stdout
    assert re.search(r"dropouts: \d+ in 100 rounds", result.stdout)
    assert [one["rounds"] for one in json.loads(path.read_text())["fleets"]] == [1, 100]
    assert (
        "Means over 3 rounds." in invoke("profile", "simulate", lossy, "--paper-costs", "--rounds", 3).stdout
    )
    assert "Of one round." in invoke("profile", "simulate", fleet, "--paper-costs").stdout


def test_a_profile_in_which_more_threads_are_slower_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = load_profile(save_made_up_profile(tmp_path / "profile.json"))
    assert quick.notes == []
    slowed = replace(quick.schemes[0], encrypt_seconds={1: 1e-3, 2: 1.3e-3})
    slower = replace(quick, schemes=(slowed, *quick.schemes[1:]))
    slower.machine.update(cores=2, instruction_set="avx2", shieldfl="1", numpy="2", python="3")
    monkeypatch.setattr("shieldfl.cli.profile.measure", lambda *args, **kwargs: slower)
    said = invoke("profile", "calibrate").stdout
    assert "Warning: ckks encrypts 1.30 times as slowly with 2 threads as with 1." in said
    assert re.search(r"^Measured in .+\.$", said, re.MULTILINE)


@pytest.mark.slow
def test_writes_a_report_of_several_fleets_and_schemes(fleet: Path, profile: Path, tmp_path: Path) -> None:
    folder, figures = tmp_path / "new" / "report", tmp_path / "figures.json"
    given = ("--profile", profile, "--method", "fedavg,full-he", "--report", folder, "--json", figures)
    with small_pictures():
        result = invoke("profile", "simulate", fleet, fleet, *given)
    assert result.exit_code == 0, result.output
    assert (folder / "simulation.json").read_text() == figures.read_text()
    assert "full-he" in (folder / "index.html").read_text()
    assert len(list(folder.glob("*.png"))) == 2 * 2
