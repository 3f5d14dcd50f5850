"""DictPFL (NeurIPS 2025): small tables are trained, quiet positions are not sent, all that is sent is encrypted.

What is trained is decided before: the model is factorised by :mod:`shieldfl.methods.dictionary_layers`, and its flat
vector holds tables, biases and norms alone. Here P is the size of that vector.
"""

from __future__ import annotations

import secrets
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shieldfl.errors import ParameterError, PolicyError, WireFormatError
from shieldfl.masks import Mask
from shieldfl.methods.consistent_pruning import PruningHistory, check_secret
from shieldfl.methods.dict_pfl_client import DictPflClient
from shieldfl.methods.dict_pfl_settings import DictPflSettings
from shieldfl.methods.encrypted_positions import encrypted_positions
from shieldfl.methods.encryption_settings import EncryptionSettings
from shieldfl.methods.federation import Federation
from shieldfl.methods.global_model import GlobalModel
from shieldfl.methods.masked_average import UPDATE, MaskedAverage
from shieldfl.methods.masked_average_aggregator import MaskedAverageAggregator
from shieldfl.methods.masked_average_authority import MaskedAverageAuthority
from shieldfl.methods.method import Phase
from shieldfl.methods.mixed_total import MixedTotal
from shieldfl.methods.pruning_message import HISTORY, history_part
from shieldfl.methods.reports import Note
from shieldfl.methods.role_context import RoleContext
from shieldfl.privacy.events import OpenedSum
from shieldfl.privacy.reading import NO_NOISE
from shieldfl.roles.message import Message
from shieldfl.roles.round_keys import RoundKeys

__all__ = ["DictPfl"]

COUNT = Phase("count", answered_by_authority=True)
"""Says how many values the round encrypts. The aggregator must know it before the first batch, which must not decide
it, and must not know more; the clients' messages carry nothing. A tag beside it tells clients alone whether they have
the same active positions as the authority."""
_SECRET_BYTES = 32
_MOST_ROUNDS_AHEAD = 1000
"""So many rounds after the last one that was opened the authority answers: all of them but one can be given up."""


class DictPflAggregator(MaskedAverageAggregator):
    """Adds batches of as many values as the key authority says; which positions they are, nobody tells it."""

    phase_names = ("count", "update")

    def __init__(self, context: RoleContext) -> None:
        super().__init__(context, None, sends_rest=False)

    def _zone_from(self, round_number: int, answer: Message | None) -> Mask | None:
        """Take the number of values from the answer to the phase before."""
        return None if answer is None else Mask.full(answer.number("count"))

    def _hear(self, phase: str, client: int, message: Message) -> None:
        """The messages of the count phase say nothing."""

    def _conclude(self, phase: str) -> Message:
        return Message({"round": Message.from_number(self.round)})


