"""A role's state with one value forged, under a checksum or a seal that fits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from methods.method_conformance import run_of
from shieldfl.authority.role_state import pack_state
from shieldfl.errors import WireFormatError
from shieldfl.stateful import encode_record

KEY = bytes(32)


def forged_state(label, kind, path, forge):
    """Return a role after a round, a new one in its place, and its state with one value forged, with its key."""
    run = run_of(label)
    run.run_round()
    if kind == "authority":
        # The keys of the next round are made, and not yet wiped.
        run.authority.begin_round(2)
    role = {"client": run.clients[0], "aggregator": run.aggregator, "authority": run.authority}[kind]
    fresh = {
        "client": lambda: run.new_client(0),
        "aggregator": run.new_aggregator,
        "authority": run.new_authority,
    }[kind]()
    key = KEY if role.needs_sealing else None
    forged = role.changed()
    inner = forged
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = forge(inner[path[-1]])
    return role, fresh, pack_state(fresh._owner, encode_record(forged, {}), key), key


def plain_record(role) -> bytes:
    return bytes(encode_record(role.changed(), {}))


def check_refused(label: str, kind: str, path: tuple[str, ...], forge: Callable[[Any], Any]) -> None:
    """A state with this value forged changes neither a new nor a used role, and the genuine one is taken."""
    role, fresh, state, key = forged_state(label, kind, path, forge)
    after = plain_record(role)
    for one in (fresh, role):
        with pytest.raises(WireFormatError):
            one.restore(state, key)
    assert plain_record(role) == after
    genuine = role.state(key)
    fresh.restore(genuine, key)
    role.restore(genuine, key)
    assert plain_record(fresh) == plain_record(role) == after
