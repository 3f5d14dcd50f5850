"""Where a simulation's clients train: one after another in this process, or beside each other in copies of it."""

from __future__ import annotations

import gc
import math
import mmap
import os
import pickle
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from multiprocessing import current_process, get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.queues import SimpleQueue
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from shieldfl.array_view import address_of
from shieldfl.errors import ParameterError, RangeError
from shieldfl.learning.local_trainer import LocalTrainer
from shieldfl.learning.local_update import FloatVector, LocalUpdate, PrivateSteps, StartingPoint

_MOST_BYTES = 256 * 2**20
"""Of vectors that trainings under way may have: further clients wait until one has ended."""
_MOST_TRAININGS = 128
"""Under way: as long as what is sent of them fits into a pipe (64 KiB), no process waits to send."""
_NICENESS = 5
"""Below the first process: on as many cores as there are copies, what feeds them has to come first."""
_VECTORS = ("parameters", "buffers")


def can_copy_process() -> bool:
    """Say whether this process can have copies that train.

    Where the system's fork is safe, in no copy itself, and without an accelerator: once torch has begun a thread for
    one, gradients are refused in copies.
    """
    if sys.platform != "linux" or current_process().daemon:
        return False
    return not getattr(torch, "accelerator", torch.cuda).is_available()


class Trained(NamedTuple):
    """What one client's training came to."""

    client: int
    outcome: LocalUpdate | RangeError
    """Its vectors may be written over when it has been told."""
    loss: float
    """Mean of the last epoch; NaN beside a RangeError."""
    seconds: dict[str, float]
    """By stage."""


def _train(trainer: LocalTrainer, client: int, start: StartingPoint, seed: int) -> Trained:
    """Train a client in this process."""
    outcome: LocalUpdate | RangeError
    try:
        outcome, loss = trainer.train(start, seed)
    except RangeError as error:
        outcome, loss = error, float("nan")
    return Trained(client, outcome, loss, trainer.clock.take())


@dataclass
class _Running:
    """A training under way."""

    place: Place
    start: StartingPoint
    ended: _Ended | None = None


class _Begun(NamedTuple):
    """What a copy is sent, beside vectors."""

    client: int
    seed: int
    place: Place
    start: dict[str, Any]
    """All of it that is no vector."""


class _Ended(NamedTuple):
    """What a copy sends back, beside vectors."""

    client: int
    failure: Exception | None
    loss: float
    has_scores: bool
    steps: PrivateSteps | None
    seconds: dict[str, float]
    kinds: set[str]


