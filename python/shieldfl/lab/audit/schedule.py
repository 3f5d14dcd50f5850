"""Processes that do an audit's pieces beside each other; what one comes to does not depend on how many there are."""

from __future__ import annotations

import functools
import math
import os
import pickle
import signal
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from threading import Thread
from types import ModuleType

import numpy as np
import torch

from shieldfl.errors import ParameterError
from shieldfl.lab.audit.attack import ModelPlantingAttack, UpdateAttack
from shieldfl.lab.audit.piece import OWN_FEDERATIONS, Asked, Attacked, Piece, PieceWorker
from shieldfl.lab.audit.result import FEWEST_TRIES, UNDEFENDED, Cell
from shieldfl.lab.simulation.data import load_dataset
from shieldfl.lab.simulation.training_processes import end_with_parent

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
    Thread(target=end_with_parent, daemon=True).start()


@functools.cache
def _worker(frame: bytes) -> PieceWorker:
    asked: Asked = pickle.loads(frame)
    torch.set_num_threads(asked.config.threads or 1)
    return PieceWorker(asked, load_dataset(asked.config.dataset, asked.config.data_dir))


def _do(frame: bytes, piece: Piece) -> bytes:
    return pickle.dumps(_worker(frame).do(piece))


_SLOW = 10.0
"""So many times as long as the usual round of a method."""
_FEWEST_ROWS = 16
_LONGEST = 0.1
"""Of the whole time: what one federation with a planted layer may take, before the layer has fewer rows."""


