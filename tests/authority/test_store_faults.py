"""A disk that fails, fills up or loses its power, and a process that is killed: never a second answer, nothing lost."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from authority.store_cases import KEPT_FOR_LONG, ask, begun, never, opened
from encryption.child_process import TESTS, run_python
from shieldfl.authority import store as store_file
from shieldfl.errors import DataError, ParameterError, WireFormatError

HERE = Path(__file__).parent


def attempts(script, faults, folder, operation, kind):
    """Return what each attempt at an operation came to, as the script tells: in the last one nothing failed."""
    done = run_python(str(script), str(folder), operation, kind, LD_PRELOAD=faults)
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def killed_at_random(script, path, kills, draw):
    """Return what left processes which were killed at any moment, by round."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, sys.path)])}
    answers, pace = {}, 0.0
    with subprocess.Popen(
        [sys.executable, str(script), str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
    ) as starter:  # fmt: skip
        for _ in range(kills):
            # Also the last two that left are asked for again, and the one that may not have left is the next.
            starter.stdin.write(f"{max([1, *(number - 1 for number in answers)])}\n")
            starter.stdin.flush()
            started = starter.stdout.readline().split()
            assert started[0] == "started"
            # At any moment, of which most are in the middle of answering.
            if draw.random() < 0.8:
                begun = time.perf_counter()
                _record(answers, starter.stdout.readline().split())
                pace = time.perf_counter() - begun
            # Two answers that left are made again before the next: a busy machine has time for that, too.
            time.sleep(draw.uniform(0.0, draw.choice([0.01, max(0.05, 4.0 * pace)])))
            os.kill(int(started[1]), signal.SIGKILL)
            line = starter.stdout.readline().split()
            while line[0] != "ended":
                _record(answers, line)
                line = starter.stdout.readline().split()
            assert int(line[1]) == -signal.SIGKILL
        starter.stdin.close()
    return answers


def _record(answers, line):
    assert line[0] == "answer"
    assert answers.setdefault(int(line[1]), line[2]) == line[2], "a second, different answer has left"


def check_done_whole_or_not_at_all(told, operation, kind):
    """Check what the attempts told of which the n-th call to the disk failed; the last had no such call."""
    *failed, passed = told
    assert passed["raised"] is None
    assert len(failed) > 6
    raised = Counter(one["raised"] for one in failed)
    if kind.startswith("exit"):
        assert raised == {"exit": len(failed)}
        states = [one["state"] for one in failed]
        assert states == sorted(states, reverse=True)
        # It is done from the call on that cuts the rollback journal to nothing; what is created or restored is opened,
        # which writes its file anew.
        if operation == "restore":
            assert states.count("done")
        else:
            assert (states.count("done") in range(1, 5)) == (operation not in ("open", "create"))
    else:
        assert raised.keys() <= {"DataError", None}
        assert raised["DataError"] > len(failed) / 2
        assert all(one["state"] == "done" for one in failed) or operation == "open"
        assert {one["again"] for one in failed if one["raised"]} <= {"done", "was done"}
        if kind == "full":
            # What was created, but could not be opened, is not created again.
            again = {"DataError", "PolicyError"} if operation == "create" else {"DataError"}
            assert {one["full"] for one in failed if one["raised"]} <= again


SOME = [
    ("create", "exit halfway"),
    ("close", "broken"),
    ("restore", "exit before"),
    ("end", "exit halfway"),
]
OTHERS = [
    pytest.param(operation, kind, marks=pytest.mark.slow)
    for operation in ("enrol", "revoke", "close", "end", "restore", "open", "create")
    for kind in ("exit before", "exit halfway", "full", "broken")
    if (operation, kind) not in SOME
]


@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        pytest.param("answer", "exit before", marks=pytest.mark.slow), ("answer", "exit halfway"),
        pytest.param("answer", "full", marks=pytest.mark.slow), ("answer", "broken"),
        *SOME, *OTHERS,
    ],
)  # fmt: skip
def test_whichever_call_of_a_transaction_fails_it_is_done_whole_or_not_at_all(
    faults, folder, operation, kind
):
    """What is answered afterwards is checked attempt by attempt, in ``faulty_store.py``."""
    check_done_whole_or_not_at_all(
        attempts(HERE / "faulty_store.py", faults, folder, operation, kind), operation, kind
    )


