"""``shieldfl run --checkpoint DIR --resume``: runs that ended early, by a signal or by SIGKILL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("typer")

from cli.interrupted_run import stopped_run
from warm_python import COMMAND_LINE, WarmPython

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
        f"shieldfl: interrupted in round 1 of selective-shield: what was finished is in {json_file}; "
        "the same command with --resume goes on from the checkpoint\n"
    )
    assert [len(method["rounds"]) for method in figures(json_file)] == [3, 1]
    gone_on = warm_python.run(COMMAND_LINE, [*RUN, *options, "--resume", "--json", str(json_file)])
    assert (gone_on.returncode, gone_on.stderr) == (0, b"")
    assert figures(json_file) == figures(whole)
