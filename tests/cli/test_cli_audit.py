"""``shieldfl audit``: tables, files, and what is refused."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch")
pytest.importorskip("opacus")
pytest.importorskip("typer")

from cli.command_line import invoke
from shieldfl.lab.audit import piece

SMALL = ("--model", "linear", "--samples", "4", "--rounds", "1", "--trials", "2", "--threads", "1")


def test_prints_a_table_for_each_attack_and_writes_figures_and_report(tmp_path):
    done = invoke("audit",
        *SMALL, "--method", "full-he", "--party", "aggregator,other-clients", "--json", tmp_path / "a.json",
        "--report", tmp_path / "report",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["method", "aggregator", "other-clients"] in lines
    row = next(line for line in lines if line[:1] == ["full-he"])
    assert row[1:3] == ["nothing", "received"]
    assert "n=8" in row
    assert "which proves nothing of others" in done.stdout
    facts = json.loads((tmp_path / "a.json").read_text())
    assert [cell["method"] for cell in facts["cells"]] == ["fedavg", "fedavg", "full-he", "full-he"]
    assert {"audit.json", "cells.csv", "index.html"} <= {one.name for one in (tmp_path / "report").iterdir()}


def test_what_was_not_tried_comes_with_its_reason():
    done = invoke("audit", *SMALL, "--method", "full-he", "--attack", "idlg", "--party", "aggregator")
    assert "does not apply" in done.stdout
    why = "its rule finds the label of one sample, and the client has 4"
    assert f"- fedavg: idlg, does not apply: {why}" in done.stdout


def test_ctrl_c_prints_what_was_attacked_by_then(monkeypatch, tmp_path):
    real = piece.Trial

    def stopped(name, settings, config, dataset, number):
        if number == 1:
            raise KeyboardInterrupt
        return real(name, settings, config, dataset, number)

    arguments = (*SMALL, "--method", "full-he", "--party", "aggregator", "--json", tmp_path / "a.json")
    arguments += ("--folder", tmp_path / "audit")
    with monkeypatch.context() as patch:
        patch.setattr(piece, "Trial", stopped)
        done = invoke("audit", *arguments)
    assert done.exit_code == 130
    assert "n=4 too few" in done.stdout
    assert "what was attacked by then is kept; the same command with --resume goes on" in done.stderr
    assert json.loads((tmp_path / "a.json").read_text())["notes"]
    assert "go on with an audit by --resume" in invoke("audit", *arguments).stderr
    resumed = invoke("audit", *arguments, "--resume")
    assert resumed.exit_code == 0
    assert "n=8" in resumed.stdout


def test_an_audit_that_attacked_nothing_fails_with_the_reason(tmp_path):
    done = invoke("audit", "--method", "full-he", "--samples", "500", "--json", tmp_path / "a.json")
    assert done.exit_code == 1
    assert "nothing was attacked: fedavg: left out from trial 1 on: 4 clients of 500 samples" in done.stderr
    assert json.loads((tmp_path / "a.json").read_text())["cells"]
