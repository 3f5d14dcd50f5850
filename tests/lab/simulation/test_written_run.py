"""A run's folder: what is in it while the run goes on, after it was cut off, and once it has ended."""

from __future__ import annotations

import csv
import json
import os
import shutil
from pathlib import Path

import pytest

import shieldfl as sf
from lab.simulation.small_runs import run_methods
from shieldfl.errors import DataError, PolicyError
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.lab.simulation.results import RunInterrupted
from shieldfl.lab.simulation.written_run import commit_facts

SMALL = {"rounds": 2, "clients": 3, "local_epochs": 1, "model": "linear"}


def lines(folder):
    return [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]


def test_a_run_has_its_settings_before_its_rounds_and_each_round_once_it_ended(tmp_path):
    folder, seen = tmp_path / "run", []

    def on_round(method, record):
        settings = json.loads((folder / "settings.json").read_text())
        seen.append((settings["methods"].keys(), lines(folder)[-1], (folder / "result.json").exists()))

    config = RunConfig(**SMALL, folder=str(folder))
    result = run_methods(config, ["fedavg", "full-he"], on_round=on_round)
    assert [(line["method"], line["round"], is_over) for _, line, is_over in seen] == [
        ("fedavg", 1, False),
        ("fedavg", 2, False),
        ("full-he", 1, False),
        ("full-he", 2, False),
    ]
    assert all(names == {"fedavg", "full-he"} for names, *_ in seen)
    settings = json.loads((folder / "settings.json").read_text())
    assert settings["run"]["clients"] == 3
    assert settings["methods"]["full-he"]["encryption"] == "kahe"
    assert settings["environment"]["version"] == sf.__version__
    assert "date" in settings["machine"]
    assert json.loads((folder / "result.json").read_text()) == json.loads(json.dumps(result.to_json()))
    table = list(csv.DictReader((folder / "rounds.csv").read_text().splitlines()))
    assert [(row["method"], float(row["accuracy"])) for row in table] == [
        (line["method"], line["accuracy"]) for line in lines(folder)
    ]
    with pytest.raises(PolicyError, match="name another folder"):
        run_methods(config, ["fedavg"])
    shutil.rmtree(folder / "checkpoint")
    with pytest.raises(PolicyError, match="there is a run in"):
        run_methods(config, ["fedavg"])


def test_a_run_that_was_cut_off_has_each_line_once_when_it_is_gone_on_with(tmp_path):
    folder = tmp_path / "run"

    def stop(method, record):
        if (method, record.round) == ("full-he", 1):
            raise KeyboardInterrupt

    config = RunConfig(**SMALL, folder=str(folder))
    with pytest.raises(RunInterrupted):
        run_methods(config, ["fedavg", "full-he"], on_round=stop)
    assert [(line["method"], line["round"]) for line in lines(folder)] == [
        ("fedavg", 1),
        ("fedavg", 2),
        ("full-he", 1),
    ]
    kept = json.loads((folder / "result.json").read_text())
    assert [len(method["rounds"]) for method in kept["methods"]] == [2, 1]
    assert kept["interrupted"]["method"] == "full-he"
    began = (folder / "settings.json").read_text()
    with (folder / "rounds.jsonl").open("a") as file:
        file.write('{"method": "full-he", "rou')  # a line that was cut off as it was written
    run_methods(RunConfig(**SMALL, folder=str(folder), resume=True), ["fedavg", "full-he"])
    assert [(line["method"], line["round"]) for line in lines(folder)][-1] == ("full-he", 2)
    assert len(lines(folder)) == 4
    assert (folder / "settings.json").read_text() == began
    assert json.loads((folder / "result.json").read_text())["interrupted"] is None


