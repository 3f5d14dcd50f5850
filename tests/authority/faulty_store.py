"""An operation on a store, again and again, with the n-th call to its disk failing: n = 1, 2, ... until none is left.

For processes with ``disk_faults.so`` preloaded. Each attempt is a process of its own, since some end at the fault.
``test_store_faults.py`` reads what this prints. As "record" it writes down all calls of a few answers instead.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import sys
from functools import partial
from pathlib import Path

from authority.store_cases import (
    AUTHORITY,
    CLIENTS,
    KEPT_FOR_LONG,
    KEY,
    SESSION,
    ask,
    begun,
    enrol,
    keys_of,
    moved_to,
    never,
    opened,
    random_answer,
)
from shieldfl.authority.authority_store import AuthorityStore, Grant
from shieldfl.errors import DataError, PolicyError, ShieldError, WireFormatError

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


ROUND = 4


def ratcheted(keys):
    return moved_to(ROUND, os.urandom(9000))(keys)


def answer(store):
    return ask(store, ROUND, ratcheted)


def enrol_two(store):
    enrol(store, SESSION, keys_of((50, 51), ROUND), {50: Grant(b"what it gets for it")})


def revoke(store):
    store.revoke(SESSION, 3)


def close_round(store):
    store.close_round(SESSION, ROUND, moved_to(ROUND + 1))


def end_enrolment(store):
    store.end_enrolment()


OPERATIONS = {
    "answer": answer,
    "enrol": enrol_two,
    "revoke": revoke,
    "close": close_round,
    "end": end_enrolment,
}


def made(path):
    """A store that has answered rounds before, whose answers are long; and these answers."""
    with begun(path) as store:
        store.keep_enrolment_key(b"enrolment key")
        return {number: ask(store, number, lambda keys: os.urandom(9000)) for number in (1, 2, 3)}


def prepared(operation, path):
    if operation == "create":
        return None, lambda: AuthorityStore.create(path, KEY, AUTHORITY).close()
    if operation in ("open", "restore"):
        return None, lambda: opened(path, restored=operation == "restore").close()
    store = opened(path)
    return store, partial(OPERATIONS[operation], store)


def rows_of(operation, path):
    """Return how far a store has come once all of an operation is done."""
    store, run = prepared(operation, path)
    run()
    if store:
        store.close()
    with opened(path) as store:
        return store.position.rows


def state_after(operation, begun_rows, whole, answers, path, left):
    """Whether the operation is done, whole, or not at all; anything else is an error."""
    if operation == "create":
        try:
            with opened(path) as store:
                assert store.position == (0, 0)
            return "done"
        except (WireFormatError, DataError):
            path.unlink(missing_ok=True)
            AuthorityStore.create(path, KEY, AUTHORITY).close()
            return "not"
    with opened(path) as store:
        rows = store.position.rows - begun_rows
        if operation == "restore" and rows:
            # Twice, where the first time was done though it failed, and was done again.
            assert store.position.epoch == rows <= 2
            return "done"
        for number, right in answers.items():
            if number > 1 and not (operation == "answer" and rows and number == 2):
                assert ask(store, number, never) == right
        if operation == "answer":
            if left:
                assert ask(store, ROUND, never).hex() == left
            first = ask(store, ROUND, never if rows else random_answer)
            assert ask(store, ROUND, never) == first
            try:
                ask(store, ROUND, never, clients=CLIENTS[:4])
                raise AssertionError("a second list was answered")
            except PolicyError:
                pass
        assert rows in (0, whole)
        assert (store.keep_enrolment_key(None) is None) == (operation == "end" and rows > 0)
        if operation == "enrol":
            assert (store.grant(SESSION, 50) is not None) == bool(rows)
        return "done" if rows else "not"


def record(folder, broken):
    """Answer three rounds; all calls are in ``record``, with a line for each answer when it has left.

    The call of number ``broken`` fails once, and what it was made for is asked for again: 0 for none.
    """
    faults = ctypes.CDLL(None)
    path = folder / "store"
    shutil.copy(folder / "template", path)
    faults.arm_fault(KINDS["broken"] if broken else 0, broken, str(path).encode())
    log = os.open(folder / "record", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    faults.record_calls(log)
    store = None
    for number in (4, 5, 6):
        left = None
        while left is None:
            try:
                store = store or opened(path)
                left = ask(store, number, moved_to(number, os.urandom(3000)))
            except DataError:
                print("failed")
        os.write(log, f"a {number} {left.hex()} 0\n".encode())
    faults.record_calls(-1)


def main(folder, operation, kind):
    answers, begun_rows, whole = {}, 0, 0
    if operation != "create":
        template = folder / "template"
        answers = made(template)
        with opened(template) as store:
            begun_rows = store.position.rows
        whole = rows_of(operation, shutil.copy(template, folder / "right")) - begun_rows
    state = partial(state_after, operation, begun_rows, whole, answers)
    print_attempts(folder, kind, partial(prepared, operation), state)


if __name__ == "__main__":
    if sys.argv[2] == "record":
        begun(Path(sys.argv[1]) / "template", KEPT_FOR_LONG).close()
        record(Path(sys.argv[1]), int(sys.argv[3]))
    else:
        main(Path(sys.argv[1]), *sys.argv[2:])