class Disk:
    """What a disk has of some files: what was synced, and what was written since, of which any part may be there.

    But for one order, which file systems keep: what is written after a file is cut is not there if the cut is not.
    """

    def __init__(self, contents, draw):
        self.draw = draw
        self.synced = {name: bytearray(content) for name, content in contents.items()}
        self.waiting = {name: [] for name in contents}

    def take(self, what, name, number, data):
        self.synced.setdefault(name, bytearray())
        waiting = self.waiting.setdefault(name, [])
        if what == "f":
            # A sync that failed: the system may have given up some of the pages, and no later one writes them.
            waiting[:] = [call for call in waiting if call[0] == "t" or self.draw.random() < 0.5]
        elif what == "s":
            self.synced[name] = self.after(name, waiting)
            waiting.clear()
        else:
            waiting.append((what, number, data))

    def after(self, name, calls):
        content = bytearray(self.synced[name])
        for what, number, data in calls:
            if what == "t":
                del content[number:]
                content.extend(bytes(number - len(content)))
            else:
                assert what == "w"
                content.extend(bytes(max(0, number + len(data) - len(content))))
                content[number : number + len(data)] = data
        return content

    def left_by_power_failure(self, folder):
        """Write what may be left: of the calls since the last sync all, none, or some, and one of them in part."""
        draw = self.draw
        share = draw.choice([0.0, 0.3, 0.7, 1.0])
        for name, calls in self.waiting.items():
            kept = []
            for call in calls:
                if draw.random() < share:
                    kept.append(call)
                elif call[0] == "t":
                    break
            if kept and share < 1.0:
                torn = draw.randrange(len(kept))
                what, number, data = kept[torn]
                kept[torn] = what, number, data[: len(data) // 512 // 2 * 512]
            (folder / name).write_bytes(self.after(name, kept))


def read_record(path):
    content, at = path.read_bytes(), 0
    while at < len(content):
        end = content.index(b"\n", at)
        what, name, number, size = content[at:end].decode().split(" ")
        at = end + 1 + int(size)
        yield what, name, number, content[end + 1 : at]


def recorded(faults, folder, broken=0):
    """Return the calls to the disk of a run that answers three rounds, and in their midst what left it."""
    for path in folder.glob("*"):
        path.unlink()
    script = str(HERE / "faulty_store.py")
    done = run_python(script, str(folder), "record", str(broken), LD_PRELOAD=faults)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ("failed\n" if broken else "")
    return list(read_record(folder / "record"))


def nothing_is_stored(keys):
    raise ParameterError("there is no answer yet")


def check_after_power_failure(folder, calls, cut, draw):
    """Return which rounds' answers are there when the power fails after so many calls. None that left is lost."""
    answers = {int(number): bytes.fromhex(answer) for what, number, answer, _ in calls if what == "a"}
    disk, left, found = Disk({"store": (folder / "template").read_bytes()}, draw), set(), set()
    for what, name, number, data in calls[:cut]:
        if what == "a":
            left.add(int(name))
        else:
            disk.take(what, name, int(number), data)
    with tempfile.TemporaryDirectory(dir=folder) as image:
        disk.left_by_power_failure(Path(image))
        with opened(Path(image) / "store") as store:
            for number, answer in answers.items():
                try:
                    assert ask(store, number, nothing_is_stored) == answer
                    found.add(number)
                except ParameterError:
                    assert number not in left
    return found


@pytest.mark.parametrize("cuts", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_a_power_failure_loses_no_answer_that_has_left(faults, folder, cuts):
    """Whatever is left of what was not yet synced; a process that is killed alone loses none of that."""
    calls, draw = recorded(faults, folder), random.Random(1)
    moments = draw.choices(range(len(calls) + 1), k=cuts)
    found = Counter(frozenset(check_after_power_failure(folder, calls, cut, draw)) for cut in moments)
    assert found.keys() == {frozenset(range(4, end)) for end in (4, 5, 6, 7)}


@pytest.mark.parametrize(("last", "cuts"), [(4, 60), pytest.param(100, 300, marks=pytest.mark.slow)])
def test_nor_does_one_after_a_sync_that_failed(faults, folder, last, cuts):
    """What the system did not get to the disk it may still show to whoever reads, as if it had."""
    usual = [call for call in recorded(faults, folder) if call[0] != "a"]
    syncs = [number for number, (what, *_) in enumerate(usual, start=1) if what == "s"]
    assert len(syncs) > 12
    for number in syncs[-last:]:
        calls, draw = recorded(faults, folder, broken=number), random.Random(number)
        (failed,) = (at for at, (what, *_) in enumerate(calls) if what == "f")
        for cut in draw.choices(range(failed, len(calls) + 1), k=cuts):
            check_after_power_failure(folder, calls, cut, draw)


@pytest.mark.parametrize("kills", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_answers_of_a_process_that_is_killed_are_found_again(folder, kills):
    path = folder / "store"
    begun(path, KEPT_FOR_LONG).close()
    answers = killed_at_random(HERE / "killed_store.py", path, kills, random.Random(kills))
    assert len(answers) > kills / 10  # how many depends on how busy the machine is
    with opened(path) as store:
        for number, answer in answers.items():
            assert ask(store, number, never).hex() == answer
    with closing(sqlite3.connect(path)) as database:
        (stored,) = database.execute("SELECT count(*) FROM records WHERE kind = 'answer'").fetchone()
    assert len(answers) <= stored <= len(answers) + 1


def test_a_disk_that_cannot_be_written_answers_nothing_and_does_when_it_can(tmp_path, monkeypatch):
    path = tmp_path / "store"
    with begun(path) as store:
        answer = ask(store, 1)
    connect = sqlite3.connect

    def connect_to_read(place, **options):
        return connect(place.replace("mode=rw", "mode=ro"), **options)

    with monkeypatch.context() as patch:
        patch.setattr(store_file.sqlite3, "connect", connect_to_read)
        with pytest.raises(DataError, match="cannot be written: make file, folder and disk writable"):
            opened(path)
    with opened(path) as store:
        assert ask(store, 1, never) == answer


def test_a_page_that_goes_bad_while_the_store_is_open_is_an_error_and_no_answer(folder):
    path, rounds = folder / "store", range(60)
    with begun(path, KEPT_FOR_LONG) as store:
        # More than SQLite keeps in memory.
        answers = [ask(store, number, lambda keys: bytes(100_000)) for number in rounds]

    def ask_for_all(store):
        return [ask(store, number, never) for number in rounds]

    # The second descriptor is closed last: to close it earlier would give up the store's lock.
    with path.open("r+b") as file, opened(path) as store:
        right = file.read()  # as it was written anew when it was opened
        for content in (b"\xff" * (len(right) - 4096), right[4096:]):
            file.seek(4096)
            file.write(content)
            file.flush()
            if content == right[4096:]:
                assert ask_for_all(store) == answers
            else:
                with pytest.raises(WireFormatError, match="is damaged"):
                    ask_for_all(store)
