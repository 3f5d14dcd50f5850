"""Processes in which a simulation's clients train beside each other: copies of this one."""

from __future__ import annotations

import gc
import math
import os
import pickle
import signal
import sys
import threading
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

import torch

from shieldfl.errors import ParameterError, RangeError
from shieldfl.simulation.shared_vectors import Place, SharedVectors
from shieldfl.training.local_trainer import LocalTrainer
from shieldfl.training.local_update import LocalUpdate, PrivateSteps, StartingPoint

__all__ = ["Trained", "TrainingProcesses", "can_copy_process", "train_client"]

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


def train_client(trainer: LocalTrainer, client: int, start: StartingPoint, seed: int) -> Trained:
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


class TrainingProcesses:
    """Copies of this process, made by fork, each with a training at a time: nothing but vectors travels.

    All take what is to be trained from one queue, and vectors are in memory that all share. Trainings under way are so
    few that the queue never fills: else processes would wait for each other.

    Parameters
    ----------
    trainers : one for each client.
    processes : how many.
    first : a start as all are, as to sizes.

    Raises ParameterError, as :meth:`take` does, for a process that cannot be begun, or that has ended by itself.
    """

    def __init__(self, trainers: Sequence[LocalTrainer], processes: int, first: StartingPoint) -> None:
        sizes = first.parameters.size, first.buffers.size
        room = _MOST_BYTES // (4 * (3 * sizes[0] + 2 * sizes[1]) + 1)
        count = max(1, min(len(trainers), room, _MOST_TRAININGS))
        self.running: dict[int, _Running] = {}
        """By client, the oldest first."""
        self._processes: list[tuple[BaseProcess, Connection]] = []
        self._queue: SimpleQueue[_Begun] | None = None
        try:
            self._vectors = SharedVectors(count, *sizes)
            self._queue = get_context("fork").SimpleQueue()
            # Else one that has begun and is not in the list would never be ended.
            with _without_interrupts():
                for _ in range(min(processes, count)):
                    self._processes.append(_started(trainers, self._vectors, self._queue))
        except OSError as error:
            self.close()
            raise _ended_by_itself() from error
        except BaseException:  # Ctrl-C
            self.close()
            raise

    @property
    def has_room(self) -> bool:
        """Whether another training can begin before one has been taken."""
        return self._vectors.has_room

    def begin(self, client: int, start: StartingPoint, seed: int) -> None:
        """Hand a training to whichever process is free next."""
        place = self._vectors.place(start)
        rest = {one.name: getattr(start, one.name) for one in fields(start) if one.name not in _VECTORS}
        assert self._queue is not None
        self._queue.put(_Begun(client, seed, place, rest))
        self.running[client] = _Running(place, start)

    def oldest(self) -> int:
        """Return the client whose training began first of those under way."""
        return next(iter(self.running))

    def ended(self) -> list[int]:
        """Return the clients whose training has ended and was not taken."""
        self._hear(0.0)
        return [client for client, one in self.running.items() if one.ended is not None]

    def take(self, client: int) -> tuple[Trained, set[str], Callable[[], None]]:
        """Wait for a training; return what it came to, how it trained, and what gives its vectors' memory back.

        Raises what it raised, but for RangeError, which it came to.
        """
        running = self.running[client]
        while running.ended is None:
            self._hear(None)
        del self.running[client]

        def give_back() -> None:
            self._vectors.give_back(running.place)

        ended = running.ended
        if ended.failure is not None and not isinstance(ended.failure, RangeError):
            give_back()
            raise ended.failure
        parameters, buffers, scores = self._vectors.result_of(running.place)
        outcome = ended.failure or running.start.trained(
            parameters, buffers, scores if ended.has_scores else None, ended.steps
        )
        return Trained(client, outcome, ended.loss, ended.seconds), ended.kinds, give_back

    def _hear(self, seconds: float | None) -> None:
        """Read what processes have sent; None waits until one has sent something."""
        ready = wait([connection for _, connection in self._processes], seconds)
        for _, connection in self._processes:
            while connection in ready:
                try:
                    ended = connection.recv()
                except (EOFError, OSError) as error:
                    raise _ended_by_itself() from error
                self.running[ended.client].ended = ended
                if not connection.poll():
                    break

    def close(self) -> None:
        """Kill the processes: they hold nothing that is needed."""
        for process, _ in self._processes:
            process.kill()
        for process, connection in self._processes:
            process.join()
            connection.close()
        if self._queue is not None:
            self._queue.close()


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
    threading.Thread(target=_end_with_parent, daemon=True).start()
    while True:
        told.send(_trained_into(vectors, trainers, queue.get()))


def _end_with_parent() -> None:
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
        trained = train_client(trainer, begun.client, start, begun.seed)
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
