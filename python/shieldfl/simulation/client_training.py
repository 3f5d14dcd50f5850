"""Where a simulation's clients train: one after another in this process, or several at a time beside it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from shieldfl.simulation.training_processes import Trained, TrainingProcesses, train_client
from shieldfl.training.local_trainer import LocalTrainer
from shieldfl.training.local_update import StartingPoint

__all__ = ["ClientTraining"]


class ClientTraining:
    """Lets clients train and tells of each that has.

    With several processes, each is a copy of this one from when the first client began (fork): samples, model and
    settings are there without being copied or sent. Vectors travel through memory that all share. What training leaves
    on a model beside parameters and buffers stays in the copy; so it is for models that keep nothing else. Whichever
    process trains a client, it computes the same.

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
        self._processes = processes
        self._beside: TrainingProcesses | None = None
        self._waited = self._trained = 0.0

    def begin(self, client: int, start: StartingPoint, seed: int) -> None:
        """Let a client train. Raises what an earlier one's training, or this one's, raised, but for RangeError."""
        if self._processes == 1:
            self._tell(train_client(self._trainers[client], client, start, seed))
            return
        if self._beside is None:
            self._beside = TrainingProcesses(self._trainers, self._processes, start)
        if not self._beside.has_room:
            self._take(self._beside.oldest())
        self._beside.begin(client, start, seed)
        for one in self._beside.ended():
            self._take(one)

    def wait_for(self, client: int) -> None:
        """Return when it has been told of this client's training; at once where none is under way. Raises as begin."""
        if self._beside is not None and client in self._beside.running:
            self._take(client)

    def wait_for_all(self) -> None:
        """Return when no training is under way. Raises as begin."""
        for client in () if self._beside is None else list(self._beside.running):
            self._take(client)

    def take_saved(self) -> float:
        """Return the seconds that trainings since the last call would have taken here beside those that it waited."""
        saved, self._waited, self._trained = max(0.0, self._trained - self._waited), 0.0, 0.0
        return saved

    def close(self) -> None:
        """End the other processes, whatever they do."""
        if self._beside is not None:
            self._beside.close()
            self._beside = None

    def _take(self, client: int) -> None:
        assert self._beside is not None
        start = time.perf_counter()
        trained, kinds, give_back = self._beside.take(client)
        self._waited += time.perf_counter() - start
        self._trained += sum(trained.seconds.values())
        self._trainers[client].kinds.update(kinds)
        try:
            self._tell(trained)
        finally:
            give_back()
