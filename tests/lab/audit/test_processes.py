"""Processes beside each other come to the figures that one comes to, and end with whoever began them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from dataclasses import replace

import pytest

from shieldfl.errors import ParameterError
from shieldfl.lab.audit import session
from shieldfl.lab.audit.attack import AuditInterrupted
from shieldfl.lab.audit.audit_config import AuditConfig
from shieldfl.lab.audit.piece import Asked, Piece, Processes
from shieldfl.lab.audit.session import run_audit
from shieldfl.methods.settings import MethodSettings

ATTACKS = ("ilrg", "robbing-the-fed", "lone-total")
PARTIES = ("aggregator", "other-clients")


@pytest.fixture
def at_once(monkeypatch):
    """Have an audit be worth other processes from its beginning."""
    monkeypatch.setattr(session, "_ALONE", 0.0)


def test_figures_do_not_depend_on_how_many_processes_there_are(small: AuditConfig, at_once, tmp_path):
    config = replace(small, samples=2, rounds=1, budget_minutes=1000.0)
    told: list[tuple[str, int]] = []

    def tell(method: str, trial: int) -> None:
        told.append((method, trial))

    alone = run_audit(config, ["full-he"], ATTACKS, PARTIES)
    several = replace(config, workers=2, folder=str(tmp_path / "audit"))
    together = run_audit(several, ["full-he"], ATTACKS, PARTIES, on_trial=tell)
    assert [one.to_json() for one in together.cells] == [one.to_json() for one in alone.cells]
    assert {("full-he", trial) for trial in range(small.trials)} <= set(told)
    # All was written down as it came, whichever was first, and another number of processes goes on with it.
    again = run_audit(replace(several, resume=True, workers=1), ["full-he"], ATTACKS, PARTIES, on_trial=tell)
    assert [one.to_json() for one in again.cells] == [one.to_json() for one in alone.cells]


def test_a_process_that_ends_by_itself_leaves_its_piece_undone(small: AuditConfig):
    doing = Processes(1, Asked(small, ("ilrg", "lone-total"), PARTIES, MethodSettings()))
    pids: list[int] = []
    try:
        for piece in (Piece("fedavg", 0, ("ilrg",)), Piece("fedavg", -1, ("lone-total",))):
            pids.append(doing.idle[0].there.result())
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
    doing = Processes(1, Asked(small, ("ilrg",), PARTIES, MethodSettings()))
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
