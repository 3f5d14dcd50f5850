from __future__ import annotations

import errno
import math
import os
import re
import subprocess
import sys
from dataclasses import fields
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("typer")
import typer

import shieldfl as sf
from cli.command_line import invoke
from cli.run_stand_in import Driver, table_rows
from shieldfl.cli.app import app
from shieldfl.cli.run import ComparedMethods
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.lab.simulation.results import STAGES
from shieldfl.methods.registry import MethodSettings
from shieldfl.methods.selective_shield.method import SelectiveShieldSettings
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
