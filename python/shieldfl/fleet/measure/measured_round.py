"""The clients of a measured fleet as a round's driver reaches them: over their links, with a clock beside it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from shieldfl.errors import RangeError
from shieldfl.fleet.fleet import Fleet
from shieldfl.fleet.measure.client_processes import ClientProcesses
from shieldfl.fleet.measure.paced_link import Letter, Link
from shieldfl.fleet.simulate.round_simulation import STAGES
from shieldfl.roles.message import Message

__all__ = ["PROCESSOR_STAGES", "ClientTimes", "MeasuredClients", "RoundTimes"]

PROCESSOR_STAGES = ("training", "steps")
"""What processor time is measured of: training with its scores, and the messages that a client makes."""


@dataclass
class ClientTimes:
    """One client's round, in seconds."""

    stages: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))
    processor_seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PROCESSOR_STAGES, 0.0))
    """What the client's process used."""
    until: float = 0.0
    """From the round's start to the end of what it did last."""
    doing: str = ""
    """The stage that it is in since then, if any."""
    download: float = 0.0
    dropped: bool = False
    bytes_up: int = 0
    bytes_down: int = 0


@dataclass
class RoundTimes:
    """Everything that was measured in a round, in seconds from its start."""

    clients: list[ClientTimes]
    barrier: float = 0.0
    """When the last message of the last phase had arrived, or a client was lost."""
    opening: float = 0.0
    """How long the key authority took in the last phase."""
    opened: float = 0.0
    """When the new model was there."""
    end: float = 0.0
    """When the last client had it."""
    failed: bool = True


