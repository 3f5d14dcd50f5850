"""Processes that do an audit's pieces beside each other; what one comes to does not depend on how many there are."""

from __future__ import annotations

import functools
import os
import pickle
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from threading import Thread
from types import ModuleType

import torch

from shieldfl.audit.piece import OWN_FEDERATIONS, Asked, Attacked, Piece, PieceWorker
from shieldfl.audit.result import Cell
from shieldfl.errors import ParameterError
from shieldfl.simulation.data import load_dataset

__all__ = ["Processes"]

_ENDED = "the process that attacked it ended by itself: is there enough memory?"


class _Process:
    """One fresh process: a pool of its own, so that the others go on where it ends."""

    def __init__(self) -> None:
        with _no_script():
            # No copies of this one, whose libraries have threads.
            self.pool = ProcessPoolExecutor(1, get_context("spawn"), _begin)
            self.there = self.pool.submit(os.getpid)

    def stop(self) -> None:
        for process in list((self.pool._processes or {}).values()):
            process.kill()
        self.pool.shutdown()


class Processes:
    """Fresh processes, each with one piece at a time.

    Ctrl-C is for the process that began them: it stops them. One that ends by itself, as where memory runs out, leaves
    its piece undone, which what came of it says; another one takes its place.

    Parameters
    ----------
    count : how many.
    asked : of the audit.
    """

    def __init__(self, count: int, asked: Asked) -> None:
        self._asked = asked
        # Plain pickles: torch would have tensors passed on by open files.
        self._frame = pickle.dumps(asked)
        self.idle = [_Process() for _ in range(count)]
        self.running: dict[Future[bytes], tuple[_Process, Piece]] = {}

    def begin(self, piece: Piece) -> None:
        """Have a process that is idle begin a piece."""
        process = self.idle.pop()
        self.running[process.pool.submit(_do, self._frame, piece)] = process, piece

    def wait(self) -> list[Attacked]:
        """Wait until a piece has ended, and return what came of those that have.

        Raises ParameterError where processes cannot be begun, and whatever a defect in one raises.
        """
        ended: list[Attacked] = []
        for future in wait(self.running, return_when=FIRST_COMPLETED).done:
            process, piece = self.running.pop(future)
            try:
                ended += pickle.loads(future.result())  # of a process of our own making
            except BrokenProcessPool:
                if process.there.exception() is not None:
                    raise ParameterError(
                        "another process could not be begun here: do all in one, by workers = 1 (--workers 1)"
                    ) from None
                ended += _undone(piece, self._asked.parties)
                process.stop()
                process = _Process()
            self.idle.append(process)
        return ended

    def stop(self) -> None:
        """End all of them, whatever they are at."""
        for process in (*self.idle, *(process for process, _ in self.running.values())):
            process.stop()


def _undone(piece: Piece, parties: tuple[str, ...]) -> Iterator[Attacked]:
    for attack in piece.attacks:
        if piece.trial == OWN_FEDERATIONS:
            cells = [Cell(piece.method, attack, party, "not attacked", _ENDED) for party in parties]
            yield Attacked(piece.method, attack, piece.trial, cells=cells)
        else:
            yield Attacked(piece.method, attack, piece.trial, left_out=_ENDED)


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


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)  # whoever began this process is gone


@functools.cache
def _worker(frame: bytes) -> PieceWorker:
    asked: Asked = pickle.loads(frame)
    torch.set_num_threads(asked.config.threads or 1)
    return PieceWorker(asked, load_dataset(asked.config.dataset, asked.config.data_dir))


def _do(frame: bytes, piece: Piece) -> bytes:
    return pickle.dumps(_worker(frame).do(piece))
