"""Starts processes that answer round after round, each until it is killed; told on stdin when, and from which round.

Forks of one process that has imported everything, so that a thousand of them take no time. What they answered they
write to the standard output, after ``answer`` has returned.
"""

from __future__ import annotations

import os
import sys
from itertools import count
from pathlib import Path

from authority.store_cases import ask, moved_to, opened


def answer_until_killed(path, first):
    with opened(path) as store:
        for number in count(first):
            answer = ask(store, number, moved_to(number - 1, os.urandom(1500)))
            # Short enough for a pipe to take it whole or not at all.
            os.write(1, f"answer {number} {answer.hex()}\n".encode())


def start_each_until_killed(run_until_killed, path):
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            run_until_killed(path, int(line))
        os.write(1, f"started {child}\n".encode())
        _, status = os.wait()
        os.write(1, f"ended {os.waitstatus_to_exitcode(status)}\n".encode())


if __name__ == "__main__":
    start_each_until_killed(answer_until_killed, Path(sys.argv[1]))
