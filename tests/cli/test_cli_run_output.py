"""What ``shieldfl run`` prints and writes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("typer")

from cli.command_line import invoke
from cli.run_stand_in import Driver, table_rows
from shieldfl.errors import ParameterError, RangeError
from shieldfl.lab.simulation.results import STAGES
from small_pictures import one_picture

BOTH = ["--method", "fedavg,selective-shield"]


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