class DictPflAuthority(MaskedAverageAuthority):
    """Opens the mean at the active positions, and sends the history that follows from it with the model."""

    def __init__(
        self,
        context: RoleContext,
        keys: RoundKeys,
        server_learning_rate: float,
        history: PruningHistory,
    ) -> None:
        super().__init__(context, keys, server_learning_rate, None, sends_rest=False)
        self._history = history
        self._newest_begun = 0

    def answer(self, phase: str, message: Message) -> Message:
        """Answer a total with the new global model, and the question for a round's count from the history.

        That question begins a round, and gives earlier ones up. Raises PolicyError for rounds that are over, were given
        up or are more than 1,000 after the last opened one, WireFormatError, RangeError; then nothing has changed.
        """
        if phase != COUNT.name:
            return super().answer(phase, message)
        with self.clock.stage("negotiate"):
            number = message.number("round")
            active = self._active_mask(number)
            count = active.count + self.context.initial.buffers.size
            self._newest_begun = max(self._newest_begun, number)
            return Message({"count": Message.from_number(count), "tag": self._history.tag(number, active)})

    def _active_mask(self, number: int) -> Mask:
        last = self._history.last_round
        if not last < number <= last + _MOST_ROUNDS_AHEAD:
            raise PolicyError(
                f"round {number} is none of the {_MOST_ROUNDS_AHEAD:,} after round {last}, which was opened last: "
                "number rounds one after the other"
            )
        return self._history.active_mask(number)

    def _decide(self, phase: str, message: Message) -> Message:
        if phase != UPDATE.name:
            raise ParameterError(f"there is no phase {phase!r}")
        number = message.number("round")
        if number < self._newest_begun:
            # Clients who have begun a later one may have sent what this total holds again.
            raise PolicyError(
                f"round {number} was given up when round {self._newest_begun} began: its total is not opened"
            )
        active = self._active_mask(number)
        count = active.count + self.context.initial.buffers.size
        claim = MixedTotal.read(message, "", self.context.parameters, count, number, has_rest=False)
        if claim.positions != Mask.full(count):
            raise WireFormatError("the total leaves out values that every client sends")
        values = claim.open_mean(self.keys.authority(number), max(self.context.weights))
        if count:
            self.record(OpenedSum(number))
        self.model = self.model.moved_finite(self._spread(values, active), self._learning_rate)
        self._history.observe(number, values[: active.count])
        self._tell_of_pruning()
        return model_message(self.model, self._history)

    def _tell_of_pruning(self) -> None:
        history, trained = self._history, self.context.initial.parameters.size
        text = (
            f"{history.pruned:,} of {trained:,} trained positions are pruned after round {history.last_round}; pruned "
            f"ones were tried again {history.tried:,} times, and {history.returned:,} times became active again"
        )
        self.note(Note(text, "pruning"))

    def _spread(self, values: NDArray[np.float64], active: Mask) -> NDArray[np.float64]:
        """Put the values back to their positions, float64 (N,); the others stay where they are."""
        mean = np.zeros(self.context.update_size)
        encrypted_positions(active, self.context.initial.buffers.size).scatter(values, mean)
        return mean


def model_message(model: GlobalModel, history: PruningHistory) -> Message:
    """Encode the model with the history: a client that was away for rounds needs nothing else."""
    return Message({**model.to_message(), HISTORY: history_part(history)})


class DictPfl(MaskedAverage):
    """DictPFL for one federation, under CKKS; arguments as for :class:`MaskedAverage`.

    ``federation.shared_secret``, at least 16 random bytes, goes to clients and key authority, never to the aggregator.
    Raises ParameterError for a shorter one.
    """

    privacy_reading = NO_NOISE
    aggregator_sees = "ciphertexts, their number, which follows from all clients' updates, and weights"

    phases = (COUNT, UPDATE)

    def __init__(
        self,
        name: str,
        initial: GlobalModel,
        settings: DictPflSettings,
        federation: Federation,
    ) -> None:
        secret = federation.shared_secret
        self._secret = secrets.token_bytes(_SECRET_BYTES) if secret is None else secret
        check_secret(self._secret)
        encryption = EncryptionSettings(value_bits=settings.value_bits, fraction_bits=settings.fraction_bits)
        super().__init__(name, initial, encryption, federation, None, sends_rest=False)
        self._pruning = settings

    def client(self, index: int) -> DictPflClient:
        """Make a client."""
        return DictPflClient(index, self.context, self._secret, self._pruning)

    def aggregator(self) -> DictPflAggregator:
        """Make the aggregator: it gets public keys alone."""
        return DictPflAggregator(self.context)

    def authority(self) -> DictPflAuthority:
        """Make the key authority's steps."""
        return DictPflAuthority(
            self.context, self.keys, self.federation.server_learning_rate, self._first_history()
        )

    def initial_model(self) -> Message:
        """Return the model that the first round starts from, with a history of no rounds."""
        return model_message(self.context.initial, self._first_history())

    def _first_history(self) -> PruningHistory:
        return PruningHistory(self.context.initial.parameters.size, self._secret, self._pruning)

    def settings(self) -> dict[str, Any]:
        """Return the settings, with what they come to; not the secret."""
        return super().settings() | asdict(self._pruning)
