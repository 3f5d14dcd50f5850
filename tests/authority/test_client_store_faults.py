"""A client whose disk fails or fills up, and one that is killed: never a second frame of a round, nothing lost."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import pytest

from authority.client_store_cases import PUBLIC_KEY, begun, encrypt, kept, opened
from authority.test_store_faults import attempts, check_done_whole_or_not_at_all, killed_at_random
from shieldfl.errors import PolicyError

HERE = Path(__file__).parent

SOME = [("encrypt", "exit before"), ("encrypt", "full"), ("close", "exit halfway")]
OTHERS = [
    pytest.param(operation, kind, marks=pytest.mark.slow)
    for operation in ("encrypt", "close", "enrol", "open", "create")
    for kind in ("exit before", "exit halfway", "full", "broken")
    if (operation, kind) not in SOME
]


@pytest.mark.parametrize(("operation", "kind"), [*SOME, *OTHERS])
def test_whichever_call_of_a_transaction_fails_it_is_done_whole_or_not_at_all(
    faults, folder, operation, kind
):
    """What is there afterwards is checked attempt by attempt, in ``faulty_client_store.py``."""
    check_done_whole_or_not_at_all(
        attempts(HERE / "faulty_client_store.py", faults, folder, operation, kind), operation, kind
    )


@pytest.mark.parametrize("kills", [40, pytest.param(1000, marks=pytest.mark.slow)])
def test_frames_of_a_process_that_is_killed_are_made_once(folder, kills):
    path = folder / "store"
    begun(path).close()
    sent = killed_at_random(HERE / "killed_client_store.py", path, kills, random.Random(kills))
    assert len(sent) > kills / 10  # how many depends on how busy the machine is
    with opened(path) as store:
        newest = store.round(PUBLIC_KEY)
        # All but, perhaps, the newest have left, each of them once.
        assert sent.keys() | {newest} == set(range(1, newest + 1))
        assert hashlib.sha256(kept(store, newest)).hexdigest() == sent.get(
            newest, hashlib.sha256(encrypt(store, newest)).hexdigest()
        )
        for number in (newest, newest - 1):
            with pytest.raises(PolicyError, match=r"something else|is over"):
                encrypt(store, number, number=10**6)
