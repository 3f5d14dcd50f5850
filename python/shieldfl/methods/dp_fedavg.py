"""``dp-fedavg``: every client clips its whole update and noises it, so that a round hides who took part.

Source: McMahan, Ramage, Talwar, Zhang, "Learning differentially private recurrent language models" (ICLR 2018). There
a trusted server clips and noises; here each client does it itself and trusts nobody. Buffers stay with the client.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from shieldfl.methods.dp_fedavg_settings import DpFedAvgSettings
from shieldfl.methods.fedavg import FedAvgAggregator
from shieldfl.methods.federation import Federation
from shieldfl.methods.global_model import GlobalModel
from shieldfl.methods.method import FloatVector
from shieldfl.methods.noised_average import NoisedAverage, NoisedAverageClient
from shieldfl.privacy.accounting import PrivacyLedger, noise_multiplier_for
from shieldfl.privacy.events import Noise, PrivacyEvents, PrivacySpent
from shieldfl.privacy.mechanisms import clip_and_noise
from shieldfl.privacy.reading import PrivacyReading
from shieldfl.profiling.stages import StageClock
from shieldfl.roles.message import Message

__all__ = ["DpFedAvg"]


class ClientLevelAccount:
    """Who sent an update in which round, and how many of a round's were summed."""

    def __init__(self, noise_multiplier: float) -> None:
        self._noise_multiplier = noise_multiplier
        self._rounds_of: dict[int, list[int]] = {}
        self._summed: dict[int, int] = {}

    def sent(self, client: int, round_number: int) -> None:
        """Note that a client's update has left."""
        self._rounds_of.setdefault(client, []).append(round_number)

    def summed(self, round_number: int, updates: int) -> None:
        """Note that the round's mean is made, of so many."""
        self._summed[round_number] = updates

    def spent(self, delta: float) -> tuple[float, float]:
        """Return the largest epsilon of all clients against the aggregator, and against those who see models alone.

        NaN where no client has sent anything. A round that was given up showed the aggregator the updates that it got,
        each with its own noise.
        """
        if not self._rounds_of:
            return math.nan, math.nan
        largest = 0.0, 0.0
        for rounds in self._rounds_of.values():
            ledger = PrivacyLedger(self._noise_multiplier)
            for number in rounds:
                ledger.charge_round(self._summed.get(number, 1))
            spent = ledger.epsilon(delta)
            largest = max(largest[0], spent.of_noise), max(largest[1], spent.if_participants_true)
        return largest


class DpFedAvgClient(NoisedAverageClient):
    """Clips its update to C and adds N(0, (sigma C)^2) to every value."""

    def __init__(
        self,
        index: int,
        initial: GlobalModel,
        clock: StageClock,
        min_clients: int,
        events: PrivacyEvents,
        clip_norm: float,
        noise_multiplier: float,
        account: ClientLevelAccount,
        threads: int | None,
    ) -> None:
        super().__init__(index, initial, 1, clock, min_clients, events)
        self._clip_norm = clip_norm
        self._deviation = noise_multiplier * clip_norm
        self._noise = Noise(noise_multiplier, "client") if noise_multiplier > 0.0 else None
        self._account = account
        self._threads = threads

    def _protect(self, update: FloatVector) -> FloatVector:
        self._state(noise=self._noise)
        self._account.sent(self.index, self.round)
        sent, _, _ = clip_and_noise(update, self._clip_norm, self._deviation, threads=self._threads)
        return sent


class DpFedAvgAggregator(FedAvgAggregator):
    """Adds what it gets, and notes how many clients' noise a mean has."""

    def __init__(
        self,
        initial: GlobalModel,
        learning_rate: float,
        clients: int,
        clock: StageClock,
        account: ClientLevelAccount,
    ) -> None:
        super().__init__(initial, learning_rate, (1,) * clients, clock)
        self._account = account

    def close(self, phase: str) -> Message:
        """Return the new global model."""
        answer = super().close(phase)
        self._account.summed(self.round, len(self._seen))
        return answer


class DpFedAvg(NoisedAverage):
    """Averaging of clipped and noised updates; all clients count alike.

    Parameters
    ----------
    name, initial, clock, federation : as for :class:`NoisedAverage`.
    settings : of clipping and noise.

    Raises ParameterError for a target epsilon that no noise reaches.
    """

    privacy_reading = PrivacyReading(
        "client",
        "everybody else",
        "all updates of a client are zeroed out, K stays",
        "ε is against the aggregator, which sees every update with its own noise of σ; the figure with σ·√K is against "
        "who sees models alone, if the stated number K of participants was true",
    )
    aggregator_sees = "every client's update, clipped and noised"

    def __init__(
        self,
        name: str,
        initial: GlobalModel,
        clock: StageClock,
        settings: DpFedAvgSettings,
        federation: Federation,
    ) -> None:
        super().__init__(name, initial, clock, federation)
        self.noise_multiplier = settings.noise_multiplier
        if settings.target_epsilon is not None:
            self.noise_multiplier = noise_multiplier_for(
                settings.target_epsilon, settings.delta, federation.rounds
            )
        self._settings = settings
        self._account = ClientLevelAccount(self.noise_multiplier)
        if federation.weights is not None:
            self.notes.append(
                f"{name} weighs all clients alike: a weight would let one count for more than C"
            )

    def client(self, index: int) -> DpFedAvgClient:
        """Make a client."""
        return DpFedAvgClient(
            index,
            self.initial,
            self.clock,
            self.federation.min_clients,
            self.events,
            self._settings.clip_norm,
            self.noise_multiplier,
            self._account,
            self.federation.threads,
        )

    def aggregator(self) -> DpFedAvgAggregator:
        """Make the aggregator."""
        return DpFedAvgAggregator(
            self._shared,
            self.federation.server_learning_rate,
            self.federation.clients,
            self.clock,
            self._account,
        )

    def privacy_spent(self) -> PrivacySpent:
        """Return, of the client that spent most, epsilon against the aggregator, and against who sees models alone.

        The unit is a client: all its updates as they are, or zeros in their place, with the same participants. The
        first is with multiplier sigma; the second, with sigma * sqrt(K) for the K updates in a mean, takes the server's
        word for K.
        """
        of_noise, if_true = self._account.spent(self._settings.delta)
        return self.events.spent(of_noise, if_true, self._settings.delta, self._rounds)

    def settings(self) -> dict[str, Any]:
        """Return the settings, with what they come to."""
        return asdict(self._settings) | {"noise_multiplier": self.noise_multiplier, "weights": "uniform"}
