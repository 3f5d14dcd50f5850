"""One operation on a client's store, again and again, the n-th call to its disk failing, as in ``faulty_store``."""

from __future__ import annotations

import ctypes
import json
import shutil
import sys
from pathlib import Path

from roles.client_store_cases import KEY, PUBLIC_KEY, begun, encrypt, kept, opened
from roles.faulty_store import KINDS, in_a_process
from shieldfl import kahe
from shieldfl.errors import DataError, PolicyError, ShieldError, WireFormatError
from shieldfl.roles.client_store import ClientStore

ROUND = 4
OTHER = kahe.PublicKey.of_session(PUBLIC_KEY.parameters, bytes(range(32)), bytes(16))


def close_round(store):
    store.close_round(PUBLIC_KEY, ROUND)


def enrol(store):
    store.add_key(kahe.ClientKey(OTHER, 3, bytes(32)))


OPERATIONS = {"encrypt": lambda store: encrypt(store, ROUND), "close": close_round, "enrol": enrol}


def attempt(faults, path, operation, kind, number):
    """Run in a process of its own, and return what left: what the operation returned, or what it raised."""
    act = OPERATIONS.get(operation)
    store = opened(path) if act else None

    def run():
        if operation == "create":
            ClientStore.create(path, KEY).close()
        elif operation == "open":
            opened(path).close()
        return act(store) if act else None

    told = {"raised": None, "again": None, "full": None, "left": None}
    faults.arm_fault(KINDS[kind], number, str(path).encode())
    try:
        told["left"] = run()
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
            told["left"] = run()
            told["again"] = "done"
        except PolicyError:
            told["again"] = "was done"
    if store:
        store.close()
    return told | {"left": told["left"].hex() if told["left"] else None}


def state_after(path, operation, before, left):
    """Whether the operation is done, whole, or not at all; anything else is an error."""
    if operation == "create":
        try:
            opened(path).close()
            return "done"
        except (WireFormatError, DataError):
            path.unlink(missing_ok=True)
            ClientStore.create(path, KEY).close()
            return "not"
    with opened(path) as store:
        rows = store.position.rows - before["rows"]
        is_sent = operation == "encrypt" and rows
        assert rows in (0, 1)
        assert store.round(PUBLIC_KEY) == (
            ROUND if is_sent else ROUND + 1 if operation == "close" and rows else 3
        )
        # What had left before is there to be sent again, until a later round's frame has taken its place.
        assert kept(store, 3) == (None if is_sent else before["frame"])
        if operation == "encrypt":
            stored = kept(store, ROUND)
            assert (stored is not None) == bool(rows)
            if left:
                assert stored.hex() == left
            first = encrypt(store, ROUND)
            assert stored in (None, first)
            assert encrypt(store, ROUND) == first
            try:
                encrypt(store, ROUND, number=99)
                raise AssertionError("a second frame was made")
            except PolicyError:
                pass
        return "done" if rows else "not"


def main(folder, operation, kind):
    """Print a line of JSON for each attempt, and one at the end."""
    faults = ctypes.CDLL(None)
    template, path = folder / "template", folder / "store"
    with begun(template) as store:
        frames = [encrypt(store, number) for number in (1, 2, 3)]
        before = {"rows": store.position.rows, "frame": frames[-1]}
    number = 0
    while True:
        number += 1
        for old in folder.glob("store*"):
            old.unlink()
        if operation != "create":
            shutil.copy(template, path)
        told = in_a_process(attempt, faults, path, operation, kind, number)
        state = state_after(path, operation, before, told and told["left"])
        print(json.dumps((told or {"raised": "exit"}) | {"state": state}), flush=True)
        if told and told["calls"] < number:
            break


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
