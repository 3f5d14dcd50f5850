from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("typer")

import errno
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import typer

import shieldfl as sf
from cli.command_line import invoke
from cli.run_stand_in import Driver, table_rows
from shieldfl.cli.app import app
from shieldfl.cli.run import ComparedMethods
from shieldfl.errors import ParameterError, RangeError
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.lab.simulation.results import STAGES
from shieldfl.methods.registry import MethodSettings
from shieldfl.methods.selective_shield.method import SelectiveShieldSettings
from small_pictures import one_picture
from warm_python import COMMAND_LINE, WarmPython

TINY = ["--rounds", "1", "--clients", "3", "--local-epochs", "1", "--threads", "1"]
BOTH = ["--method", "fedavg,selective-shield"]


def run_process(
    warm: WarmPython, *arguments: str, code: str = COMMAND_LINE
) -> subprocess.CompletedProcess[bytes]:
    """Run the real command with its output in pipes."""
    names = {key: value for key, value in os.environ.items() if key not in ("FORCE_COLOR", "TTY_COMPATIBLE")}
    return warm.run(code, arguments, environment=names)


# ---- options

OPTIONS: list[tuple[list[str], str, Any]] = [
    (["--alpha", "iid"], "alpha", math.inf),
    (["--resume", "--checkpoint", "a/run"], "resume", True),
    (["--tau", "-1"], "threshold", -1.0),
    (["--threshold", "0.1, 0.2,0.3"], "threshold", (0.1, 0.2, 0.3)),
    (["--adaptive-clip"], "adaptive_clip", True),
]


def test_every_setting_has_an_option() -> None:
    classes = (ComparedMethods, RunConfig, SelectiveShieldSettings)
    names = {field.name for kind in classes for field in fields(kind)}
    names.remove("encryption")  # of one method: --scheme is of all
    command = typer.main.get_command(app).commands["run"]
    own = {"all_figures", "assignments", "audit", "experiment", "json_file", "report"}
    assert {one.name for one in command.params} == names | own
    assert {name for _, name, _ in OPTIONS} <= names


@pytest.mark.parametrize(("arguments", "name", "value"), OPTIONS, ids=str)
def test_option_reaches_its_field(driver: Driver, arguments: list[str], name: str, value: Any) -> None:
    result = invoke("run", *arguments)
    assert result.exit_code == 0, result.output
    holder = driver.config if hasattr(driver.config, name) else driver.settings.of("selective-shield")
    assert getattr(holder, name) == value


def test_defaults_are_those_of_the_dataclasses(driver: Driver) -> None:
    assert invoke("run").exit_code == 0
    assert driver.config == RunConfig()
    assert driver.settings == MethodSettings()
    assert tuple(driver.methods) == ComparedMethods().methods == ("selective-shield",)


# ---- settings of methods that have no options of their own


def test_settings_of_other_methods_are_assigned(driver: Driver) -> None:
    given = "--set", "sense-crypt.encryption=ckks", "--set", "sense-crypt.bandwidths=[50, 45.5]"
    assert invoke("run", "--method", "fedavg,sense-crypt", *given).exit_code == 0
    assert driver.settings.of("sense-crypt").encryption == "ckks"
    assert driver.settings.of("sense-crypt").bandwidths == (50.0, 45.5)


def test_one_scheme_for_all_methods_that_have_a_choice(driver: Driver) -> None:
    methods = "fedavg,plain-he,sense-crypt,full-he,batch-crypt,selective-shield"
    result = invoke("run", "--method", methods, "--scheme", "ckks", "--set", "full-he.encryption=kahe")
    assert result.exit_code == 0, result.output
    chosen = {name: driver.settings.of(name) for name in methods.split(",")}
    assert {name: getattr(entry, "encryption", None) for name, entry in chosen.items()} == {
        "fedavg": None,
        "plain-he": "paillier-single",  # which its name stands for
        "sense-crypt": "ckks",
        "full-he": "kahe",  # asked for by name
        "batch-crypt": None,
        "selective-shield": "ckks",
    }