def test_each_seed_has_a_folder_of_its_own(tmp_path):
    sf.run("digits", "fedavg", seeds=(3, 5), folder=str(tmp_path / "runs"), **SMALL)
    for seed in (3, 5):
        folder = tmp_path / "runs" / f"seed-{seed}"
        assert json.loads((folder / "settings.json").read_text())["run"]["seed"] == seed
        assert len(lines(folder)) == 2
        assert (folder / "checkpoint" / "checkpoint").exists()
    result = sf.run("digits", "fedavg", seeds=(3, 5), folder=str(tmp_path / "runs"), resume=True, **SMALL)
    assert len(result.records()) == 4


def test_a_folder_that_cannot_be_written_is_said_in_a_sentence(tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(DataError, match=r"free some space|cannot be"):
        run_methods(RunConfig(**SMALL, folder=str(tmp_path / "file")), ["fedavg"])


COMMIT = "0123456789abcdef" * 2 + "01234567"


def repository(folder: Path, config: str = "") -> Path:
    """Write the files of a repository whose branch is at a commit."""
    for part in ("objects", "refs/heads/own"):
        (folder / ".git" / part).mkdir(parents=True)
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/own/work\n")
    (folder / ".git" / "refs" / "heads" / "own" / "work").write_text(f"{COMMIT}\n")
    (folder / ".git" / "config").write_text("[core]\n\trepositoryformatversion = 0\n" + config)
    return folder


def test_a_run_executes_nothing_that_a_repository_around_it_says(tmp_path, monkeypatch):
    monkeypatch.chdir(repository(tmp_path, "\tfsmonitor = touch executed\n"))
    run_methods(RunConfig(**{**SMALL, "rounds": 1}, folder="run"), ["fedavg"])
    assert not (tmp_path / "executed").exists()
    assert json.loads((tmp_path / "run" / "settings.json").read_text())["commit"] == COMMIT


@pytest.mark.parametrize("kind", ["folder within", "detached", "packed", "worktree"])
def test_the_commit_of_the_folder_is_read_from_files(tmp_path, monkeypatch, kind):
    here = repository(tmp_path)
    match kind:
        case "folder within":
            here = here / "one" / "two"
            here.mkdir(parents=True)
        case "detached":
            (here / ".git" / "HEAD").write_text(f"{COMMIT}\n")
        case "packed":
            (here / ".git" / "refs" / "heads" / "own" / "work").unlink()
            lines = [
                "# pack-refs with: peeled",
                f"{'f' * 40} refs/heads/work",
                f"{COMMIT} refs/heads/own/work",
            ]
            (here / ".git" / "packed-refs").write_text("\n".join(lines) + f"\n^{'e' * 40}\n")
        case "worktree":
            own = here / ".git" / "worktrees" / "other"
            own.mkdir(parents=True)
            (own / "HEAD").write_text((here / ".git" / "HEAD").read_text())
            (own / "commondir").write_text("../..\n")
            here = here / "other"
            here.mkdir()
            (here / ".git").write_text(f"gitdir: {own}\n")
    monkeypatch.chdir(here)
    assert commit_facts() == {"commit": COMMIT}


@pytest.mark.parametrize("kind", ["none", "no commit yet", "a secret", "a pipe", "no text", "no end"])
def test_where_no_commit_is_found_none_is_said(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    if kind != "none":
        branch = repository(tmp_path) / ".git" / "refs" / "heads" / "own" / "work"
        branch.unlink()
    match kind:
        case "a secret":  # another file may be named as a branch: nothing of it is told
            (tmp_path / "secret").write_text("a password\n")
            (tmp_path / ".git" / "HEAD").write_text(f"ref: {tmp_path / 'secret'}\n")
        case "a pipe":  # reading it would never end
            os.mkfifo(branch)
        case "no text":
            branch.write_bytes(b"\xff\0\n")
            (tmp_path / ".git" / "commondir").write_bytes(b"\0")
        case "no end":  # it takes no disk, and more memory than there is
            branch.touch()
            os.truncate(branch, 2**43)
    assert commit_facts() == {}
