"""A store's file is one process's, and the one in its place, whatever is done with it beside SQLite."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import threading
import time

import pytest

from authority.store_cases import SESSION, ask, begun, never, opened, random_answer
from encryption.child_process import run_python
from shieldfl.authority import private_file
from shieldfl.authority.authority_store import AuthorityStore
from shieldfl.authority.private_file import HeldFile
from shieldfl.errors import DataError, ParameterError, PolicyError, ShieldError


def opened_elsewhere(path):
    """What another process gets that opens the store."""
    code = (
        "from pathlib import Path; from authority.store_cases import opened\n"
        "from shieldfl.errors import ShieldError\n"
        "try:\n"
        f"    opened(Path({str(path)!r}))\n"
        "except ShieldError as error:\n"
        "    print(error)\n"
        "else:\n"
        "    print('opened')"
    )
    done = run_python("-c", code)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_process_that_copies_its_store_goes_on_holding_it(path, tmp_path):
    """To close a file, wherever in a process, gives up all of that process's POSIX locks of it."""
    with begun(path):
        shutil.copy(path, tmp_path / "copy")
        with pytest.raises(PolicyError, match="or opened twice in this one"):
            opened(path)
        assert "held by another process" in opened_elsewhere(path)
    assert "opened" in opened_elsewhere(path)


def test_nothing_is_written_into_a_file_that_is_no_longer_in_its_place(path, tmp_path):
    """What was answered would be in a file that nobody finds, and be answered again for others."""
    with begun(path) as store:
        answer = ask(store, 1)
    shutil.copy(path, tmp_path / "older")
    store = opened(path)
    with contextlib.closing(store):
        (tmp_path / "older").replace(path)
        with pytest.raises(PolicyError, match="moved, deleted or replaced"):
            ask(store, 2, never)
        path.unlink()
        with pytest.raises(PolicyError, match="Nothing was answered"):
            ask(store, 2, never)
    assert not path.exists()
    assert answer


def test_a_file_that_goes_while_an_answer_is_computed_takes_it_with_it(path, tmp_path):
    with begun(path) as store:

        def compute(keys):
            path.rename(tmp_path / "elsewhere")
            return random_answer(keys)

        with pytest.raises(PolicyError, match="moved, deleted or replaced"):
            ask(store, 1, compute)
        (tmp_path / "elsewhere").rename(path)
        assert ask(store, 1) == ask(store, 1, never)


def test_a_child_is_refused_while_a_thread_of_its_parent_computes(path):
    """Its copy of the lock is that thread's, which the child does not have: it would wait for ever."""
    with begun(path) as store:
        inside, done = threading.Event(), threading.Event()

        def compute(keys):
            inside.set()
            assert done.wait(60)
            return random_answer(keys)

        thread = threading.Thread(target=ask, args=(store, 1, compute))
        thread.start()
        assert inside.wait(60)
        child = os.fork()
        if child == 0:
            try:
                ask(store, 2)
            except PolicyError as error:
                store.close()
                os._exit(7 if "forked from" in str(error) else 1)
            os._exit(1)
        done.set()
        thread.join()
        until = time.monotonic() + 30
        ended, status = 0, 0
        while not ended and time.monotonic() < until:
            time.sleep(0.01)
            ended, status = os.waitpid(child, os.WNOHANG)
        if not ended:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        assert ended
        assert os.waitstatus_to_exitcode(status) == 7
        assert ask(store, 2)


FORKED_WITHIN = """
import os, sys
from authority.store_cases import SESSION, opened
from shieldfl.authority.store import Place
from shieldfl.errors import PolicyError

parent = os.getpid()
try:
    with opened(sys.argv[1]) as store, store._transaction() as change:
        for number in range(40):  # more than stays in memory, so that pages are in the file before the commit
            change.put(Place("answer", SESSION, number), bytes(100_000))
        if os.fork() == 0 and sys.argv[2] == "raises":
            raise ValueError("in the child")
        if os.getpid() == parent:
            assert os.waitstatus_to_exitcode(os.wait()[1]) == 3
except (PolicyError, ValueError) as error:
    assert os.getpid() != parent
    assert ("forked from" in str(error)) == (sys.argv[2] == "returns")
    sys.exit(3)
"""