class ClientTraining:
    """Lets clients train and tells of each that has, in this process or several at a time beside it.

    With several processes, each is a copy of this one from when the first client began (fork): samples, model and
    settings are there without being copied or sent. All take what is to be trained from one queue, and vectors travel
    through memory that all share; trainings under way are so few that the queue never fills, else processes would wait
    for each other. What training leaves on a model beside parameters and buffers stays in the copy; so it is for models
    that keep nothing else. Whichever process trains a client, it computes the same.

    Parameters
    ----------
    trainers : one for each client.
    tell : called with what each client's training came to, while :meth:`begin` or a wait runs, in this thread.
    processes : how many train at a time; 1 for this process alone.
    """

    def __init__(
        self, trainers: Sequence[LocalTrainer], tell: Callable[[Trained], None], processes: int = 1
    ) -> None:
        self._trainers = trainers
        self._tell = tell
        self._count = processes
        self._processes: list[tuple[BaseProcess, Connection]] = []
        self._queue: SimpleQueue[_Begun] | None = None
        self._vectors: SharedVectors | None = None
        self._running: dict[int, _Running] = {}
        """By client, the oldest first."""
        self._waited = self._trained = 0.0

    def begin(self, client: int, start: StartingPoint, seed: int) -> None:
        """Let a client train. Raises what an earlier one's training, or this one's, raised, but for RangeError.

        Raises ParameterError, as waits do, for a process that cannot be begun, or that has ended by itself.
        """
        if self._count == 1:
            self._tell(_train(self._trainers[client], client, start, seed))
            return
        if self._vectors is None or self._queue is None:
            self._vectors, self._queue = self._copied(start)
        if not self._vectors.has_room:
            self._take(next(iter(self._running)))
        place = self._vectors.place(start)
        rest = {one.name: getattr(start, one.name) for one in fields(start) if one.name not in _VECTORS}
        self._queue.put(_Begun(client, seed, place, rest))
        self._running[client] = _Running(place, start)
        self._hear(0.0)
        for ended in [number for number, one in self._running.items() if one.ended is not None]:
            self._take(ended)

    def _copied(self, first: StartingPoint) -> tuple[SharedVectors, SimpleQueue[_Begun]]:
        """Begin the processes; ``first`` is a start as all are, as to sizes."""
        sizes = first.parameters.size, first.buffers.size
        room = _MOST_BYTES // (4 * (3 * sizes[0] + 2 * sizes[1]) + 1)
        count = max(1, min(len(self._trainers), room, _MOST_TRAININGS))
        try:
            vectors = SharedVectors(count, *sizes)
            self._queue = queue = get_context("fork").SimpleQueue()
            # Else one that has begun and is not in the list would never be ended.
            with _without_interrupts():
                for _ in range(min(self._count, count)):
                    self._processes.append(_started(self._trainers, vectors, queue))
        except OSError as error:
            self.close()
            raise _ended_by_itself() from error
        except BaseException:  # Ctrl-C
            self.close()
            raise
        return vectors, queue

    def wait_for(self, client: int) -> None:
        """Return when it has been told of this client's training; at once where none is under way. Raises as begin."""
        if client in self._running:
            self._take(client)

    def wait_for_all(self) -> None:
        """Return when no training is under way. Raises as begin."""
        for client in list(self._running):
            self._take(client)

    def take_saved(self) -> float:
        """Return the seconds that trainings since the last call would have taken here beside those that it waited."""
        saved, self._waited, self._trained = max(0.0, self._trained - self._waited), 0.0, 0.0
        return saved

    def close(self) -> None:
        """Kill the processes, whatever they do: they hold nothing that is needed."""
        for process, _ in self._processes:
            process.kill()
        for process, connection in self._processes:
            process.join()
            connection.close()
        if self._queue is not None:
            self._queue.close()
        self._processes, self._queue, self._vectors, self._running = [], None, None, {}

    def _take(self, client: int) -> None:
        """Wait for a training, and tell what it came to."""
        began, running = time.perf_counter(), self._running[client]
        while running.ended is None:
            self._hear(None)
        self._waited += time.perf_counter() - began
        del self._running[client]
        ended = running.ended
        assert self._vectors is not None
        try:
            if ended.failure is not None and not isinstance(ended.failure, RangeError):
                raise ended.failure
            self._trained += sum(ended.seconds.values())
            self._trainers[client].kinds.update(ended.kinds)
            parameters, buffers, scores = self._vectors.result_of(running.place)
            outcome = ended.failure or running.start.trained(
                parameters, buffers, scores if ended.has_scores else None, ended.steps
            )
            self._tell(Trained(client, outcome, ended.loss, ended.seconds))
        finally:
            if self._vectors is not None:
                self._vectors.give_back(running.place)

    def _hear(self, seconds: float | None) -> None:
        """Read what processes have sent; None waits until one has sent something."""
        ready = wait([connection for _, connection in self._processes], seconds)
        for _, connection in self._processes:
            while connection in ready:
                try:
                    ended = connection.recv()
                except (EOFError, OSError) as error:
                    raise _ended_by_itself() from error
                self._running[ended.client].ended = ended
                if not connection.poll():
                    break


def _ended_by_itself() -> ParameterError:
    return ParameterError(
        "a process that trains clients could not be begun, or has ended by itself: is there enough memory? Train in "
        "this one alone, by threads = 1 (--threads 1)"
    )


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Hold Ctrl-C, which is raised in the main thread alone, back until the end."""
    came: list[Any] = []
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, lambda *what: came.append(what)) if is_main else None
    try:
        with warnings.catch_warnings():
            # Other threads hold no lock that training takes: torch has one thread there, and the core's begin anew.
            warnings.filterwarnings("ignore", ".* is multi-threaded, use of fork", DeprecationWarning)
            yield
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)
        if came and callable(before):
            before(*came[0])


def _started(
    trainers: Sequence[LocalTrainer], vectors: SharedVectors, queue: SimpleQueue[_Begun]
) -> tuple[BaseProcess, Connection]:
    context = get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_train_in_copy, args=(trainers, vectors, queue, theirs), daemon=True)
    try:
        process.start()
    finally:
        # Now: of the next process it would be a copy, and the end of this one would not be seen.
        theirs.close()
    return process, ours


def _train_in_copy(
    trainers: Sequence[LocalTrainer], vectors: SharedVectors, queue: SimpleQueue[_Begun], told: Connection
) -> None:
    # Ctrl-C goes to all processes of a terminal, and is the first one's to handle.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(OSError):  # where a sandbox forbids it
        os.nice(_NICENESS)
    gc.freeze()  # what was there before is never collected: looking at it would copy its pages
    threading.Thread(target=end_with_parent, daemon=True).start()
    while True:
        told.send(_trained_into(vectors, trainers, queue.get()))


def end_with_parent() -> None:
    """Wait until whoever began this process is gone, and end it then."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _trained_into(vectors: SharedVectors, trainers: Sequence[LocalTrainer], begun: _Begun) -> _Ended:
    trainer = trainers[begun.client]
    start_parameters, start_buffers = vectors.start_of(begun.place)
    parameters, buffers, scores = vectors.result_of(begun.place)
    start = StartingPoint(start_parameters, start_buffers, **begun.start)
    try:
        trained = _train(trainer, begun.client, start, begun.seed)
    except Exception as error:  # the first process raises it
        return _Ended(begun.client, _as_sent(error), math.nan, False, None, {}, trainer.kinds)
    outcome, seconds = trained.outcome, trained.seconds
    if isinstance(outcome, RangeError):
        return _Ended(begun.client, outcome, math.nan, False, None, seconds, trainer.kinds)
    parameters[:], buffers[:] = outcome.parameters, outcome.buffers
    if outcome.scores is not None:
        scores[:] = outcome.scores
    has_scores = outcome.scores is not None
    return _Ended(begun.client, None, trained.loss, has_scores, outcome.private_steps, seconds, trainer.kinds)


