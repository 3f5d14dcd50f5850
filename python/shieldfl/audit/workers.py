"""Processes that do an audit's pieces beside each other; what one comes to does not depend on how many there are."""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any

from shieldfl.audit.piece import OWN_FEDERATIONS, Asked, Done, Piece, PieceWorker
from shieldfl.audit.result import Cell
from shieldfl.audit.written_audit import Attacked
from shieldfl.errors import ParameterError
from shieldfl.simulation.data import Dataset, load_dataset
from shieldfl.simulation.training_device import torch_threads

__all__ = ["Processes", "ThisProcess"]


class ThisProcess:
    """Does each piece as it is given, in the process that gives it. Raises as :class:`PieceWorker` does."""

    count = 1

    def __init__(self, asked: Asked, dataset: Dataset, on_federation: Callable[[str, int], None]) -> None:
        self._worker = PieceWorker(asked, dataset, on_federation)
        self._done: list[Done] = []

    @property
    def has_room(self) -> bool:
        """Whether a piece is begun at once."""
        return not self._done

    @property
    def running(self) -> int:
        """How many pieces were begun, and not handed back."""
        return len(self._done)

    def begin(self, piece: Piece) -> None:
        """Do a piece."""
        self._done.append(self._worker.do(piece))

    def wait(self) -> list[Done]:
        """Return what has ended."""
        done, self._done = self._done, []
        return done

    def stop(self) -> None:
        """There is nothing to stop."""


@dataclass
class _Process:
    process: BaseProcess
    connection: Connection
    piece: Piece | None = None
    is_there: bool = False
    """Whether it has been heard of: it takes seconds to load torch."""


class Processes:
    """Fresh processes, each with one piece at a time.

    Ctrl-C is for the process that began them: it stops them. One that ends by itself, as where memory runs out, leaves
    its piece undone, which what came of it says; another one takes its place.

    Parameters
    ----------
    count : how many.
    asked : of the audit.
    on_federation : told of each federation that one of them begins.
    """

    def __init__(self, count: int, asked: Asked, on_federation: Callable[[str, int], None]) -> None:
        self.count = count
        self._asked, self._on_federation = asked, on_federation
        # Plain pickles: torch would have tensors passed on by open files.
        self._frame = pickle.dumps(asked)
        self._all = [self._begun() for _ in range(count)]

    def _begun(self) -> _Process:
        context = get_context("spawn")  # no copies of this one, whose libraries have threads
        ours, theirs = context.Pipe()
        process = context.Process(target=_run, args=(theirs,), daemon=True)
        with _no_script():
            process.start()
        theirs.close()
        ours.send_bytes(self._frame)
        return _Process(process, ours)

    @property
    def has_room(self) -> bool:
        """Whether a piece is begun at once."""
        return any(one.piece is None for one in self._all)

    @property
    def running(self) -> int:
        """How many pieces were begun, and not handed back."""
        return sum(one.piece is not None for one in self._all)

    def begin(self, piece: Piece) -> None:
        """Have a process that has nothing to do begin a piece."""
        one = next(one for one in self._all if one.piece is None)
        one.piece = piece
        with suppress(OSError):  # it has ended, which wait() finds
            one.connection.send_bytes(pickle.dumps(piece))

    def wait(self) -> list[Done]:
        """Wait until a piece has ended, and return those that have.

        Raises ParameterError where processes cannot be begun, RuntimeError for a defect in one.
        """
        done: list[Done] = []
        while not done and self.running:
            ready = wait([one.connection for one in self._all if one.piece is not None])
            for number, one in enumerate(self._all):
                if one.connection in ready:
                    done += self._heard(number, one)
        return done

    def _heard(self, number: int, one: _Process) -> list[Done]:
        assert one.piece is not None
        try:
            kind, told = pickle.loads(one.connection.recv_bytes())  # of a process of our own making
        except (EOFError, OSError):
            one.process.join()
            if not one.is_there:
                raise ParameterError(
                    "another process could not be begun here: do all in one, by workers = 1 (--workers 1)"
                ) from None
            self._all[number] = self._begun()
            return [_undone(one.piece, self._asked, one.process.exitcode)]
        one.is_there = True
        if kind == "ready":
            return []
        if kind == "federation":
            self._on_federation(*told)
            return []
        if kind == "defect":
            raise RuntimeError(f"a process of the audit failed at {one.piece}:\n{told}")
        one.piece = None
        return [told]

    def stop(self) -> None:
        """End all of them, whatever they are at."""
        for one in self._all:
            one.process.kill()
        for one in self._all:
            one.process.join()
            one.connection.close()


def _undone(piece: Piece, asked: Asked, exit_code: int | None) -> Done:
    why = f"the process that attacked it ended by itself, with exit code {exit_code}: is there enough memory?"
    done = Done(piece)
    for attack in piece.attacks:
        one = Attacked(piece.method, attack, piece.trial)
        if piece.trial == OWN_FEDERATIONS:
            one.cells = [Cell(piece.method, attack, party, "not attacked", why) for party in asked.parties]
        else:
            one.left_out = why
        done.ended.append(one)
    return done


@contextmanager
def _no_script() -> Iterator[None]:
    """Have processes that begin within not run the script that began this one: it may have no guard against that.

    Nor do they take modules from the folder that they are called in, before they are told this one's path.
    """
    script, safe_path = sys.modules["__main__"], os.environ.get("PYTHONSAFEPATH")
    sys.modules["__main__"] = ModuleType("__main__")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        sys.modules["__main__"] = script
        if safe_path is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = safe_path


def _run(connection: Connection) -> None:
    """Do pieces as they come, until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def tell(kind: str, what: Any) -> None:
        connection.send_bytes(pickle.dumps((kind, what)))

    try:
        asked: Asked = pickle.loads(connection.recv_bytes())
        dataset = load_dataset(asked.config.dataset, asked.config.data_dir)
        with torch_threads(asked.config.threads or 1):
            worker = PieceWorker(asked, dataset, lambda method, number: tell("federation", (method, number)))
            tell("ready", None)
            while True:
                piece: Piece = pickle.loads(connection.recv_bytes())
                try:
                    done = worker.do(piece)
                except Exception:
                    import traceback

                    tell("defect", traceback.format_exc())
                    return
                tell("done", done)
    except (EOFError, OSError):
        return  # whoever began this process is gone, or has enough