@pytest.mark.parametrize("how", ["raises", "returns"])
def test_a_child_that_is_forked_within_a_transaction_neither_undoes_nor_ends_it(path, how):
    begun(path).close()
    done = run_python("-c", FORKED_WITHIN, str(path), how)
    assert (done.returncode, done.stderr) == (0, "")
    with opened(path) as store, store._transaction() as change:
        assert change.sums["answer"][0] == 40


def test_what_has_not_changed_is_not_written_anew_when_it_is_closed(path):
    with begun(path):
        pass
    for changes in (False, True):
        store = opened(path)
        before = path.stat().st_mtime_ns
        ask(store, 1) if changes else store.newest_closed_round(SESSION)
        between = path.stat().st_mtime_ns
        store.close()
        assert (before != between, between != path.stat().st_mtime_ns) == (changes, changes)


def test_a_child_that_lives_longer_keeps_the_file_from_nobody(path):
    store = begun(path)
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    try:
        store.close()
        opened(path).close()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_an_argument_of_another_type_costs_no_store(path):
    with begun(path) as store:
        answer = ask(store, 1)
        with pytest.raises(ParameterError, match="total_digest"):
            store.has_answered(b"s" * 16, 1, object())
        assert ask(store, 1, never) == answer
        with (
            pytest.raises(ShieldError, match="SQLite refused") as refused,
            store._transaction() as change,
        ):
            change._execute("SELECT ?", (object(),))
        assert type(refused.value) is ShieldError
        assert ask(store, 1, never) == answer
    content = AuthorityStore.in_memory(b"k" * 32, b"o" * 32)
    with pytest.raises(ShieldError, match="SQLite refused"), content._transaction() as change:
        change._execute("SELECT ?", (object(),))
    assert content.position.rows == 0
    assert content.keep_enrolment_key(b"e" * 32) == b"e" * 32


def test_a_file_that_cannot_be_locked_or_looked_for_is_the_disk_s_fault(path, monkeypatch):
    path.touch()

    def fails(*_):
        raise OSError("the disk")

    with monkeypatch.context() as patch:
        patch.setattr(private_file.fcntl, "flock", fails)
        with pytest.raises(DataError, match="cannot be locked"):
            HeldFile(path, "Nothing was answered")
    held = HeldFile(path, "Nothing was answered")
    with contextlib.closing(held), monkeypatch.context() as patch:
        patch.setattr(private_file.os, "stat", fails)
        with pytest.raises(DataError, match="mend the disk"):
            held.check_in_place()
    with pytest.raises(DataError, match="cannot be opened"):
        HeldFile(path.with_name("none"), "Nothing was answered")


def test_a_file_with_a_second_name_is_not_opened(path, tmp_path):
    """What is kept of a transaction that was cut off has one name: by the other one the file is read without it."""
    begun(path).close()
    os.link(path, tmp_path / "second")
    for name in (path, tmp_path / "second"):
        with pytest.raises(PolicyError, match="has a second name"):
            opened(name)
    (tmp_path / "second").unlink()
    with opened(path) as store:
        os.link(path, tmp_path / "second")
        with pytest.raises(PolicyError, match="has a second name"):
            ask(store, 1, never)


def test_what_is_dropped_without_being_closed_holds_nothing(path):
    store = begun(path)
    ask(store, 1)
    gc.disable()
    try:
        del store
        opened(path).close()
    finally:
        gc.enable()


def test_what_is_no_file_is_refused_by_name(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    missing = "cannot be opened: check that it exists"
    for name, words in (
        ("pipe", "is no regular file"),
        (".", "is no regular file"),
        ("none", missing),
        ("none/store", missing),
    ):
        with pytest.raises(DataError, match=words):
            opened(tmp_path / name)
    with pytest.raises(OSError):
        begun(tmp_path / "none" / "store")
    assert [one.name for one in tmp_path.iterdir()] == ["pipe"]
    for name in ("a\0b", "\ud800"):
        for use in (opened, begun):
            with pytest.raises(ParameterError, match="characters that no path can have"):
                use(tmp_path / name)


def test_what_could_not_be_made_leaves_nothing(path, monkeypatch):
    def fails(*_):
        path.with_name("store-journal").touch()
        raise OSError("the disk")

    monkeypatch.setattr("shieldfl.authority.store._filled", fails)
    with pytest.raises(OSError, match="the disk"):
        begun(path)
    assert not list(path.parent.iterdir())
