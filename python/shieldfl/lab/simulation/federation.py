"""The embedded federation: one method's roles, messages as the bytes they would be, and where clients train.

Clients train one after another in this process, or beside each other in copies of it.
"""

from __future__ import annotations

import gc
import json
import mmap
import os
import signal
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from multiprocessing import current_process, get_context, parent_process
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from shieldfl.array_view import FloatVector, address_of
from shieldfl.authority.message import Message
from shieldfl.errors import ConvergenceError, ParameterError, RangeError
from shieldfl.learning.local_trainer import LocalTrainer, Objective, training_seed
from shieldfl.learning.local_update import LocalUpdate, StartingPoint
from shieldfl.learning.networks import has_known_modules
from shieldfl.learning.scores import evaluation_mode
from shieldfl.models.model_layout import ParameterLayout
from shieldfl.rounds.driver import RoundDriver, RoundTraffic
from shieldfl.rounds.method import EmbeddedRoles, Method
from shieldfl.rounds.opening_rule import OpenedTogether
from shieldfl.rounds.plan import OPENED, GlobalModel
from shieldfl.rounds.reports import Account

__all__ = ["EmbeddedFederation"]


def training_device(name: str) -> torch.device:
    """Return ``cpu``, ``cuda:1``, ``mps`` or the like. Raises ParameterError for one that torch lacks."""
    cuda = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    known = ["cpu", *(["cuda", *cuda] if cuda else [])]
    known += ["mps"] if torch.backends.mps.is_available() else []
    if name not in known:
        raise ParameterError(f"torch has no device {name!r} on this machine: take {' or '.join(known)}")
    return torch.device(name)


_WORTH_SHARING = 50_000_000
"""Multiplications in a batch's forward pass from which a second thread is worth it.

With the backward pass, they take some 5 ms on one core.

torch's threads meet after every operation, dozens of times in a step, and wait for the slowest. On a busy
machine that may be a thread which is not running.
"""


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def threads_worth(model: nn.Module, features: torch.Tensor, batch_size: int, most: int) -> int:
    """Return how many threads a training step is worth: the most that there may be, or 1 for a small model.

    Decided by model, shape of a sample and batch alone, not by what the machine is doing, so that a run can
    be repeated: torch's sums may depend on the number of threads.
    """
    products = batch_size * forward_products(model, features)
    return most if products >= _WORTH_SHARING else 1


