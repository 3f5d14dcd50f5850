"""One round of a measured fleet, from the aggregator's side."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from shieldfl.fleet.fleet import Fleet
from shieldfl.fleet.measure.client_processes import ClientLetter, ClientProcesses
from shieldfl.fleet.measure.group_sum import GroupSum
from shieldfl.fleet.measure.paced_link import Link
from shieldfl.fleet.measure.plan_masks import PlanMasks
from shieldfl.fleet.simulate.encryption_plan import EncryptionPlan
from shieldfl.fleet.simulate.round_simulation import STAGES
from shieldfl.roles.key_authority import KeyAuthority

__all__ = ["ClientTimes", "GroupTimes", "MeasuredRound", "RoundTimes"]


@dataclass
class ClientTimes:
    """One client's round, in seconds from its start."""

    stages: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))
    processor_seconds: dict[str, float] = field(default_factory=dict)
    """By stage: what the client's process used."""
    until: float = 0.0
    """The end of the last stage."""
    downloaded: float | None = None
    dropped: bool = False
    bytes_up: int = 0
    bytes_down: int = 0


@dataclass
class GroupTimes:
    """One group's round, in seconds from its start."""

    complete: float = 0.0
    """When the last update was added."""
    opened: float = 0.0
    failed: bool = False


@dataclass(frozen=True)
class RoundTimes:
    """Everything that was measured in a round."""

    clients: list[ClientTimes]
    groups: list[GroupTimes]


class MeasuredRound:
    """Starts a round at all clients that are alive and listens until it is over.

    A client whose connection is lost has dropped out, and so has one that is not done ``patience_seconds`` after the
    start: its process is ended. Groups do not wait for each other.

    Parameters
    ----------
    numbers : the round that each group's clients encrypt for; no two totals of an authority may share one.
    """

    def __init__(
        self,
        fleet: Fleet,
        plan: EncryptionPlan,
        masks: PlanMasks,
        processes: ClientProcesses,
        authority: KeyAuthority,
        numbers: Sequence[int],
        patience_seconds: float,
    ) -> None:
        self._fleet = fleet
        self._groups = plan.groups.tolist()
        self._masks = masks
        self._processes = processes
        self._numbers = numbers
        skipped = {"score": not plan.scores, "select": not plan.selects}
        self._stages = [name for name in STAGES if not skipped.get(name, False)]
        threads = int(fleet.aggregator.cores)
        self._sums = [
            GroupSum(authority, number, union, order, threads)
            for number, union, order in zip(numbers, masks.unions, masks.orders, strict=True)
        ]
        self._patience = patience_seconds
        self._times = RoundTimes([ClientTimes() for _ in self._groups], [GroupTimes() for _ in numbers])
        self._arrived: dict[int, dict[str, bytes]] = {}
        self._updates: list[list[NDArray[np.float32]]] = [[] for _ in numbers]
        self._computing: set[int] = set()
        self._downloading: set[int] = set()
        self._senders: list[threading.Thread] = []
        self._start = 0.0

    def run(self) -> RoundTimes:
        """Do the round. Raises RangeError should a sum be opened wrongly."""
        for client in self._processes.alive:
            self._computing.add(client)
        for client, times in enumerate(self._times.clients):
            times.dropped = client not in self._computing
        self._start = time.monotonic()
        try:
            for client in sorted(self._computing):
                self._processes.send(client, "round", {"number": self._numbers[self._groups[client]]})
            for group in range(len(self._sums)):
                self._close_if_complete(group)
            while self._computing or self._downloading:
                self._wait()
        finally:
            # A sender whose client was ended finds its connection closed.
            for client in [*self._computing, *self._downloading]:
                self._processes.end(client)
            for sender in self._senders:
                sender.join()
        for opened, updates in zip(self._sums, self._updates, strict=True):
            if opened.clients >= self._fleet.training.min_clients:
                opened.check(updates)
        return self._times

    def _wait(self) -> None:
        found = self._processes.next_letter(self._start + self._patience)
        if found is None:
            for client in [*self._computing, *self._downloading]:
                self._processes.end(client)
                self._lose(client, self._now())
        elif found.letter is None:
            self._lose(found.client, found.at - self._start)
        elif found.client in self._computing or found.client in self._downloading:
            self._read(found, found.letter.kind)

    def _read(self, found: ClientLetter, kind: str) -> None:
        assert found.letter is not None
        client, letter = found.client, found.letter
        times = self._times.clients[client]
        if kind == "stage":
            self._end_stage(client, letter.facts["name"], letter.facts["end"] - self._start)
            times.processor_seconds[letter.facts["name"]] = letter.facts["processor_seconds"]
        elif kind == "update":
            self._end_stage(client, "upload", letter.at - self._start)
            times.bytes_up = sum(map(len, letter.parts.values()))
            self._arrived[client] = letter.parts
        elif kind == "plain":
            group = self._groups[client]
            self._sums[group].add(self._arrived.pop(client), self._masks.clients[client])
            self._updates[group].append(np.frombuffer(letter.parts["update"], dtype=np.float32))
            self._computing.discard(client)
            self._close_if_complete(group)
        elif kind == "downloaded":
            times.downloaded = letter.facts["at"] - self._start
            self._downloading.discard(client)

    def _end_stage(self, client: int, name: str, end: float) -> None:
        times = self._times.clients[client]
        times.stages[name] = end - times.until
        times.until = end

    def _lose(self, client: int, at: float) -> None:
        times = self._times.clients[client]
        if client in self._downloading:
            self._downloading.discard(client)
            times.downloaded = at
        if client not in self._computing:
            return
        self._computing.discard(client)
        self._arrived.pop(client, None)
        times.dropped = True
        # What it was doing when it was lost was its next stage.
        ended = sum(times.stages[name] > 0.0 for name in self._stages)
        if ended < len(self._stages):
            self._end_stage(client, self._stages[ended], max(at, times.until))
        self._close_if_complete(self._groups[client])

    def _close_if_complete(self, group: int) -> None:
        """Open a group's total once nobody computes any more, and send the model."""
        if any(self._groups[client] == group for client in self._computing):
            return
        times, aggregated = self._times.groups[group], self._sums[group]
        members = [client for client, own in enumerate(self._groups) if own == group]
        if aggregated.clients < self._fleet.training.min_clients:
            times.failed = True
            return
        total = aggregated.total()
        times.complete = self._now()
        model = aggregated.open_model(total)
        times.opened = self._now()
        for client in members:
            if client in self._processes.alive and not self._times.clients[client].dropped:
                self._times.clients[client].bytes_down = len(model)
                self._downloading.add(client)
                self._senders.append(threading.Thread(target=self._send_model, args=(client, model)))
                self._senders[-1].start()

    def _send_model(self, client: int, model: bytes) -> None:
        link = Link(
            float(self._fleet.download_bytes_per_second[client]), float(self._fleet.latency_seconds[client])
        )
        self._processes.send(client, "model", parts={"model": model}, link=link)

    def _now(self) -> float:
        return time.monotonic() - self._start
