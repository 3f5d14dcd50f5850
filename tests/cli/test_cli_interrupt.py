"""Runs that ended early, by a signal or by SIGKILL: what is left of them, and what goes on from it."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("typer")

import json
import signal
from pathlib import Path
from typing import Any

from cli.command_line import invoke
from cli.interrupted_run import stopped_run
from page_reader import PageReader
from warm_python import COMMAND_LINE, WarmPython

TRAINING = ("run", "--model", "linear", "--clients", "3", "--local-epochs", "1", "--threads", "1")
ENDLESS = (*TRAINING, "--rounds", "100000")


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)]
)
def test_a_run_that_is_stopped_keeps_its_finished_rounds(
    warm_python: WarmPython, tmp_path: Path, number: int, code: int
) -> None:
    json_file, report = tmp_path / "out.json", tmp_path / "new" / "report"
    options = ["--method", "fedavg,full-he", "--json", str(json_file), "--report", str(report)]
    done = stopped_run(warm_python, [*ENDLESS, *options], rounds=3, number=number)
    assert done.returncode == code
    read = json.loads(json_file.read_text())
    (method,) = read["methods"]
    count = len(method["rounds"])
    assert count >= 3
    assert [record["round"] for record in method["rounds"]] == list(range(1, count + 1))
    assert read["interrupted"]["method"] == "fedavg"
    assert read["interrupted"]["round"] in (count, count + 1)
    assert read["interrupted"]["not_begun"] == ["full-he"]
    where = f"interrupted in round {read['interrupted']['round']} of fedavg, before full-he"
    kept = f"finished rounds (fedavg {count}) are in {json_file} and {report / 'index.html'}"
    assert done.stderr == f"shieldfl: {where}: {kept}\n"
    assert f"Not complete: {where}." in done.stdout
    assert "accuracy, global model" in done.stdout
    assert f"Not complete: {where}." in PageReader((report / "index.html").read_text()).text
    assert json.loads((report / "result.json").read_text()) == read
    assert {path.name for path in tmp_path.iterdir()} == {"out.json", "new"}


def test_a_run_that_is_stopped_before_its_first_round_leaves_nothing_behind(
    warm_python: WarmPython, tmp_path: Path
) -> None:
    options = ["--json", str(tmp_path / "out.json"), "--report", str(tmp_path / "new" / "report")]
    done = stopped_run(warm_python, [*ENDLESS, *options], rounds=0)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "shieldfl: interrupted: nothing was written\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_benchmark_that_is_stopped_says_that_nothing_was_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int, code: int
) -> None:
    monkeypatch.setattr("shieldfl.cli.bench.compare", lambda *_, **__: signal.raise_signal(number))
    before = [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    result = invoke("bench", "--quick", "--no-baselines", "--json", tmp_path / "out.json")
    signal.signal(signal.SIGINT, before[1])
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr == "shieldfl: interrupted: nothing was written\n"
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) is before[0]


RUN = (
    *("run", "--method", "full-he,selective-shield", "--model", "linear", "--clients", "3", "--rounds", "3"),
    *("--local-epochs", "1", "--threads", "1"),
)


def figures(path: Path) -> list[dict[str, Any]]:
    """Return what a run came to but for its times."""
    methods = json.loads(path.read_text())["methods"]
    for method in methods:
        for name in ("seconds", "setup_seconds", "timing"):
            del method[name]
        for record in method["rounds"]:
            del record["seconds"], record["stage_seconds"]
    return methods


def test_a_run_that_is_stopped_says_how_to_go_on(warm_python: WarmPython, tmp_path: Path) -> None:
    whole = tmp_path / "whole.json"
    done = warm_python.run(COMMAND_LINE, [*RUN, "--json", str(whole)])
    assert done.returncode == 0, done.stderr
    json_file, options = tmp_path / "out.json", ["--checkpoint", str(tmp_path / "run")]
    done = stopped_run(warm_python, [*RUN, *options, "--json", str(json_file)], rounds=4, pause=True)
    assert done.returncode == 130, done.stderr
    assert done.stderr == (
        "shieldfl: interrupted in round 1 of selective-shield: finished rounds (full-he 3, selective-shield 1) "
        f"are in {json_file}; the same command with --resume continues from the checkpoint\n"
    )
    assert [len(method["rounds"]) for method in figures(json_file)] == [3, 1]
    gone_on = warm_python.run(COMMAND_LINE, [*RUN, *options, "--resume", "--json", str(json_file)])
    assert (gone_on.returncode, gone_on.stderr) == (0, b"")
    assert figures(json_file) == figures(whole)
