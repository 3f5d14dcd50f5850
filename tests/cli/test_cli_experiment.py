"""``shieldfl run --experiment FILE``."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("typer")

from cli.command_line import invoke, said

SMALL = """
title = "two methods on digits"
methods = ["fedavg", "full-he"]

[run]
dataset = "digits"
model = "linear"
clients = 3
rounds = 2
local_epochs = 1
threads = 1

[[paper]]
source = "a paper's table 1"
method = "full-he"
figure = "accuracy"
value = 0.75

[[paper]]
source = "a paper's abstract"
method = "fedavg"
figure = "bytes_up"
against = "full-he"
value = [2, 3]
note = "on a larger model"
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


def test_a_file_runs_and_ours_stands_beside_the_papers(small: Path, tmp_path: Path) -> None:
    result = invoke("run", "--experiment", small, "--json", tmp_path / "result.json")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("two methods on digits\nscikit-learn digits")
    before, _, after = result.stdout.partition("Ours beside the paper's\n")
    assert "time a round" in before
    rows = [" ".join(line.split()) for line in after.splitlines()]
    assert any(re.fullmatch(r"full-he accuracy \d+\.\d\d % 75\.00 % a paper's table 1", row) for row in rows)
    assert any(
        re.fullmatch(
            r"fedavg up, a round and client: full-he / fedavg ×[\d.]+ ×2\.00 to ×3\.00 "
            r"a paper's abstract; on a larger model",
            row,
        )
        for row in rows
    )
    read = json.loads((tmp_path / "result.json").read_text())
    assert [figure["figure"] for figure in read["paper"]] == ["accuracy", "bytes_up"]
    assert read["paper"][0]["ours"] == read["methods"][1]["rounds"][-1]["accuracy"]
    assert read["config"]["model"] == "linear"


def test_synthetic_data_come_from_the_file_or_from_beside_it(small: Path, tmp_path: Path) -> None:
    small.write_text(
        SMALL.partition("[[paper]]")[0].replace("full-he", "alt-fl-si-he")
        + 'synthetic_data = "no-such-file.npz"\n'
    )
    missing = invoke("run", "--experiment", small)
    assert (missing.exit_code, missing.stdout) == (1, "two methods on digits\n")
    assert missing.stderr == "shieldfl: no-such-file.npz cannot be read: No such file or directory\n"
    archive = tmp_path / "mine.npz"
    np.savez(archive, features=np.zeros((10, 1, 8, 8), np.float32), labels=np.arange(10))
    result = invoke("run", "--experiment", small, "--synthetic-data", archive)
    assert result.exit_code == 0, result.output
    assert "alt-fl-si-he: synthetic data were given: they spend no epsilon here" in result.stdout


def test_where_and_how_it_runs_may_be_said_beside_the_file(small: Path) -> None:
    result = invoke("run", "--experiment", small, "--rounds", 1, "--seed", 7, "--threads", 2, "--json", "-")
    assert result.exit_code == 0, result.output
    read = json.loads(result.stdout)
    assert (read["config"]["rounds"], read["config"]["seed"], read["config"]["threads"]) == (1, 7, 2)
    assert len(read["methods"][0]["rounds"]) == 1


def test_a_folder_beside_the_file_has_the_checkpoint_too(small: Path, tmp_path: Path) -> None:
    of_file, of_command = tmp_path / "of-file", tmp_path / "of-command"
    small.write_text(SMALL.replace("threads = 1", f'threads = 1\nfolder = "{of_file}"'))
    result = invoke("run", "--experiment", small, "--rounds", 1, "--folder", of_command)
    assert result.exit_code == 0, result.output
    assert (of_command / "checkpoint" / "key").exists()
    assert not of_file.exists()


@pytest.mark.parametrize(
    "arguments", ["--method fedavg", "--clients 3", "--alpha iid", "--tau 0.1", "--set full-he.key_bits=2048"]
)
def test_what_the_file_decides_is_wrong_usage_beside_it(small: Path, arguments: str) -> None:
    result = invoke("run", "--experiment", small, *arguments.split())
    assert result.exit_code == 2
    assert result.stdout == ""
    assert f"{arguments.partition(' ')[0]}: the experiment file sets it" in said(result.stderr)