def _as_sent(error: Exception) -> Exception:
    """Return an error that another process can raise, with where it was raised in this one."""
    where = "in another process:\n" + "".join(traceback.format_exception(error))
    try:
        error.add_note(where)
        pickle.loads(pickle.dumps(error))
    except Exception:
        stands_for_it = RuntimeError(traceback.format_exception_only(error)[-1].strip())
        stands_for_it.add_note(where)
        return stands_for_it
    return error


class Place(NamedTuple):
    """Where a training's vectors are."""

    start: int
    result: int


class SharedVectors:
    """Vectors of so many trainings at a time, in memory that copies of this process made later share with it.

    Clients that start from one and the same model read one copy of it.

    Parameters
    ----------
    count : trainings at a time.
    parameters, buffers : how many of each a model has.
    """

    def __init__(self, count: int, parameters: int, buffers: int) -> None:
        self._sizes = parameters, buffers
        self._starts = _shared(count, parameters + buffers)
        self._results = _shared(count, 2 * parameters + buffers)
        self._free = list(range(count))
        self._users = [0] * count
        """Of each start, the trainings under way from it."""
        self._newest: tuple[int, StartingPoint] | None = None
        """Which start was written last, and what was: held, so that its memory is no other vector's."""

    @property
    def has_room(self) -> bool:
        """Whether another training's vectors find a place."""
        return bool(self._free)

    def place(self, start: StartingPoint) -> Place:
        """Write what a training starts from, where it is not there already, and return where its vectors are."""
        result = self._free.pop()
        if self._newest is not None and _are_same(self._newest[1], start):
            number = self._newest[0]
        else:
            number = self._users.index(0)
            self._newest = None  # until all of it is written
            parameters, buffers = self.start_of(Place(number, 0))
            parameters[:], buffers[:] = start.parameters, start.buffers
            self._newest = number, start
        self._users[number] += 1
        return Place(number, result)

    def give_back(self, place: Place) -> None:
        """Let other trainings have a place."""
        self._users[place.start] -= 1
        self._free.append(place.result)

    def start_of(self, place: Place) -> list[FloatVector]:
        """Return parameters and buffers that a training starts from."""
        return np.split(self._starts[place.start], [self._sizes[0]])

    def result_of(self, place: Place) -> list[FloatVector]:
        """Return the parameters, buffers and scores that a training comes to, to be written or read."""
        parameters, buffers = self._sizes
        return np.split(self._results[place.result], [parameters, parameters + buffers])


def _shared(count: int, width: int) -> npt.NDArray[np.float32]:
    # Of no file: nothing of it is left behind, and its pages are there when they are written to.
    return np.frombuffer(mmap.mmap(-1, max(1, 4 * count * width)), np.float32, count * width).reshape(
        count, width
    )


def _are_same(one: StartingPoint, other: StartingPoint) -> bool:
    pairs = (one.parameters, other.parameters), (one.buffers, other.buffers)
    return all(
        ours.size == theirs.size == 0
        or (
            (address_of(ours), ours.size) == (address_of(theirs), theirs.size)
            and _is_constant(ours)
            and _is_constant(theirs)
        )
        for ours, theirs in pairs
    )


def _is_constant(vector: FloatVector) -> bool:
    """Whether it is of bytes, which nobody can write to, one after the other."""
    if not vector.flags.c_contiguous:
        return False
    under: object = vector
    while isinstance(under, np.ndarray | memoryview):
        under = under.base if isinstance(under, np.ndarray) else under.obj
    return isinstance(under, bytes)