def test_noise_on_the_sums_of_all_methods(driver: Driver) -> None:
    methods = ("full-he", "ddp-fedavg", "alt-fl-pi")
    given = "--set", "full-he.sum_clip_norm=3", "--sum-noise", "2.5"
    assert invoke("run", "--method", ",".join(methods), *given).exit_code == 0
    noises = {name: driver.settings.of(name).asked_noise for name in methods}
    assert {name: (one.multiplier, one.clip_norm) for name, one in noises.items()} == {
        "full-he": (2.5, 3.0),
        "ddp-fedavg": (2.5, 1.0),
        "alt-fl-pi": (2.5, 1.0),
    }


# ---- failures

FAILURES = [
    (sf.DataError("no files: set\nSHIELDFL_DATA"), "shieldfl: no files: set SHIELDFL_DATA\n"),
    (PermissionError(13, "Permission denied", "a/file"), "shieldfl: a/file: Permission denied\n"),
    (OSError(errno.ENOSPC, "No space"), "shieldfl: the output cannot be written: No space\n"),
    (BlockingIOError(errno.EAGAIN, "Try again"), "shieldfl: Try again\n"),
]


@pytest.mark.parametrize(("error", "line"), FAILURES, ids=lambda item: type(item).__name__)
def test_failure_is_one_line_and_exit_code_1(driver: Driver, error: Exception, line: str) -> None:
    driver.error = error
    result = invoke("run")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr == line


def test_a_defect_keeps_its_traceback(driver: Driver) -> None:
    driver.error = ZeroDivisionError("a defect")
    assert isinstance(invoke("run").exception, ZeroDivisionError)


# ---- the real thing


def test_real_run_in_a_pipe_prints_the_table_and_nothing_else(warm_python: WarmPython) -> None:
    done = run_process(warm_python, "run", *BOTH, *TINY, "--all-figures")
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode()
    assert text.startswith("scikit-learn digits")
    assert {"global model", "whole round", "up", *STAGES} <= set(table_rows(text))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\x80-\x9f]", text)


def test_output_that_cannot_show_greek_letters(warm_python: WarmPython) -> None:
    code = f"import sys; sys.stdout.reconfigure(encoding='ascii', errors='strict'); {COMMAND_LINE}"
    done = run_process(warm_python, "run", "--method", "fedavg", *TINY, code=code)
    assert done.returncode == 0
    assert b"global model" in done.stdout


@pytest.mark.parametrize("module", ["shieldfl", "shieldfl.cli.main"])
def test_the_command_can_be_run_as_a_module(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", module, "--version"], capture_output=True, text=True, check=True
    )
    assert "0." in done.stdout


@pytest.fixture(autouse=True)
def _one_picture() -> Iterator[None]:
    with one_picture():
        yield


def test_the_table_has_what_methods_are_compared_by(driver: Driver) -> None:
    result = invoke("run", *BOTH, "--rounds", "2")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert len(lines) <= 20
    rows = table_rows("\n".join(f"  {line.strip()}" for line in lines))
    assert rows.pop("fedavg") == "selective-shield"
    assert rows == {
        "accuracy, merged models": "91.25 % 93.75 %",
        "accuracy, global model": "91.25 % 91.25 %",
        "bytes down, a client": "2.00 kB 2.00 kB (×1.00)",
        "bytes up, a client": "2.00 kB 3.00 kB (×1.50)",
        "hidden from the aggregator": "2.06 % 2.06 %",
        "time a round": "1.00 s 2.00 s (×2.0)",
        "ε": "∞ 8.5 for a client",
    }
    assert lines[-2:] == [
        "× compares with fedavg.",
        "selective-shield: ε of 8.5 at δ = 1e-05 protects a client in all rounds together, "
        "against an adversary that its page names",
    ]


