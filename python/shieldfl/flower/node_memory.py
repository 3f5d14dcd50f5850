"""Where a node keeps a client's role between messages: on its disk, or, in a simulation, where Flower keeps it."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import io
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context

from shieldfl.authority.private_file import disk_errors_as, drawn_key, write_private_file
from shieldfl.authority.role_state import SEALING_KEY_BYTES
from shieldfl.authority.step_store import UPDATE_OF_ANOTHER_ROUND, StepStore
from shieldfl.errors import DataError, PolicyError
from shieldfl.flower.wire import Position

_STATE_DOMAIN = b"shieldfl node state 1\0"
_WAITS_SECONDS = 30.0


def is_simulated() -> bool:
    """Say whether this process is a worker of Flower's simulation, where all clients are on one machine."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


class SimulatedMemory:
    """The state that Flower keeps for each node of a simulation: it protects nobody, and finds no old copies."""

    def __init__(self, context: Context) -> None:
        self._record: Any = context.state.setdefault("shieldfl.memory", ConfigRecord())

    def read(self, session: bytes) -> tuple[Position, dict[str, bytes]]:
        head = f"{session.hex()} "
        kept = {name: one for name, one in self._record.items() if name.startswith(head)}
        return (0, 0), {name.removeprefix(head): one for name, one in kept.items() if isinstance(one, bytes)}

    def keep(
        self,
        session: bytes,
        contents: Mapping[str, bytes],
        *,
        round_number: int,
        update: bytes | None,
        **_: Any,
    ) -> Position:
        if update is not None:
            at = f"{session.hex()} update {update.hex()}"
            if self._record.setdefault(at, round_number) != round_number:
                raise PolicyError(UPDATE_OF_ANOTHER_ROUND)
        self._record.update({f"{session.hex()} {name}": content for name, content in contents.items()})
        return 0, 0

    def state_key(self, session: bytes) -> bytes:
        """Return what seals a role's state, 32 bytes: nothing that is secret, in a simulation."""
        return hashlib.sha256(_STATE_DOMAIN + session).digest()


class DiskMemory:
    """A folder on the node's disk, of its owner alone: a store, and the key that it is sealed under.

    ``at_least`` is a position that the store is known to have reached: an old copy of it is refused. ``repeats`` lets
    one update be sent in several runs. Raises DataError where the folder cannot be made or read.
    """

    def __init__(self, folder: Path, at_least: Position = (0, 0), *, repeats: bool = False) -> None:
        self._path = folder / "store"
        self._repeats = repeats
        self._at_least = at_least
        with disk_errors_as(
            f"the node's folder {folder} cannot be made or read: look at its owner and its permissions"
        ):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._key = drawn_key(folder / "key", SEALING_KEY_BYTES)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[StepStore]:
        """Open the store: a second process of the node, for a message that came twice, holds it for milliseconds."""
        until, found = time.monotonic() + _WAITS_SECONDS, None
        while found is None:
            try:
                found = (StepStore if self._path.exists() else StepStore.create)(self._path, self._key)
            except PolicyError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)
        with found as store:
            if store.position < self._at_least:
                raise PolicyError(
                    f"the store {self._path} is an old copy: it ends at {tuple(store.position)}, and has been at "
                    f"{self._at_least}. Put the newest one back, or, if that is lost, have the node begin anew: "
                    "`shieldfl flower restored`"
                )
            yield store

    def read(self, session: bytes) -> tuple[Position, dict[str, bytes]]:
        with self._opened() as store:
            return store.position, store.kept(session)

    def keep(self, session: bytes, contents: Mapping[str, bytes], **sent: Any) -> Position:
        """Keep as :meth:`StepStore.keep` does, which says what ``since``, ``round_number`` and ``update`` are."""
        with self._opened() as store:
            store.keep(session, contents, **sent, repeats=self._repeats)
            return store.position

    def state_key(self, session: bytes) -> bytes:
        return hmac.digest(self._key, _STATE_DOMAIN + session, "sha256")

    def begin_anew(self) -> None:
        """End every session of a store that is a backup: no second frame can be made of what was sent since."""
        with StepStore(self._path, self._key, at_least=self._at_least, restored=True):
            pass


NodeMemory = SimulatedMemory | DiskMemory


def write_model(folder: Path, arrays: ArrayRecord) -> None:
    buffer = io.BytesIO()
    named: dict[str, Any] = {name: array.numpy() for name, array in arrays.items()}
    np.savez(buffer, **named)
    try:
        write_private_file(folder / "model.npz", buffer.getvalue())
    except OSError as error:
        raise DataError(f"the model cannot be written to {folder}: free some space there") from error
