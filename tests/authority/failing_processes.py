"""Starts processes that work on a store while its disk fails, or that are killed at any moment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter

from encryption.child_process import TESTS, run_python

__all__ = ["attempts", "check_done_whole_or_not_at_all", "killed_at_random"]


def attempts(script, faults, folder, operation, kind):
    """Return what each attempt at an operation came to, as the script tells: in the last one nothing failed."""
    done = run_python(str(script), str(folder), operation, kind, LD_PRELOAD=faults)
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def killed_at_random(script, path, kills, draw):
    """Return what left processes which were killed at any moment, by round."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, sys.path)])}
    answers = {}
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
                _record(answers, starter.stdout.readline().split())
            time.sleep(draw.uniform(0.0, 0.01))
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
