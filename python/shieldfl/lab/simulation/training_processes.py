"""Where a simulation's clients train: on which device, by how many threads, in this process or in copies of it."""

from __future__ import annotations

import gc
import mmap
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing import current_process, get_context, parent_process
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from shieldfl.errors import ParameterError, RangeError
from shieldfl.learning.local_trainer import LocalTrainer, Objective
from shieldfl.learning.local_update import FloatVector, LocalUpdate, StartingPoint
from shieldfl.learning.networks import has_known_modules


def training_device(name: str) -> torch.device:
    """Return ``cpu``, ``cuda:1``, ``mps`` or the like. Raises ParameterError for one that torch lacks."""
    cuda = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    known = ["cpu", *(["cuda", *cuda] if cuda else [])]
    known += ["mps"] if torch.backends.mps.is_available() else []
    if name not in known:
        raise ParameterError(f"torch has no device {name!r} on this machine: take {' or '.join(known)}")
    return torch.device(name)


_WORTH_SHARING = 50_000_000
"""Products of a batch's forward pass that are worth a second thread: with the backward pass, some 5 ms on one core.

torch's threads meet after every operation, of which a step has dozens, and wait for the slowest: on a machine that also
does other things, for one that does not run.
"""


@contextmanager
def torch_threads(threads: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        if threads is not None:
            torch.set_num_threads(before)


def threads_worth(
    model: nn.Module,
    sample_shape: tuple[int, ...],
    batch_size: int,
    most: int,
    dtype: torch.dtype = torch.float32,
) -> int:
    """Return how many threads a training step is worth: the most that there may be, or 1 for a small model.

    Decided by model and batch alone, not by what the machine is doing, so that a run can be repeated: torch's sums may
    depend on the number of threads.
    """
    products = batch_size * forward_products(model, sample_shape, dtype)
    return most if products >= _WORTH_SHARING else 1


def forward_products(
    model: nn.Module, sample_shape: tuple[int, ...], dtype: torch.dtype = torch.float32
) -> int:
    """Count the multiplications of one sample's way through the linear and convolutional layers of a model."""
    products, samples = 0, 2  # Not every model takes one alone.

    def count(module: nn.Module, _: object, output: torch.Tensor) -> None:
        nonlocal products
        weight = module.weight
        assert isinstance(weight, torch.Tensor)
        products += weight.numel() * (output.numel() // len(weight)) // samples

    layers = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
    hooks = [module.register_forward_hook(count) for module in model.modules() if isinstance(module, layers)]
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            model(torch.zeros(samples, *sample_shape, dtype=dtype))
    finally:
        for hook in hooks:
            hook.remove()
        for module, training in modes:
            module.training = training
    return products


def leaves_parameters_alone(model: nn.Module, objective: Objective) -> bool:
    return _is_known(model, objective) and not any(True for _ in model.buffers())


def leaves_vectors_alone(model: nn.Module, objective: Objective) -> bool:
    """Say whether training changes only parameters and float buffers: integers stay on the model."""
    return _is_known(model, objective) and all(one.is_floating_point() for one in model.buffers())


def _is_known(model: nn.Module, objective: Objective) -> bool:
    return objective == Objective() and has_known_modules(model)


_MOST_BYTES = 256 * 2**20
"""Of vectors that trainings under way may have: further clients wait until one has ended."""
_MOST_TRAININGS = 128
_NICENESS = 5
"""Below the first process: on as many cores as there are copies, what feeds them has to come first."""
_SENT_APART = np.zeros(0, np.float32)
"""Stands for a vector that travels through shared memory."""


def can_copy_process() -> bool:
    """Say whether this process can have copies that train.

    Where the system's fork is safe, in no copy itself, and without an accelerator: once torch has begun a thread for
    one, gradients are refused in copies.
    """
    if sys.platform != "linux" or current_process().daemon:
        return False
    return not getattr(torch, "accelerator", torch.cuda).is_available()


class Trained(NamedTuple):
    client: int
    outcome: LocalUpdate | RangeError
    """Its vectors may be written over when it has been told."""
    loss: float
    """Mean of the last epoch; NaN beside a RangeError."""
    seconds: dict[str, float]


def _train(trainer: LocalTrainer, client: int, start: StartingPoint, seed: int) -> Trained:
    outcome: LocalUpdate | RangeError
    try:
        outcome, loss = trainer.train(start, seed)
    except RangeError as error:
        outcome, loss = error, float("nan")
    return Trained(client, outcome, loss, trainer.clock.take())


class ClientTraining:
    """Lets clients train and tells of each that has, in this process or several at a time beside it.

    With several processes, each is a copy of this one from when the first client began (fork): samples, model
    and settings are there without being copied or sent. Vectors travel through memory that all share. What
    training leaves on a model beside parameters and buffers stays in the copy; so it is for models that keep
    nothing else. Whichever process trains a client, it computes the same.

    ``tell`` is called with what each client's training came to, while :meth:`begin` or a wait runs, in this
    thread. ``processes`` says how many train at a time; 1 for this process alone.
    """

    def __init__(
        self, trainers: Sequence[LocalTrainer], tell: Callable[[Trained], None], processes: int = 1
    ) -> None:
        self._trainers = trainers
        self._tell = tell
        self._count = processes
        self._pool: ProcessPoolExecutor | None = None
        self._vectors: list[list[FloatVector]] = []
        """Of each place the start's parameters and buffers, and the result's with scores."""
        self._free: list[int] = []
        self._running: dict[int, tuple[int, Future[tuple[Trained, set[str]]]]] = {}
        """By client, the oldest first: its place, and what it comes to."""
        self._waited = self._trained = 0.0

    def begin(self, client: int, start: StartingPoint, seed: int) -> None:
        """Let a client train. Raises what an earlier one's training, or this one's, raised, but for RangeError.

        Raises ParameterError, as waits do, for a process that cannot be begun, or that has ended by itself.
        """
        if self._count == 1:
            self._tell(_train(self._trainers[client], client, start, seed))
            return
        pool = self._pool or self._copied(start)
        for ended in [number for number, (_, future) in self._running.items() if future.done()]:
            self._take(ended)
        if not self._free:
            self._take(next(iter(self._running)))
        place = self._free.pop()
        self._vectors[place][0][:], self._vectors[place][1][:] = start.parameters, start.buffers
        rest = replace(start, parameters=_SENT_APART, buffers=_SENT_APART)
        try:
            # Copies, which the first call begins, inherit the mask: Ctrl-C is the first process's to handle.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            with warnings.catch_warnings():
                # Other threads hold no lock that training takes: the core's begin anew.
                warnings.filterwarnings("ignore", ".* is multi-threaded, use of fork", DeprecationWarning)
                future = pool.submit(_train_in_copy, client, seed, place, rest)
        except (OSError, BrokenProcessPool) as error:
            self.close()
            raise _ended_by_itself() from error
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        self._running[client] = place, future

    def _copied(self, first: StartingPoint) -> ProcessPoolExecutor:
        parameters, buffers = first.parameters.size, first.buffers.size
        width = 3 * parameters + 2 * buffers
        count = max(1, min(len(self._trainers), _MOST_BYTES // (4 * width + 1), _MOST_TRAININGS))
        # Of no file: nothing of it is left behind, and its pages are there when they are written to.
        memory = np.frombuffer(mmap.mmap(-1, max(1, 4 * count * width)), np.float32, count * width)
        ends = np.cumsum([parameters, buffers, parameters, buffers])
        self._vectors = [np.split(row, ends) for row in memory.reshape(count, width)]
        self._free = list(range(count))
        self._pool = ProcessPoolExecutor(
            min(self._count, count), get_context("fork"), _begin_copy, (self._trainers, self._vectors)
        )
        return self._pool

    def wait_for(self, client: int) -> None:
        if client in self._running:
            self._take(client)

    def wait_for_all(self) -> None:
        for client in list(self._running):
            self._take(client)

    def take_saved(self) -> float:
        """Return the seconds that trainings since the last call would have taken here beside those that it waited."""
        saved, self._waited, self._trained = max(0.0, self._trained - self._waited), 0.0, 0.0
        return saved

    def close(self) -> None:
        """Kill the processes, whatever they do: they hold nothing that is needed."""
        if self._pool is not None:
            processes = list((self._pool._processes or {}).values())
            for process in processes:
                process.kill()
            self._pool.shutdown()
            for process in processes:
                process.join()
        self._pool, self._vectors, self._running = None, [], {}

    def _take(self, client: int) -> None:
        began, (place, future) = time.perf_counter(), self._running.pop(client)
        try:
            trained, kinds = future.result()
        except BrokenProcessPool as error:
            raise _ended_by_itself() from error
        finally:
            self._free.append(place)
        self._waited += time.perf_counter() - began
        self._trained += sum(trained.seconds.values())
        self._trainers[client].kinds.update(kinds)
        if isinstance(update := trained.outcome, LocalUpdate):
            *_, parameters, buffers, scored = self._vectors[place]
            scores = None if update.scores is None else scored
            update = replace(update, parameters=parameters, buffers=buffers, scores=scores)
        self._tell(trained._replace(outcome=update))


def _ended_by_itself() -> ParameterError:
    return ParameterError(
        "a process that trains clients could not be begun, or has ended by itself: is there enough memory? Train in "
        "this one alone, by threads = 1 (--threads 1)"
    )


_IN_COPY: list[tuple[Sequence[LocalTrainer], list[list[FloatVector]]]] = []
"""In a copy alone: what it trains by, and the memory that it shares."""


def _begin_copy(trainers: Sequence[LocalTrainer], vectors: list[list[FloatVector]]) -> None:
    _IN_COPY.append((trainers, vectors))
    with suppress(OSError):  # where a sandbox forbids it
        os.nice(_NICENESS)
    gc.freeze()  # what was there before is never collected: looking at it would copy its pages
    threading.Thread(target=end_with_parent, daemon=True).start()


def end_with_parent() -> None:
    """Wait until whoever began this process is gone, and end it then."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _train_in_copy(client: int, seed: int, place: int, start: StartingPoint) -> tuple[Trained, set[str]]:
    ((trainers, vectors),) = _IN_COPY
    parameters, buffers, *results = vectors[place]
    start = replace(start, parameters=parameters, buffers=buffers)
    trained = _train(trainers[client], client, start, seed)
    if isinstance(update := trained.outcome, LocalUpdate):
        for result, vector in zip(results, (update.parameters, update.buffers, update.scores), strict=True):
            if vector is not None:
                result[:] = vector
        scores = None if update.scores is None else _SENT_APART
        update = replace(update, parameters=_SENT_APART, buffers=_SENT_APART, scores=scores)
    return trained._replace(outcome=update), trainers[client].kinds
