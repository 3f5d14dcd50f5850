"""An authority's store at each call to its disk that fails, as ``failing_calls`` has it.

See :mod:`roles.test_store_faults`, which reads what this prints. As "record" it writes down all calls of a few answers
instead.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from functools import partial
from pathlib import Path

from authority.failing_calls import KINDS, print_attempts
from authority.store_cases import (
    AUTHORITY,
    CLIENTS,
    KEPT_FOR_LONG,
    KEY,
    SESSION,
    ask,
    begun,
    key_of,
    moved_to,
    never,
    opened,
    random_answer,
)
from shieldfl.authority.authority_store import AuthorityStore, ClientKey, Grant
from shieldfl.errors import DataError, PolicyError, WireFormatError

ROUND = 4


def ratcheted(keys):
    return os.urandom(9000), moved_to(ROUND)(keys)


def answer(store):
    return ask(store, ROUND, ratcheted)


def enrol(store):
    keys = {client: ClientKey(ROUND, key_of(client)) for client in (50, 51)}
    store.enrol(SESSION, keys, {50: Grant(b"what it gets for it")})


def revoke(store):
    store.revoke(SESSION, 3)


def close_round(store):
    store.close_round(SESSION, ROUND, moved_to(ROUND + 1))


def end_enrolment(store):
    store.end_enrolment()


OPERATIONS = {
    "answer": answer,
    "enrol": enrol,
    "revoke": revoke,
    "close": close_round,
    "end": end_enrolment,
}


def made(path):
    """A store that has answered rounds before, whose answers are long; and these answers."""
    with begun(path) as store:
        store.keep_enrolment_key(b"enrolment key")
        return {number: ask(store, number, lambda keys: (os.urandom(9000), keys)) for number in (1, 2, 3)}


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
                left = ask(
                    store, number, lambda keys, number=number: (os.urandom(3000), moved_to(number)(keys))
                )
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
