"""A client's store at each call to its disk that fails, as ``failing_calls`` has it.

See :mod:`authority.test_client_store`, which reads what this prints.
"""

from __future__ import annotations

import shutil
import sys
from functools import partial
from pathlib import Path

from authority.client_store_cases import KEY, PUBLIC_KEY, begun, encrypt, kept, opened
from authority.faulty_store import print_attempts
from shieldfl.authority.client_store import ClientStore
from shieldfl.encryption import kahe
from shieldfl.errors import DataError, PolicyError, WireFormatError

ROUND = 4
OTHER = kahe.PublicKey.of_session(PUBLIC_KEY.parameters, bytes(range(32)), bytes(16))


def close_round(store):
    store.close_round(PUBLIC_KEY, ROUND)


def enrol(store):
    store.add_key(kahe.ClientKey(OTHER, 3, bytes(32)))


OPERATIONS = {"encrypt": lambda store: encrypt(store, ROUND), "close": close_round, "enrol": enrol}


def prepared(operation, path):
    if operation == "create":
        return None, lambda: ClientStore.create(path, KEY).close()
    if operation == "open":
        return None, lambda: opened(path).close()
    store = opened(path)
    return store, partial(OPERATIONS[operation], store)


def state_after(operation, before, path, left):
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
        assert rows in (0, before["whole"])
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
    before = None
    if operation != "create":
        with begun(folder / "template") as store:
            frames = [encrypt(store, number) for number in (1, 2, 3)]
            before = {"rows": store.position.rows, "whole": 0, "frame": frames[-1]}
        if operation in OPERATIONS:
            with opened(shutil.copy(folder / "template", folder / "right")) as store:
                OPERATIONS[operation](store)
                before["whole"] = store.position.rows - before["rows"]
    print_attempts(folder, kind, partial(prepared, operation), partial(state_after, operation, before))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