class Schedule:
    """What is to be done next.

    First every attack is tried on every method: on one trial, or with the federations that it has of its own. Then
    trials follow up to the fewest that an interval is believed of, and with what time is left then, more of them. In
    each of these stages attacks have equal shares of the time, and what one does not need is shared out again among
    those that do. What cannot be begun before a method's first federation has ended holds up nobody: others go on with
    quick pieces of later stages meanwhile.

    Parameters
    ----------
    methods : the undefended one first.
    on_updates : attacks on updates.
    on_methods : names of those that have federations of their own.
    trials : of each method, at most.
    seconds : of all processes together.
    processes : how many there are: a piece is done by one of them.
    """

    def __init__(
        self,
        methods: Sequence[str],
        on_updates: Sequence[UpdateAttack],
        on_methods: Sequence[str],
        trials: int,
        seconds: float,
        processes: int = 1,
    ) -> None:
        self._methods, self._on_methods, self._trials = tuple(methods), tuple(on_methods), trials
        self._seconds, self._processes = seconds / processes, processes
        self.honest = tuple(one.name for one in on_updates if not isinstance(one, ModelPlantingAttack))
        """Names of attacks that share the federations whose model nobody has altered."""
        self.planting = {one.name: one for one in on_updates if isinstance(one, ModelPlantingAttack)}
        """By name: attacks with federations of their own, of which each is one trial."""
        self._rounds: dict[str, tuple[float, int]] = {}
        """By method: seconds of a round with a model that nobody has altered, and this one's parameters."""
        self._sizes: dict[str, int] = {}
        """By planting attack: of the models that it has altered, in full."""
        self._spent: defaultdict[str, float] = defaultdict(float)
        """By attack."""
        self._begun: set[tuple[str, str, int]] = set()
        """Methods, attacks and trials."""
        self._running: set[str] = set()
        """Methods whose first honest federation is under way: how long it takes is not known yet."""
        self._left_out: set[tuple[str, str]] = set()
        self.too_long: set[tuple[str, str]] = set()
        """Methods and attacks of which a federation would have taken more than what was left of the time."""

    def next(self, seconds_left: float) -> Piece | None:
        """Return the next piece to begin, with so many seconds left of all processes together; None for none now."""
        if seconds_left <= 0:
            return None
        waiting: set[str] = set()
        """Attacks with a piece that will be begun once it is known how long its method takes."""
        for stage in self._stages():
            # Beside what waits, what is short alone: whoever does it is back soon.
            held = self._slow() if waiting else frozenset[str]()
            pieces = [one for one in stage if one.method not in held]
            wanting = waiting.union(*(piece.attacks for piece in pieces))
            waiting.update(one.attacks[0] for one in pieces if self._waits(one))
            # Each attack that still wants time may come up to the level that all of them can have.
            level = (seconds_left + sum(self._spent[one] for one in wanting)) / max(1, len(wanting))
            for most in (level,) if waiting else (level, math.inf):
                for piece in pieces:
                    own = tuple(one for one in piece.attacks if self._spent[one] < most)
                    fitting = self._fitting(piece, own, seconds_left / self._processes, level)
                    if fitting is not None:
                        self._begun |= {(piece.method, one, piece.trial) for one in own}
                        if own[0] in self.honest and piece.method not in self._rounds:
                            self._running.add(piece.method)
                        return fitting
        return None

    def _stages(self) -> Iterator[list[Piece]]:
        """Yield what is left of each stage: every attack once, the fewest tries, more of them."""
        together = [one for one in (self.honest, *((name,) for name in self.planting)) if one]
        alone = [(name,) for name in self._on_methods]
        fewest = min(self._trials, FEWEST_TRIES)
        for numbers in (range(1), range(1, fewest), range(fewest, self._trials)):
            tries = [(number, attacks) for number in numbers for attacks in together]
            if not numbers.start:
                tries += [(OWN_FEDERATIONS, attacks) for attacks in alone]
            pieces = [
                Piece(method, number, left)
                for number, attacks in tries
                for method in self._quick_first(max(number, 0))
                if (left := tuple(one for one in attacks if self._is_left(method, one, number)))
            ]
            slow = self._slow() if numbers.start == 1 else frozenset[str]()
            yield sorted(pieces, key=lambda one: one.method in slow)

    def _is_left(self, method: str, attack: str, number: int) -> bool:
        return (method, attack, number) not in self._begun and (method, attack) not in self._left_out

    def _waits(self, piece: Piece) -> bool:
        return piece.attacks[0] in self.planting and piece.method in self._running

    def _fitting(self, piece: Piece, attacks: tuple[str, ...], left: float, level: float) -> Piece | None:
        """Return a piece for these attacks of it; None for no attacks, and where it has to wait, or is too long."""
        if not attacks or self._waits(piece):
            return None
        shares = {one: level - self._spent[one] for one in attacks}
        seconds = {one: min(left, share) if share > 0 else left for one, share in shares.items()}
        name, fewer = attacks[0], None
        if name in self.planting and piece.method in self._rounds and name in self._sizes:
            # What takes long is to encrypt every parameter, so that it is guessed by how many there are.
            round_seconds, parameters = self._rounds[piece.method]
            expected, rows = round_seconds * self._sizes[name] / parameters, self.planting[name].rows
            longest = _LONGEST * self._seconds
            if expected > longest and rows > _FEWEST_ROWS:
                fewer = max(_FEWEST_ROWS, 2 ** int(math.log2(max(rows * longest / expected, 1.0))))
                expected *= fewer / rows
            if expected > left:
                self.too_long.add((piece.method, name))
                return None
        return Piece(piece.method, piece.trial, attacks, seconds, fewer)

    def _slow(self) -> frozenset[str]:
        """Return methods whose rounds take as long as many others', and those that may turn out to be such."""
        usual = float(np.median([one for one, _ in self._rounds.values()] or [math.inf]))
        return (
            frozenset(name for name, (one, _) in self._rounds.items() if one > _SLOW * usual) | self._running
        )

    def _quick_first(self, number: int) -> list[str]:
        """Return the methods: what defends nothing, then another one first in each trial, since time may end amid one.

        Last are those that :meth:`_slow` names.
        """
        turn = 1 + number % max(1, len(self._methods) - 1)
        slow = self._slow()
        others = (*self._methods[turn:], *self._methods[1:turn])
        return [UNDEFENDED, *sorted(others, key=lambda name: name in slow)]

    def take_in(self, one: Attacked) -> None:
        """Learn from what has ended how long things take, and what a method refuses: that is not asked again."""
        self._begun.add((one.method, one.attack, one.trial))
        self._spent[one.attack] += one.seconds + one.shared_seconds
        sharing = self.honest if one.attack in self.honest else (one.attack,)
        if one.left_out is not None:
            self._left_out |= {(one.method, attack) for attack in sharing}
        if one.attack in self.honest:
            self._running.discard(one.method)
        if one.round_seconds is not None and one.parameters is not None:
            self._rounds.setdefault(one.method, (one.round_seconds, one.parameters))
        elif one.parameters is not None:
            self._sizes[one.attack] = one.parameters