def forward_products(model: nn.Module, features: torch.Tensor) -> int:
    """Count the multiplications of one sample's way through a model's linear and convolutional layers."""
    products, pair = 0, features[[0, 0]]  # Not every model takes one alone.

    def count(module: nn.Module, _: object, output: torch.Tensor) -> None:
        nonlocal products
        weight = module.weight
        assert isinstance(weight, torch.Tensor)
        products += weight.numel() * (output.numel() // len(weight)) // len(pair)

    layers = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
    hooks = [module.register_forward_hook(count) for module in model.modules() if isinstance(module, layers)]
    try:
        with evaluation_mode(model), torch.no_grad():
            model(pair)
    finally:
        for hook in hooks:
            hook.remove()
    return products


def leaves_alone(model: nn.Module, objective: Objective) -> tuple[bool, bool]:
    """Return whether training changes parameters and float buffers alone, and whether parameters alone."""
    known, buffers = objective == Objective() and has_known_modules(model), list(model.buffers())
    return known and all(one.is_floating_point() for one in buffers), known and not buffers


_MOST_BYTES = 256 * 2**20
"""Most bytes of the vectors of running trainings; further clients wait until one has ended."""
_MOST_TRAININGS = 128
_NICENESS = 5
"""Niceness added to copies, so that the first process, which feeds them, gets its core first."""
_SENT_APART = np.zeros(0, np.float32)
"""Placeholder of a vector that travels through shared memory."""


def can_copy_process() -> bool:
    """Return whether this process can have copies that train.

    It can if the system's fork is safe, it is no copy itself, and there is no accelerator: once torch has
    begun a thread for one, gradients are refused in copies.
    """
    if sys.platform != "linux" or current_process().daemon:
        return False
    return not getattr(torch, "accelerator", torch.cuda).is_available()


class Trained(NamedTuple):
    client: int
    outcome: LocalUpdate | RangeError
    """Trained update, or why there is none; its vectors may be overwritten after ``tell`` was called."""
    loss: float
    """Mean loss of the last epoch; NaN with a RangeError."""
    seconds: dict[str, float]


def _train(trainer: LocalTrainer, client: int, start: StartingPoint, seed: int) -> Trained:
    outcome: LocalUpdate | RangeError
    try:
        outcome, loss = trainer.train(start, seed)
    except RangeError as error:
        outcome, loss = error, float("nan")
    return Trained(client, outcome, loss, trainer.clock.take())


class ClientTraining:
    """Trains clients, in this process or several at a time beside it, and tells of each result.

    Each of several processes is a copy of this one from when the first client began (fork): samples, model
    and settings are there without being copied or sent. Vectors travel through memory that all share.
    Anything that training leaves on a model besides parameters and buffers stays in the copy; so several
    processes are for models that keep nothing else. Every process computes the same for a client.

    ``tell`` is called with each client's result, while :meth:`begin` or a wait runs, in this thread.
    ``processes`` says how many train at a time; 1 for this process alone.
    """

    def __init__(
        self, trainers: Sequence[LocalTrainer], tell: Callable[[Trained], None], processes: int
    ) -> None:
        self._trainers = trainers
        self._tell = tell
        self.processes = processes
        self._pool: ProcessPoolExecutor | None = None
        self._vectors: list[list[FloatVector]] = []
        """For each place, the start's parameters and buffers, and the result's, with scores.

        The last place has the start that several clients have, and no result.
        """
        self._common: StartingPoint | None = None
        """The start in the last place."""
        self._free: list[int] = []
        self._running: dict[int, tuple[int, Future[tuple[Trained, set[str]]]]] = {}
        """Place and future result of each training under way, by client number, the oldest first."""
        self._waited = self._trained = 0.0

    def begin(self, client: int, start: StartingPoint, seed: int) -> None:
        """Let a client train. Raises what an earlier training, or this one, raised, but for RangeError.

        Raises ParameterError, as waits do, for a process that cannot be begun, or that has ended by itself.
        """
        if self.processes == 1:
            self._tell(_train(self._trainers[client], client, start, seed))
            return
        pool = self._pool or self._copied(start)
        for ended in [number for number, (_, future) in self._running.items() if future.done()]:
            self._take(ended)
        if not self._free:
            self._take(next(iter(self._running)))
        place = self._free.pop()
        start_place = self._placed(start, place)
        rest = replace(start, parameters=_SENT_APART, buffers=_SENT_APART)
        try:
            # Copies, which the first call begins, inherit the mask: Ctrl-C is the first process's to handle.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            with warnings.catch_warnings():
                # Other threads hold no lock that training takes: the core's begin anew.
                warnings.filterwarnings("ignore", ".* is multi-threaded, use of fork", DeprecationWarning)
                future = pool.submit(_train_in_copy, client, seed, start_place, place, rest)
        except (OSError, BrokenProcessPool) as error:
            self.close()
            raise _ended_by_itself() from error
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        self._running[client] = place, future

    def _placed(self, start: StartingPoint, place: int) -> int:
        """Write a start where copies read it, once if it is that of many clients; return the place."""
        held = self._common
        if held is None or not (
            _are_the_same(start.parameters, held.parameters) and _are_the_same(start.buffers, held.buffers)
        ):
            if self._running:
                self._vectors[place][0][:], self._vectors[place][1][:] = start.parameters, start.buffers
                return place
            self._common = start
            self._vectors[-1][0][:], self._vectors[-1][1][:] = start.parameters, start.buffers
        return len(self._vectors) - 1

    def _copied(self, first: StartingPoint) -> ProcessPoolExecutor:
        parameters, buffers = first.parameters.size, first.buffers.size
        width = 3 * parameters + 2 * buffers
        count = max(1, min(len(self._trainers), _MOST_BYTES // (4 * width + 1), _MOST_TRAININGS))
        # Not in a file: nothing is left behind, and pages take memory only once they are written to.
        rows = count + 1
        memory = np.frombuffer(mmap.mmap(-1, max(1, 4 * rows * width)), np.float32, rows * width)
        ends = np.cumsum([parameters, buffers, parameters, buffers])
        self._vectors = [np.split(row, ends) for row in memory.reshape(rows, width)]
        self._free = list(range(count))
        self._pool = ProcessPoolExecutor(
            min(self.processes, count), get_context("fork"), _begin_copy, (self._trainers, self._vectors)
        )
        return self._pool

    def wait_for(self, client: int) -> None:
        if client in self._running:
            self._take(client)

    def wait_for_all(self) -> None:
        for client in list(self._running):
            self._take(client)

    def take_saved(self) -> float:
        """Return the seconds that trainings since the last call would take here beyond those it waited."""
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
        self._pool, self._vectors, self._running, self._common = None, [], {}, None

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


def _are_the_same(one: FloatVector, other: FloatVector) -> bool:
    """Say whether two vectors are the same read-only ones, as models of rounds are, or are both empty."""
    if one.size != other.size or not one.size:
        return one.size == other.size
    unchanging = not (one.flags.writeable or other.flags.writeable) and one.strides == other.strides
    return unchanging and address_of(one) == address_of(other)


def _ended_by_itself() -> ParameterError:
    return ParameterError(
        "a process that trains clients could not be begun, or has ended by itself: is there enough memory? "
        "Train in this one alone, by threads = 1 (--threads 1)"
    )


_IN_COPY: list[tuple[Sequence[LocalTrainer], list[list[FloatVector]]]] = []
"""Trainers and shared memory of a copy; empty in the first process."""


def _begin_copy(trainers: Sequence[LocalTrainer], vectors: list[list[FloatVector]]) -> None:
    _IN_COPY.append((trainers, vectors))
    with suppress(OSError):  # where a sandbox forbids it
        os.nice(_NICENESS)
    gc.freeze()  # what was there before is never collected: looking at it would copy its pages
    threading.Thread(target=end_with_parent, daemon=True).start()


def end_with_parent() -> None:
    """Wait until the process that began this one is gone, and end this one then."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _train_in_copy(
    client: int, seed: int, start_place: int, place: int, start: StartingPoint
) -> tuple[Trained, set[str]]:
    ((trainers, vectors),) = _IN_COPY
    parameters, buffers, *_ = vectors[start_place]
    _, _, *results = vectors[place]
    start = replace(start, parameters=parameters, buffers=buffers)
    trained = _train(trainers[client], client, start, seed)
    if isinstance(update := trained.outcome, LocalUpdate):
        for result, vector in zip(results, (update.parameters, update.buffers, update.scores), strict=True):
            if vector is not None:
                result[:] = vector
        scores = None if update.scores is None else _SENT_APART
        update = replace(update, parameters=_SENT_APART, buffers=_SENT_APART, scores=scores)
    return trained._replace(outcome=update), trainers[client].kinds


def _timed(step: Callable[[], Message]) -> tuple[Message, float]:
    begun = time.perf_counter()
    return step(), time.perf_counter() - begun


_MOST_DRAWS = 10_000


class EmbeddedFederation(EmbeddedRoles):
    """Moves messages between the roles of one method, each as the bytes that it would be.

    Clients' steps run in this process while others train: as many at a time as train, if they encrypt, else
    one after another. Totals that all clients open alike are opened once; these seconds count for each
    client. After a round the material of its messages is freed, so that memory is needed for the clients of
    one round.

    Parameters
    ----------
    method, initial, weights, threads, shared_secret : as for :class:`EmbeddedRoles`.
    trainers : one for each of the plan's clients, in ``processes`` beside this one, see
        :class:`ClientTraining`.
    seed : makes sampling and training repeatable.
    layout : the model's layout, so that a refused update names the tensor; None if it is not known.
    account : takes the roles' reports; None for a new one of the method's.
    kept : what :meth:`parts` returned in another process, and the key; resumes with the round that came next
        there.
    clients_keep_nothing : whether what a client sends depends on the models and its data alone, and not on
        which rounds it was in; then the account is told how many clients are drawn from.
    """

    def __init__(
        self,
        method: Method,
        initial: GlobalModel,
        trainers: Sequence[LocalTrainer],
        seed: int,
        *,
        weights: Sequence[int] | None = None,
        threads: int | None = None,
        shared_secret: bytes | None = None,
        layout: ParameterLayout | None = None,
        account: Account | None = None,
        kept: tuple[Message, bytes] | None = None,
        clients_keep_nothing: bool = False,
        processes: int = 1,
    ) -> None:
        together = OpenedTogether(method.plan.clients)
        super().__init__(
            method,
            initial,
            weights,
            threads=threads,
            # Where several clients encrypt at a time, each has a core.
            client_threads=1 if processes > 1 and method.purposes else None,
            shared_secret=shared_secret,
            kept=kept,
            together=together,
        )
        self.account = method.account() if account is None else account
        self._shared = together
        self._training = ClientTraining(trainers, self._trained, processes)
        self._seed = seed
        self._layout = layout
        self._losses: dict[int, float | None] = {}
        """Loss of each of the round's clients, by client number in their order; None if there is none."""
        self._saved_seconds = 0.0
        """Seconds of the round that :attr:`RoundTraffic.saved_seconds` describes."""
        self._refused: dict[int, RangeError] = {}
        self._driver = RoundDriver(method, self.authority, self.aggregator, self, self.account)
        self._drawn_from = len(trainers) if clients_keep_nothing else None
        # One of the clients that went through the last round that was not given up.
        self._newest = 0
        # Dropouts of their own, so that they do not change who is drawn.
        seeds = {"sampling": [seed, len(trainers)], "dropouts": [seed, len(trainers), 1]}
        self._draws = {name: np.random.default_rng(one) for name, one in seeds.items()}
        if kept is not None:
            parts, _ = kept
            self._newest = parts.number("newest")
            for name, generator in self._draws.items():
                generator.bit_generator.state = json.loads(bytes(parts[name]))

    def parts(self, key: bytes) -> Message:
        # Numbers of 128 bits, which only JSON writes as they are.
        draws = {name: json.dumps(one.bit_generator.state).encode() for name, one in self._draws.items()}
        return Message({**super().parts(key), "newest": Message.from_number(self._newest), **draws})

    @property
    def model(self) -> Message:
        """The newest global model, as a message brings it, or as clients that open sums have it."""
        return self.clients[self._newest].global_model(self._driver.model)

    def draw(self, sample_rate: float, min_clients: int) -> list[int]:
        """Draw each client with the same probability.

        A draw of too few is charged and repeated; a draw of too many is repeated.

        A draw of too many is not charged, since nothing is sent: its number of clients follows from no data,
        and all sets of one number stay equally likely. A charge of so many would stand for more noise than a
        round has.

        Raises ConvergenceError after 10,000 draws: such a federation would never start a round.
        """
        most = self.method.plan.most_participants
        for _ in range(_MOST_DRAWS):
            chosen = np.flatnonzero(self._draws["sampling"].random(len(self.clients)) < sample_rate)
            if len(chosen) > most:
                continue
            self.account.charge_draw(len(chosen), self._drawn_from)
            if len(chosen) >= min_clients:
                return [int(index) for index in chosen]
        bounded = self.method.plan.max_clients is not None
        raise ConvergenceError(
            f"{_MOST_DRAWS:,} draws gave no {min_clients} clients{f', and no more than {most},' * bounded}: "
            f"raise sample_rate or lower min_clients{', or raise max_clients' * bounded}"
        )

    def draw_leavers(self, participants: Sequence[int], dropout: float, round_number: int) -> dict[int, str]:
        """Draw who leaves the round, and before which phase: all clients and phases are equally likely.

        In every method the same clients leave.
        """
        phases = [phase.name for phase in self.method.round_phases(self._driver.model, round_number)]
        draws = self._draws["dropouts"].random((len(participants), 2))
        return {
            index: phases[int(moment * len(phases))]
            for index, (chance, moment) in zip(participants, draws, strict=True)
            if chance < dropout
        }

    def close(self) -> None:
        self._training.close()

    def run_round(
        self,
        round_number: int,
        participants: Sequence[int],
        min_clients: int = 1,
        leaving: Mapping[int, str] | None = None,
    ) -> RoundTraffic:
        """Run one round as :meth:`RoundDriver.run_round`, and take what the roles report of it."""
        try:
            traffic = self._driver.run_round(round_number, participants, min_clients, leaving)
            self._training.wait_for_all()
            traffic.losses = [loss for loss in self._losses.values() if loss is not None]
            traffic.saved_seconds = max(0.0, self._saved_seconds) + self._training.take_saved()
            self._newest = next(iter(traffic.finished), self._newest)
            return traffic
        except BaseException:
            self.close()  # clients that still train do so for nothing
            raise
        finally:
            # Also what left clients in a round that was stopped.
            self.report_to(self.account)
            for index in participants:
                self.clients[index].forget_round()

    def begin_round(
        self,
        clients: Sequence[int],
        round_number: int,
        participants: int,
        message_of: Callable[[int], Message],
    ) -> None:
        self._losses, self._refused, self._saved_seconds = dict.fromkeys(clients), {}, 0.0
        self._training.take_saved()  # of a round that was stopped
        for index in clients:
            model = message_of(index)
            with self.account.clock.stage("merge"):
                start = self.clients[index].begin_round(round_number, participants, model)
            self._charge("merge")
            self._training.begin(index, start, training_seed(self._seed, round_number, index))

    def _trained(self, trained: Trained) -> None:
        self.account.clock.add(trained.seconds)
        try:
            if isinstance(trained.outcome, RangeError):
                raise trained.outcome
            self.clients[trained.client].finish_training(trained.outcome)
            self._losses[trained.client] = trained.loss
        except RangeError as error:
            self._refused[trained.client] = error

    def step(
        self, clients: Sequence[int], phase: str, message_of: Callable[[int], Message] | None
    ) -> Iterator[tuple[int, bytes | RangeError]]:
        for index, make in self._steps(clients, phase, message_of):
            if index in self._refused:
                yield index, self._refused.pop(index)
                continue
            found: bytes | RangeError
            try:
                with nullcontext() if self._layout is None else self._layout.naming_tensors():
                    message = make()
                self._charge("open")
                with self.account.clock.stage("upload"):
                    found = message.to_bytes()
            except RangeError as error:
                found = error
            yield index, found

    def _steps(
        self, clients: Sequence[int], phase: str, message_of: Callable[[int], Message] | None
    ) -> Iterator[tuple[int, Callable[[], Message]]]:
        """Yield what gives each client's message: several encrypt at a time, where several train so."""
        at_once = self._training.processes if self.method.purposes else 1
        if phase == OPENED:  # what clients open together they open one after another
            at_once = 1
        made: deque[tuple[int, Callable[[], Message]]] = deque()
        with ThreadPoolExecutor(at_once) as pool:
            for index in clients:
                self._training.wait_for(index)
                answer = None if message_of is None else message_of(index)
                step = partial(self.clients[index].step, phase, answer)
                if at_once > 1 and index not in self._refused:
                    step = partial(self._waited_for, pool.submit(_timed, step))
                made.append((index, step))
                if len(made) > at_once or at_once == 1:
                    yield made.popleft()
            yield from made

    def _waited_for(self, timed: Future[tuple[Message, float]]) -> Message:
        begun = time.perf_counter()
        message, seconds = timed.result()
        self._saved_seconds += seconds - (time.perf_counter() - begun)
        return message

    def end_round(self, clients: Sequence[int], message_of: Callable[[int], Message]) -> None:
        stage = "open" if self.method.clients_open else "merge"
        for index in clients:
            with self.account.clock.stage(stage):
                self.clients[index].end_round(message_of(index))
            self._charge(stage)

    def _charge(self, stage: str) -> None:
        """Count the seconds that a client's own machine would take for what another client opened here."""
        saved = self._shared.take_saved()
        self.account.clock.add({stage: saved})
        self._saved_seconds += saved
