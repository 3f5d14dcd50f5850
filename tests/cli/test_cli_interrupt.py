"""What is left of a run that was stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("typer")
from cli.interrupted_run import stopped_run

ENDLESS = (
    "run",
    "--model",
    "linear",
    "--clients",
    "3",
    "--local-epochs",
    "1",
    "--threads",
    "1",
    "--rounds",
    "100000",
)


def test_an_interrupted_run_loses_its_rounds(tmp_path: Path) -> None:
    json_file, report = tmp_path / "out.json", tmp_path / "report"
    done = stopped_run(
        [*ENDLESS, "--method", "fedavg", "--json", str(json_file), "--report", str(report)], rounds=2
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
    assert not json_file.exists()
    assert list(report.iterdir()) == []
