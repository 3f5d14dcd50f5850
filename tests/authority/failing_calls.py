"""An operation on a store, again and again, with the n-th call to its disk failing: n = 1, 2, ... until none is left.

For processes with ``disk_faults.so`` preloaded. Each attempt is a process of its own, since some end at the fault.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil

from shieldfl.errors import PolicyError, ShieldError

KINDS = {"exit before": 1, "exit halfway": 2, "full": 3, "broken": 4}


def print_attempts(folder, kind, prepare, state_after):
    """Print a line of JSON for each attempt, on a copy of ``folder / "template"`` where there is one.

    ``prepare(path)`` returns the store, if it has to be open before, and the operation: a function that returns what
    leaves, if something does. ``state_after(path, left)`` checks what is there afterwards and says whether it is done.
    """
    faults = ctypes.CDLL(None)
    template, path = folder / "template", folder / "store"
    number = 0
    while True:
        number += 1
        for old in folder.glob("store*"):
            old.unlink()
        if template.exists():
            shutil.copy(template, path)
        told = _in_a_process(_attempt, faults, path, prepare, kind, number)
        state = state_after(path, told and told["left"])
        print(json.dumps((told or {"raised": "exit"}) | {"state": state}), flush=True)
        if told and told["calls"] < number:
            break


def _attempt(faults, path, prepare, kind, number):
    """Return what left: what the operation returned; and what it raised, also when it was done again."""
    store, run = prepare(path)
    told = {"raised": None, "again": None, "full": None}
    left = None
    faults.arm_fault(KINDS[kind], number, str(path).encode())
    try:
        left = run()
    except ShieldError as error:
        told["raised"] = type(error).__name__
        if kind == "full":
            try:
                run()
            except ShieldError as again:
                told["full"] = type(again).__name__
    told["calls"] = faults.calls_seen()
    faults.arm_fault(0, 0, b"")
    if told["raised"]:
        # The cause is gone: the same store goes on, without a restart.
        try:
            left = run()
            told["again"] = "done"
        except PolicyError:
            told["again"] = "was done"
    if store:
        store.close()
    return told | {"left": left.hex() if left else None}


def _in_a_process(attempt, *arguments):
    """Return what an attempt told, or None where it was ended by the fault."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        with os.fdopen(writing, "w") as pipe:
            json.dump(attempt(*arguments), pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        told = pipe.read()
    code = os.waitstatus_to_exitcode(os.wait()[1])
    assert code == (0 if told else 9), f"the process ended with {code}"
    return json.loads(told) if told else None
