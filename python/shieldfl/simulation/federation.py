"""The embedded federation: all roles of one method in one process, messages as the bytes they would be."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shieldfl.errors import ConvergenceError
from shieldfl.methods.method import ClientSteps, Method, Phase
from shieldfl.roles.message import Message
from shieldfl.simulation.local_training import LocalTrainer, training_seed

__all__ = ["EmbeddedFederation", "RoundTraffic"]

_MOST_DRAWS = 10_000


class RoundTraffic:
    """What one round moved and measured, summed over its participants."""

    def __init__(self, participants: int) -> None:
        self.participants = participants
        self.bytes_up = 0
        self.bytes_down = 0
        self.loss = 0.0


class EmbeddedFederation:
    """Moves messages between the roles of one method.

    Parameters
    ----------
    method : set up for as many clients as there are trainers.
    trainers : one for each client.
    seed : makes sampling and training repeatable.
    """

    def __init__(self, method: Method, trainers: Sequence[LocalTrainer], seed: int) -> None:
        self.method = method
        self.clients: list[ClientSteps] = [method.client(index) for index in range(len(trainers))]
        self.model = method.initial_model()
        self._trainers = trainers
        self._aggregator = method.aggregator()
        self._authority = method.authority()
        self._seed = seed
        self._sampling = np.random.default_rng([seed, len(trainers)])

    def draw(self, sample_rate: float, min_clients: int) -> list[int]:
        """Draw each client with the same probability; draw again, and charge it, when too few came.

        Raises ConvergenceError after 10,000 draws: such a federation would never start a round.
        """
        for _ in range(_MOST_DRAWS):
            chosen = np.flatnonzero(self._sampling.random(len(self.clients)) < sample_rate)
            self.method.charge_draw(len(chosen))
            if len(chosen) >= min_clients:
                return [int(index) for index in chosen]
        raise ConvergenceError(
            f"{_MOST_DRAWS:,} draws gave no {min_clients} clients: raise sample_rate or lower min_clients"
        )

    def run_round(self, round_number: int, participants: Sequence[int]) -> RoundTraffic:
        """Run one round with these clients."""
        clock = self.method.clock
        traffic = RoundTraffic(len(participants))
        for index in participants:
            traffic.bytes_down += len(self.model.to_bytes())
            with clock.stage("merge"):
                start = self.clients[index].begin_round(round_number, len(participants), self.model)
            seed = training_seed(self._seed, round_number, index)
            update, loss = self._trainers[index].train(start, seed)
            traffic.loss += loss
            self.clients[index].finish_training(update)

        answer: Message | None = None
        for phase in self.method.phases:
            if answer is not None:
                traffic.bytes_down += len(answer.to_bytes()) * len(participants)
            answer = self._run_phase(phase, round_number, participants, answer, traffic)
        assert answer is not None
        self.model = answer
        for index in participants:
            with clock.stage("merge"):
                self.clients[index].end_round(answer)
        return traffic

    def _run_phase(
        self,
        phase: Phase,
        round_number: int,
        participants: Sequence[int],
        answer: Message | None,
        traffic: RoundTraffic,
    ) -> Message:
        clock = self.method.clock
        self._aggregator.begin_phase(phase.name, round_number, answer)
        for index in participants:
            message = self.clients[index].step(phase.name, answer)
            with clock.stage("upload"):
                wire = message.to_bytes()
                received = Message.from_bytes(wire)
            traffic.bytes_up += len(wire)
            self._aggregator.receive(phase.name, index, received)
        result = self._aggregator.close(phase.name)
        if phase.answered_by_authority:
            assert self._authority is not None
            result = self._authority.answer(phase.name, Message.from_bytes(result.to_bytes()))
        return result