class MeasuredClients:
    """Every client begins a round with the model and the round's keys; from there on its clock runs.

    A client whose connection is lost has dropped out, and so has one that is not done ``patience_seconds`` after the
    start: its process is ended.

    Parameters
    ----------
    opening_seconds : says how long the key authority has opened since it was asked last.
    """

    def __init__(
        self,
        processes: ClientProcesses,
        fleet: Fleet,
        patience_seconds: float,
        opening_seconds: Callable[[], float],
    ) -> None:
        self._processes = processes
        self._fleet = fleet
        self._patience = patience_seconds
        self._opening_seconds = opening_seconds
        self._start = 0.0
        self._sent: dict[int, float] = {}
        """By client: when its newest download began."""
        self.times = self.new_round()

    def enrolments(self, clients: Sequence[int]) -> Iterator[tuple[int, Message]]:
        """Yield what the clients, who were told of the method, have for the key authority; lost ones have nothing."""
        self._start = time.monotonic()
        for client, letter in self._letters(clients, "enrolment"):
            yield client, Message.from_bytes(letter.parts["message"])

    def new_round(self) -> RoundTimes:
        """Begin to measure; whoever is gone has dropped out."""
        alive = self._processes.alive
        self.times = RoundTimes(
            [ClientTimes(dropped=client not in alive) for client in range(self._fleet.size)]
        )
        return self.times

    def begin_round(
        self,
        clients: Sequence[int],
        round_number: int,
        participants: int,
        message_of: Callable[[int], Message],
    ) -> None:
        """Hand out the first messages, as fast as the machine can: clients have the model from the round before."""
        self.new_round()
        self._start = time.monotonic()
        for client in clients:
            self._processes.send(
                client,
                "begin",
                {"round": round_number, "participants": participants},
                parts={"message": message_of(client).to_bytes()},
            )
        for _ in self._letters(clients, "begun"):
            pass
        self._opening_seconds()
        self._start = time.monotonic()
        for client in clients:
            self.times.clients[client].doing = "train"
            self._processes.send(client, "train")

    def step(
        self, clients: Sequence[int], phase: str, message_of: Callable[[int], Message] | None
    ) -> Iterator[tuple[int, bytes | RangeError]]:
        """Let the clients make their messages; yield them as they arrive."""
        self._opening_seconds()
        for client in clients:
            if message_of is None:
                self._processes.send(client, "step", {"phase": phase})
            else:
                self._download(client, "step", message_of(client), phase=phase)
        for client, letter in self._letters(clients, "message", "refused"):
            times = self.times.clients[client]
            if letter.kind == "refused":
                times.dropped, times.doing = True, ""
                yield client, RangeError(letter.facts["why"])
                continue
            times.stages["upload"] += letter.at - self._start - times.until
            self._go_on(client, "", letter.at)
            self.times.barrier = max(self.times.barrier, times.until)
            times.bytes_up += len(letter.parts["message"])
            yield client, letter.parts["message"]

    def end_round(self, clients: Sequence[int], message_of: Callable[[int], Message]) -> None:
        """Let the clients download the new model."""
        times = self.times
        times.opened = times.end = time.monotonic() - self._start
        times.opening, times.failed = self._opening_seconds(), False
        for client in clients:
            self._download(client, "model", message_of(client))
        for client, letter in self._letters(clients, "received"):
            self._end_download(client, letter)
            times.end = max(times.end, letter.facts["at"] - self._start)

    def told(self, clients: Sequence[int]) -> dict[int, Letter]:
        """Ask clients what they have done; those that are gone say nothing."""
        for client in clients:
            self._processes.send(client, "tell")
        return dict(self._letters(clients, "told"))

    def _download(self, client: int, kind: str, message: Message, **facts: str) -> None:
        link = Link(
            float(self._fleet.download_bytes_per_second[client]), float(self._fleet.latency_seconds[client])
        )
        encoded = message.to_bytes()
        self.times.clients[client].bytes_down += len(encoded)
        self._sent[client] = time.monotonic()
        self._processes.post(client, kind, facts, parts={"message": encoded}, link=link)

    def _end_download(self, client: int, letter: Letter) -> None:
        times = self.times.clients[client]
        times.download += letter.facts["at"] - self._sent[client]

    def _letters(self, clients: Sequence[int], *kinds: str) -> Iterator[tuple[int, Letter]]:
        """Yield one letter of these kinds from each client; note what others say, and who is lost."""
        waiting = set(clients) & set(self._processes.alive)
        for client in set(clients) - waiting:
            self._lose(client, time.monotonic() - self._start)
        while waiting:
            found = self._processes.next_letter(self._start + self._patience)
            if found is None:
                for client in waiting:
                    self._processes.end(client)
                    self._lose(client, time.monotonic() - self._start)
                return
            client, letter = found.client, found.letter
            if letter is None:
                if client in waiting:
                    waiting.discard(client)
                    self._lose(client, found.at - self._start)
            elif letter.kind in kinds and client in waiting:
                waiting.discard(client)
                yield client, letter
            elif letter.kind == "received":
                self._end_download(client, letter)
                self._go_on(client, "encrypt", letter.facts["at"])
            elif letter.kind == "stage":
                self._end_stage(client, letter)

    def _end_stage(self, client: int, letter: Letter) -> None:
        times, facts = self.times.clients[client], letter.facts
        for name, seconds in facts["seconds"].items():
            times.stages[name] += seconds
        times.processor_seconds[facts["name"]] += facts["processor_seconds"]
        self._go_on(client, "encrypt" if facts["name"] == "training" else "upload", facts["end"])

    def _go_on(self, client: int, stage: str, at: float) -> None:
        times = self.times.clients[client]
        times.doing, times.until = stage, at - self._start

    def _lose(self, client: int, at: float) -> None:
        times = self.times.clients[client]
        if not self.times.failed:
            # It was lost on its way to a model that the others have.
            times.download += at + self._start - self._sent[client]
            return
        times.dropped = True
        if times.doing:
            times.stages[times.doing] += max(0.0, at - times.until)
            times.until = max(at, times.until)
        self.times.barrier = max(self.times.barrier, times.until)
