"""``shieldfl audit``: tables, files, refusals; ``--epsilon`` ends with 1 where a claim is too low."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("opacus")
pytest.importorskip("typer")
pytest.importorskip("dp_accounting")

import json

from typer.testing import Result

from cli.command_line import invoke
from privacy.seeded_draws import seed_noise
from shieldfl.lab.audit import epsilon as claims
from shieldfl.lab.audit import piece
from shieldfl.methods.selective_shield.method import SelectiveShieldClient
from shieldfl.privacy.accountant import epsilon_of
from shieldfl.privacy.book import PrivacyBook, PrivacySpent
from shieldfl.privacy.events import ClientsDrawn, Noise, OpenedSum

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
    assert "which proves nothing about other attacks" in done.stdout
    facts = json.loads((tmp_path / "a.json").read_text())
    assert [cell["method"] for cell in facts["cells"]] == ["fedavg", "fedavg", "full-he", "full-he"]
    assert {"audit.json", "cells.csv", "index.html"} <= {one.name for one in (tmp_path / "report").iterdir()}


def test_what_was_not_tried_comes_with_its_reason():
    done = invoke("audit", *SMALL, "--method", "full-he", "--attack", "idlg", "--party", "aggregator")
    assert "does not apply" in done.stdout
    why = "its rule finds one label, and the client's samples are 4"
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
    assert "what was attacked by then is kept; the same command with --resume continues" in done.stderr
    assert json.loads((tmp_path / "a.json").read_text())["notes"]
    assert "resume an audit by --resume" in invoke("audit", *arguments).stderr
    resumed = invoke("audit", *arguments, "--resume")
    assert resumed.exit_code == 0
    assert "n=8" in resumed.stdout


def test_an_audit_that_attacked_nothing_fails_with_the_reason(tmp_path):
    done = invoke("audit", "--method", "full-he", "--samples", "500", "--json", tmp_path / "a.json")
    assert done.exit_code == 1
    assert "nothing was attacked: fedavg: left out from trial 1 on: 4 clients of 500 samples" in done.stderr
    assert json.loads((tmp_path / "a.json").read_text())["cells"]


@pytest.fixture(autouse=True)
def _seeded(monkeypatch):
    seed_noise(monkeypatch)


def epsilon(method: str, *options: str) -> Result:
    return invoke("audit", "--epsilon", "--threads", 1, "--method", method, *options)


def bounds_of(output: str) -> tuple[float, float]:
    """The claim and what was measured, of the table's first method."""
    _, _, _, _, row, *_ = output.splitlines()
    claimed, _, measured, _ = row.split()[-4:]
    return float(claimed), float(measured)


def assert_caught(result: Result, method: str) -> None:
    claimed, measured = bounds_of(result.stdout)
    assert measured > claimed
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert f"{method} claims epsilon {claimed:.2f}" in result.stderr
    assert f"at least {measured:.2f}" in result.stderr


def test_a_sum_without_noise_before_noised_uploads_is_caught_where_it_is_not_counted(monkeypatch):
    options = ("--canaries", "100", "--set", "alt-fl-pi.noise_multiplier=4")
    assert "claims nothing: epsilon is infinite" in epsilon("alt-fl-pi", *options).stdout
    add = PrivacyBook.add
    monkeypatch.setattr(
        PrivacyBook, "add", lambda book, event: None if isinstance(event, OpenedSum) else add(book, event)
    )
    assert_caught(epsilon("alt-fl-pi", *options), "alt-fl-pi")


def test_amplification_against_who_sees_participation_is_caught(monkeypatch):
    """The account charges every draw at the rate of sampling, which counts for nothing against the aggregator."""

    def amplified(book, delta):
        draws = sum(isinstance(event, ClientsDrawn) for event in book.all)
        epsilon = epsilon_of({Noise(1.5, "sample", sample_rate=0.02): draws}, delta)
        return PrivacySpent(epsilon, epsilon, epsilon, delta, draws, draws)

    sampled = ("--clients", "150", "--min-clients", "1", "--sample-rate", "0.02", "--rounds", "150")
    options = ("--canaries", "150", "--set", "dp-fedavg.noise_multiplier=1.5", *sampled)
    monkeypatch.setattr(PrivacyBook, "spent", amplified)
    assert_caught(epsilon("dp-fedavg", *options), "dp-fedavg")


def test_a_client_that_is_told_of_no_participants_and_adds_no_noise_is_caught(monkeypatch):
    options = ("--rounds", "1", "--canaries", "100")
    noised = ("--set", "selective-shield.threshold=1", "--set", "selective-shield.noise_multiplier=4")
    begin = SelectiveShieldClient._begin_round

    def told_of_nobody(client, round_number, participants, model):
        start = begin(client, round_number, participants, model)
        client._participants = 0
        return start

    monkeypatch.setattr(SelectiveShieldClient, "_begin_round", told_of_nobody)
    assert_caught(epsilon("selective-shield", *options, *noised), "selective-shield")


def test_an_honest_method_ends_with_0_and_its_figures_as_json(tmp_path):
    path = tmp_path / "epsilon.json"
    result = epsilon("dp-fedavg,fedavg", "--canaries", "40", "--json", str(path))
    assert result.exit_code == 0, result.stderr
    assert "fedavg: claims nothing: epsilon is infinite: it adds no noise" in result.stdout
    claimed, measured = bounds_of(result.stdout)
    written = json.loads(path.read_text())
    first, second = written["claims"]
    assert first["bound"]["claimed"] == pytest.approx(claimed, abs=0.005)
    assert first["bound"]["at_least"] == pytest.approx(measured, abs=0.005)
    assert (first["canaries"], first["unit"], first["is_disproved"]) == (40, "client", False)
    assert (second["status"], second["bound"]) == ("claims nothing", None)
    assert written["measurement"]["canaries"] == 40


def test_ctrl_c_keeps_what_had_ended(monkeypatch, tmp_path):
    real = claims.CanaryFederation

    def stopped(name, *others):
        if name == "dp-sgd":
            raise KeyboardInterrupt
        return real(name, *others)

    monkeypatch.setattr(claims, "CanaryFederation", stopped)
    written = tmp_path / "e.json"
    done = epsilon("dp-fedavg,dp-sgd", "--canaries", "20", "--rounds", "1", "--json", str(written))
    assert done.exit_code == 130
    assert done.stderr.splitlines() == [
        "shieldfl: the measurement was interrupted: what was measured by then is kept"
    ]
    assert bounds_of(done.stdout)[0] > 0
    assert "- dp-sgd: not measured: the measurement was interrupted before it had ended" in done.stdout
    first, second = json.loads(written.read_text())["claims"]
    assert (first["status"], second["status"]) == ("measured", "not measured")