def test_all_figures_side_by_side(driver: Driver) -> None:
    result = invoke("run", *BOTH, "--rounds", "2", "--all-figures")
    assert result.exit_code == 0
    assert result.stdout.startswith(
        "made-up data, mlp, 1,000 parameters, 20 clients, 2 rounds, Dirichlet α = 0.5\n"
    )
    told = {
        "personalised, mean of clients": "91.25 % 93.75 %",
        "noise": "95.00 % 95.00 %",
        "all but training": "875 ms 1.88 s (×2.1)",
        "up": "2.00 kB 3.00 kB (×1.50)",
        "set-up, once": "– –",
        "privacy unit": "– client",
        "ε": "∞ 8.5",
        "noise of σ·√K, if K was true": "– 2.5",
        **dict.fromkeys(STAGES, "125 ms 125 ms"),
    }
    assert told.items() <= table_rows(result.stdout).items()
    assert "fedavg, selective-shield: train alike" in result.stdout
    assert "selective-shield: what a reader must know" in result.stdout


def test_an_audit_attacks_what_the_aggregator_receives(tmp_path: Path) -> None:
    """For real, on few clients: plain averaging tells all labels, and of encrypted updates nothing arrives."""
    small = ["--clients", "3", "--rounds", "1", "--local-epochs", "1", "--model", "linear", "--threads", "1"]
    file = tmp_path / "run.json"
    result = invoke("run", "--method", "fedavg,full-he", *small, "--audit", "--json", file)
    assert result.exit_code == 0, result.output
    rows = {row.split("  ")[0]: row for row in (line.strip() for line in result.stdout.splitlines())}
    assert re.search(r"(9\d|100) % \(\d+–\d+\) +nothing$", rows["labels an attack reads"])
    assert re.search(r"\d\d % +–$", rows["by chance"])
    audit = json.loads(file.read_text())["audit"]
    assert {cell["status"] for cell in audit["cells"]} == {"attacked", "nothing received"}
    assert audit["cells"][0]["tries"] == 5 * audit["config"]["clients"]


@pytest.mark.parametrize("error", [ParameterError("no attack"), KeyboardInterrupt()])
def test_a_run_is_kept_whose_audit_ends_early(
    driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("shieldfl.cli.run_session.Session._audited", fail)
    file = tmp_path / "run.json"
    result = invoke("run", *BOTH, "--rounds", "2", "--audit", "--json", file)
    assert result.exit_code != 0
    assert "time a round" in result.stdout
    assert len(json.loads(file.read_text())["methods"]) == 2
    assert "the audit has not ended" in result.stderr


def test_json_on_standard_output_is_alone_there(driver: Driver) -> None:
    result = invoke("run", *BOTH, "--json", "-")
    read = json.loads(result.stdout)
    assert [method["method"] for method in read["methods"]] == ["fedavg", "selective-shield"]
    assert read["methods"][0]["rounds"][0]["epsilon"] == "Infinity"
    assert read["config"]["clients"] == 20


def test_a_disk_that_is_full_keeps_the_table(driver: Driver, tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    result = invoke("run", "--json", "/dev/full", "--report", tmp_path / "report")
    assert result.exit_code == 1
    assert result.stderr == "shieldfl: /dev/full: No space left on device\n"
    assert "accuracy, global model" in result.stdout
    assert (tmp_path / "report" / "index.html").exists()


def test_a_run_that_fails_leaves_no_empty_folder(driver: Driver, tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    driver.error = RangeError("training diverged")
    for folder in ("new/report", "old"):
        assert invoke("run", "--report", tmp_path / folder).exit_code == 1
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_a_report_folder_that_cannot_be_made_is_told_before_the_run(driver: Driver, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = invoke("run", "--report", tmp_path / "file" / "report")
    assert result.exit_code == 1
    assert result.stderr.startswith("shieldfl: ")
    assert driver.methods == ()
