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
from cli.run.run_stand_in import Driver, invoke, table_rows
from shieldfl.cli.app import app
from shieldfl.cli.run.options import ComparedMethods
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.lab.simulation.results import STAGES
from shieldfl.methods.selective_shield.settings import SelectiveShieldSettings
from shieldfl.methods.settings import MethodSettings
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
    (["--dataset", "mnist"], "dataset", "mnist"),
    (["--data-dir", "some/where"], "data_dir", "some/where"),
    (["--model", "linear"], "model", "linear"),
    (["--synthetic-data", "made.npz"], "synthetic_data", "made.npz"),
    (["--clients", "7"], "clients", 7),
    (["--rounds", "2"], "rounds", 2),
    (["--alpha", "0.2"], "alpha", 0.2),
    (["--alpha", "iid"], "alpha", math.inf),
    (["--local-epochs", "3"], "local_epochs", 3),
    (["--batch-size", "64"], "batch_size", 64),
    (["--learning-rate", "0.125"], "learning_rate", 0.125),
    (["--momentum", "0.25"], "momentum", 0.25),
    (["--weight-decay", "0.001"], "weight_decay", 0.001),
    (["--sample-rate", "0.75"], "sample_rate", 0.75),
    (["--min-clients", "4"], "min_clients", 4),
    (["--dropout", "0.25"], "dropout", 0.25),
    (["--weighting", "samples"], "weighting", "samples"),
    (["--server-learning-rate", "0.5"], "server_learning_rate", 0.5),
    (["--seed", "11"], "seed", 11),
    (["--threads", "1"], "threads", 1),
    (["--checkpoint", "a/run"], "checkpoint", "a/run"),
    (["--resume", "--checkpoint", "a/run"], "resume", True),
    (["--tau", "0.1"], "threshold", 0.1),
    (["--tau", "-1"], "threshold", -1.0),
    (["--threshold", "0.1, 0.2,0.3"], "threshold", (0.1, 0.2, 0.3)),
    (["--rho", "1"], "consensus", 1.0),
    (["--consensus", "0.25"], "consensus", 0.25),
    (["--noise-multiplier", "0.05"], "noise_multiplier", 0.05),
    (["--noise-distribution", "discrete-gaussian"], "noise_distribution", "discrete-gaussian"),
    (["--clip-norm", "2.5"], "clip_norm", 2.5),
    (["--adaptive-clip"], "adaptive_clip", True),
    (["--target-epsilon", "8"], "target_epsilon", 8.0),
    (["--delta", "1e-6"], "delta", 1e-6),
    (["--divisor", "participants"], "divisor", "participants"),
    (["--negotiation", "encrypted"], "negotiation", "encrypted"),
    (
        ["--hide-personalised", "--negotiation", "encrypted", "--noise-multiplier", "1"],
        "hide_personalised",
        True,
    ),
    (["--buffers", "encrypted"], "buffers", "encrypted"),
    (["--sensitivity", "per-sample"], "sensitivity", "per-sample"),
    (["--value-bits", "30"], "value_bits", 30),
    (["--fraction-bits", "16"], "fraction_bits", 16),
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
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    holder = driver.config if hasattr(driver.config, name) else driver.settings.of("selective-shield")
    assert getattr(holder, name) == value


def test_defaults_are_those_of_the_dataclasses(driver: Driver) -> None:
    assert invoke().exit_code == 0
    assert driver.config == RunConfig()
    assert driver.settings == MethodSettings()
    assert tuple(driver.methods) == ComparedMethods().methods == ("selective-shield",)


def test_methods_are_split_at_commas(driver: Driver) -> None:
    assert invoke("--method", " fedavg, selective-shield").exit_code == 0
    assert list(driver.methods) == ["fedavg", "selective-shield"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--clients", "0"], "at least 1"),
        (["--resume"], "nothing to resume from: name the run's folder"),
        (["--clients", "many"], "--clients"),
        (["--alpha", "even"], "--alpha"),
        (["--tau", "0.1,x"], "--tau"),
        (["--rho", "0"], "consensus"),
        (["--divisor", "nobody"], "divisor must be one of"),
        (["--hide-personalised"], "negotiation"),
        (["--method", ","], "unknown method ','"),
        (["--method", ""], "--method must be a list that is not empty"),
        (["--method", "fedavg,fedavg"], "named twice"),
        (["--method", "fedavg,magic"], "fedavg, selective-shield"),
        (["--json", "no-such-folder/result.json"], "no-such-folder"),
        (["--no-such-option"], "--no-such-option"),
    ],
    ids=str,
)
def test_wrong_usage_exits_2_and_says_why(driver: Driver, arguments: list[str], words: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert words in " ".join(re.sub("[│\n]", " ", result.stderr).split())
    assert driver.methods == ()


# ---- failures

FAILURES = [
    (sf.DataError("no files: set\nSHIELDFL_DATA"), "shieldfl: no files: set SHIELDFL_DATA\n"),
    (sf.RangeError("training diverged"), "shieldfl: training diverged\n"),
    (sf.ParameterError("too many clients"), "shieldfl: too many clients\n"),
    (PermissionError(13, "Permission denied", "a/file"), "shieldfl: a/file: Permission denied\n"),
    (OSError(errno.ENOSPC, "No space"), "shieldfl: the output cannot be written: No space\n"),
    (OSError(errno.EIO, "I/O error"), "shieldfl: the output cannot be written: I/O error\n"),
    (OSError(errno.ENOMEM, "Cannot allocate memory"), "shieldfl: Cannot allocate memory\n"),
    (BlockingIOError(errno.EAGAIN, "Try again"), "shieldfl: Try again\n"),
]


@pytest.mark.parametrize(("error", "line"), FAILURES, ids=lambda item: type(item).__name__)
def test_failure_is_one_line_and_exit_code_1(driver: Driver, error: Exception, line: str) -> None:
    driver.error = error
    result = invoke()
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr == line


def test_a_defect_keeps_its_traceback(driver: Driver) -> None:
    driver.error = ZeroDivisionError("a defect")
    assert isinstance(invoke().exception, ZeroDivisionError)


# ---- the real thing


def test_version(warm_python: WarmPython) -> None:
    done = run_process(warm_python, "--version")
    assert (done.returncode, done.stdout.decode(), done.stderr) == (0, f"shieldfl {sf.__version__}\n", b"")


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
