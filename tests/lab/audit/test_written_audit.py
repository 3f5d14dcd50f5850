"""An audit goes on in its folder, and in several processes, to the result that it would have come to in one."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shieldfl.errors import DataError, ParameterError, PolicyError, ShieldError, WireFormatError
from shieldfl.lab.audit import session
from shieldfl.lab.audit.attack import AuditInterrupted, AuditResult
from shieldfl.lab.audit.audit_config import AuditConfig
from shieldfl.lab.audit.piece import Piece, Processes
from shieldfl.lab.audit.session import run_audit
from shieldfl.methods.registry import MethodSettings

ATTACKS = ("ilrg", "robbing-the-fed", "lone-total")
PARTIES = ("aggregator", "other-clients")


def audited(config: AuditConfig, **options: Any) -> AuditResult:
    return run_audit(config, ["full-he"], ATTACKS, PARTIES, **options)


def figures(result: AuditResult) -> list[dict[str, Any]]:
    return [cell.to_json() for cell in result.cells]


@pytest.fixture(scope="module")
def config(small: AuditConfig) -> AuditConfig:
    return replace(small, samples=2, rounds=1, trials=2, budget_minutes=1000.0)


@pytest.fixture(scope="module")
def uninterrupted(config: AuditConfig) -> AuditResult:
    return audited(config)


def interrupted(config: AuditConfig, after: int) -> None:
    told: list[str] = []

    def stop(method: str, trial: int) -> None:
        told.append(method)
        if len(told) > after:
            raise KeyboardInterrupt

    with pytest.raises(AuditInterrupted):
        audited(config, on_trial=stop)


@pytest.mark.every_run("[1]", "[5]")
@pytest.mark.parametrize("after", [0, 1, 3, 5, 9])
def test_an_audit_that_was_interrupted_comes_to_the_same_figures(config, uninterrupted, tmp_path, after):
    kept = replace(config, folder=str(tmp_path / "audit"))
    interrupted(kept, after)
    lines = (tmp_path / "audit" / "attacked.jsonl").read_text() if after else ""
    assert lines.count("\n") >= after // 2
    told: list[str] = []
    result = audited(replace(kept, resume=True), on_trial=lambda method, trial: told.append(method))
    assert figures(result) == figures(uninterrupted)
    # Nothing that had ended is run again: of ten federations, those that are left.
    assert len(told) <= 10 - after + 1
    # Images that were recovered before are there to be looked at.
    shown = {(one.method, one.party): one.example for one in result.cells if one.attack == "robbing-the-fed"}
    again = shown["fedavg", "aggregator"]
    first = next(one.example for one in uninterrupted.cells if one.example is not None)
    assert again.recovered.equal(first.recovered)
    assert again.true.equal(first.true)
    facts = json.loads((tmp_path / "audit" / "result.json").read_text())
    assert [one["figure"] for one in facts["cells"]] == [one["figure"] for one in figures(result)]


@pytest.fixture
def begun(config: AuditConfig, tmp_path: Path) -> AuditConfig:
    kept = replace(config, folder=str(tmp_path / "audit"))
    interrupted(kept, 3)
    return kept


def contents(config: AuditConfig) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in Path(str(config.folder)).iterdir()}


def assert_refused(config: AuditConfig, error: type[ShieldError], words: str, **others: Any) -> None:
    before = contents(config)
    with pytest.raises(error, match=words):
        run_audit(config, **({"methods": ["full-he"], "attacks": ATTACKS, "parties": PARTIES} | others))
    assert contents(config) == before


def test_a_folder_is_of_one_audit(begun):
    assert_refused(begun, PolicyError, "resume an audit by --resume")
    again = replace(begun, resume=True)
    assert_refused(
        replace(again, seed=5, samples=3), PolicyError, "differs in samples, seed: a resumed audit keeps"
    )
    assert_refused(again, PolicyError, "differs in method", methods=["full-he", "dp-sgd"])
    assert_refused(again, PolicyError, "differs in attack", attacks=["ilrg"])
    assert_refused(again, PolicyError, "differs in party", parties=["aggregator"])


def test_there_is_nothing_to_go_on_with(config, tmp_path):
    with pytest.raises(DataError, match="there is no audit in"):
        audited(replace(config, folder=str(tmp_path / "none"), resume=True))
    assert not (tmp_path / "none").exists()
    with pytest.raises(ParameterError, match="nothing to resume from"):
        AuditConfig(resume=True)


def test_a_damaged_file_is_named(begun):
    again, folder = replace(begun, resume=True), Path(str(begun.folder))
    lines = folder / "attacked.jsonl"
    whole = lines.read_bytes()
    for damaged in (whole.replace(b'"attack":', b'"attach":', 1), b"\xff\n" + whole, b"{}\n"):
        lines.write_bytes(damaged)
        assert_refused(again, WireFormatError, r"line 1 of .*attacked\.jsonl is damaged")
    lines.write_bytes(whole)
    settings = folder / "settings.json"
    for damaged in (b"", b"{}", settings.read_bytes()[:-9]):
        settings.write_bytes(damaged)
        assert_refused(again, WireFormatError, r"settings\.json is damaged")


def test_a_line_that_was_cut_off_as_it_was_written_is_attacked_again(begun, uninterrupted):
    lines = Path(str(begun.folder)) / "attacked.jsonl"
    lines.write_bytes(lines.read_bytes()[:-20])
    assert figures(audited(replace(begun, resume=True))) == figures(uninterrupted)
    # A third time there is nothing left to do.
    told: list[str] = []
    audited(replace(begun, resume=True), on_trial=lambda method, trial: told.append(method))
    assert told == []


def test_a_method_that_was_left_out_stays_so_with_its_reason(config, tmp_path):
    kept = replace(config, folder=str(tmp_path / "audit"), samples=1000)
    first = run_audit(kept, ["full-he"], ["ilrg"], PARTIES)
    again = run_audit(replace(kept, resume=True), ["full-he"], ["ilrg"], PARTIES)
    assert "need 4,000" in first.notes[0]
    assert again.notes == first.notes
    assert [one.reason for one in again.cells] == [one.reason for one in first.cells]


@pytest.fixture
def at_once(monkeypatch):
    """Have an audit be worth other processes from its beginning."""
    monkeypatch.setattr(session, "_ALONE", 0.0)


def test_figures_do_not_depend_on_how_many_processes_there_are(small: AuditConfig, at_once, tmp_path):
    config = replace(small, samples=2, rounds=1, budget_minutes=1000.0)
    told: list[tuple[str, int]] = []

    def tell(method: str, trial: int) -> None:
        told.append((method, trial))

    alone = audited(config)
    several = replace(config, workers=2, folder=str(tmp_path / "audit"))
    together = run_audit(several, ["full-he"], ATTACKS, PARTIES, on_trial=tell)
    assert [one.to_json() for one in together.cells] == [one.to_json() for one in alone.cells]
    assert {("full-he", trial) for trial in range(small.trials)} <= set(told)
    # All was written down as it came, whichever was first, and another number of processes goes on with it.
    again = run_audit(replace(several, resume=True, workers=1), ["full-he"], ATTACKS, PARTIES, on_trial=tell)
    assert [one.to_json() for one in again.cells] == [one.to_json() for one in alone.cells]


def test_a_process_that_ends_by_itself_leaves_its_piece_undone(small: AuditConfig):
    doing = Processes(1, (small, ("ilrg", "lone-total"), PARTIES, MethodSettings()))
    pids: list[int] = []
    try:
        for piece in (Piece("fedavg", 0, ("ilrg",)), Piece("fedavg", -1, ("lone-total",))):
            pids.append(doing.idle[0][1].result())
            doing.begin(piece)
            os.kill(pids[-1], signal.SIGKILL)
            (ended,) = doing.wait()
            reasons = [ended.left_out] if piece.trial == 0 else [cell.reason for cell in ended.cells]
            assert all("ended by itself" in str(one) for one in reasons)
            assert all(cell.status == "not attacked" for cell in ended.cells)
            assert doing.idle
    finally:
        doing.stop()
    assert len(set(pids)) == 2


def test_a_process_that_never_comes_is_an_error_that_says_what_to_do(small: AuditConfig):
    doing = Processes(1, (small, ("ilrg",), PARTIES, MethodSettings()))
    try:
        doing.begin(Piece("fedavg", 0, ("ilrg",)))
        for process in multiprocessing.active_children():
            process.kill()
        with pytest.raises(ParameterError, match="--workers 1"):
            doing.wait()
    finally:
        doing.stop()


@pytest.mark.slow
def test_an_interruption_ends_all_processes(small: AuditConfig, at_once):
    begun: list[int] = []

    def stop(method: str, trial: int) -> None:
        begun.extend(one.pid for one in multiprocessing.active_children())
        raise KeyboardInterrupt

    with pytest.raises(AuditInterrupted) as stopped:
        run_audit(replace(small, workers=2), ["full-he"], ["ilrg"], ["aggregator"], on_trial=stop)
    assert {one.status for one in stopped.value.result.cells} == {"not attacked"}
    assert len(begun) >= 2
    deadline = time.monotonic() + 10
    for pid in begun:
        while time.monotonic() < deadline:
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                break
        else:
            pytest.fail(f"process {pid} goes on")
