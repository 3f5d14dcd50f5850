"""DictPFL (NeurIPS 2025): small tables are trained, quiet positions are not sent, all that is sent is encrypted.

What is trained is decided before: :mod:`shieldfl.methods.dict_pfl.dictionary_layers` factorises the model, and its flat
vector holds tables, biases and norms alone. Here P is the size of that vector.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from shieldfl.authority.message import Message
from shieldfl.encryption.registry import weighing_encryptions
from shieldfl.errors import ParameterError, WireFormatError
from shieldfl.masks import Mask
from shieldfl.methods.dict_pfl.client import DictPflClient, NoiseSharingDictPflClient
from shieldfl.methods.dict_pfl.consistent_pruning import PruningHistory, check_secret
from shieldfl.methods.dict_pfl.rule import DictPflRule
from shieldfl.methods.dict_pfl.settings import DictPflSettings
from shieldfl.methods.distributed_noise.average import OF_NOISY_SUMS, SumNoised
from shieldfl.methods.encryption_settings import EncryptionSettings
from shieldfl.methods.masked_average.method import UPDATE, MaskedAverageAggregator
from shieldfl.privacy.events import NO_NOISE, PrivacyReading
from shieldfl.rounds.global_model import GlobalModel
from shieldfl.rounds.named_method import NamedMethod
from shieldfl.rounds.plan import FederationPlan, Phase
from shieldfl.rounds.public_setup import RoleContext

if TYPE_CHECKING:
    from torch import nn


# Its tag is made with the shared secret, and a client looks whether it is its own.
COUNT = Phase("count", answered_by_authority=True, opens=None, signs_answer=False)
"""Says how many values the round encrypts. The aggregator must know it before the first batch, which must not decide
it, and must not know more; the clients' messages carry nothing. A tag beside it tells clients alone whether they have
the same active positions as the authority."""


class DictPflAggregator(MaskedAverageAggregator):
    """Adds batches of as many values as the key authority says; which positions they are, nobody tells it."""

    def __init__(self, context: RoleContext, weights: tuple[int, ...]) -> None:
        super().__init__(context, weights, None, sends_rest=False)

    def _zone_from(self, round_number: int, answer: Message | None) -> Mask | None:
        """Take the number of values from the answer to the phase before."""
        if answer is None:
            return None
        count = answer.number("count")
        if count > self.context.plan.update_size:
            raise WireFormatError("the answer states more values than an update has")
        return Mask.full(count)

    def _hear(self, phase: str, client: int, message: Message) -> None:
        """The messages of the count phase say nothing."""

    def _conclude(self, phase: str) -> Message:
        return Message({"round": Message.from_number(self.round)})


_MOST_PERCENT_THAT_FIT = 96.0
"""Of positions that may be pruned: rotated values of a 25th still fit the bits planned for all."""


class DictPfl(SumNoised):
    """DictPFL for one federation, under CKKS; arguments as for :class:`MaskedAverage`.

    A shared secret, at least 16 random bytes, goes to clients and key authority, never to the aggregator. Raises
    ParameterError where there is none, or a shorter one, and for noise on sums as :meth:`AskedNoise.planned` does.
    """

    names = (
        NamedMethod(
            "dict-pfl",
            "a small factor of each large weight, and whole biases, norms, embeddings and layers of your choice, "
            "encrypted",
            "fine-tuning large models",
            "DictPFL (NeurIPS 2025)",
            DictPflSettings(),
        ),
    )
    privacy_reading = NO_NOISE
    aggregator_sees = "ciphertexts, their number, which follows from all clients' updates, and weights"

    phases = (COUNT, UPDATE)

    needs_shared_secret = True
    schemes = weighing_encryptions()

    def __init__(self, name: str, settings: DictPflSettings, plan: FederationPlan) -> None:
        self.privacy_reading = self.reading_with(settings)
        encryption = EncryptionSettings(
            settings.value_bits,
            settings.fraction_bits,
            settings.buffer_range_bits,
            encryption=settings.encryption,
        )
        if settings.asked_noise is not None:
            settings, encryption = self._noise_sums(
                settings, plan, dimension=plan.parameters, delta=settings.delta
            )
            self.hides_all = True
            self.aggregator_sees = "ciphertexts and their number, which follows from opened sums"
        super().__init__(name, settings, plan, None, encryption=encryption, sends_rest=False)
        few_may_stay = settings.small_percent > (0.0 if settings.ranked == "sent" else _MOST_PERCENT_THAT_FIT)
        if self.noise is not None and few_may_stay:
            self.notes.append(
                "dict-pfl: pruning may leave so few positions that their values do not fit the bits planned for all, "
                "and are cut; this costs accuracy, and no epsilon"
            )

    @classmethod
    def reading_with(cls, settings: DictPflSettings) -> PrivacyReading:
        """Return how its figures are to be read under these settings."""
        if settings.asked_noise is None:
            return cls.privacy_reading
        # What clients hold back would tell, by and by, in which rounds they were.
        return replace(OF_NOISY_SUMS, if_participation_hidden=None)

    @classmethod
    def adapted(cls, model: nn.Module, settings: DictPflSettings) -> nn.Module:
        """Return the factorised model. Its flat vector is far shorter; ``merged`` makes a plain model of the result.

        Raises as ``factorise`` does: ParameterError, and RangeError if a weight that is replaced is not finite.
        """
        from shieldfl.methods.dict_pfl.dictionary_layers import factorise

        return factorise(model, settings.rank, settings.train_fully)

    def _client(
        self,
        context: RoleContext,
        index: int,
        weight: int,
        initial: GlobalModel,
        shared_secret: bytes | None,
    ) -> DictPflClient:
        secret = _secret_of(shared_secret)
        if self.noise is not None:
            return NoiseSharingDictPflClient(index, initial, context, secret, self._settings, self.noise)
        return DictPflClient(index, weight, initial, context, secret, self._settings)

    def _aggregator(
        self, context: RoleContext, weights: tuple[int, ...], initial: GlobalModel | None
    ) -> DictPflAggregator:
        return DictPflAggregator(context, weights)

    def _opening_rule(
        self, initial: GlobalModel, context: RoleContext, shared_secret: bytes | None
    ) -> DictPflRule:
        history = PruningHistory(self.plan.parameters, _secret_of(shared_secret), self._settings)
        return DictPflRule(context, initial, history, self.noise)


def _secret_of(shared_secret: bytes | None) -> bytes:
    if shared_secret is None:
        raise ParameterError(
            "clients and key authority of dict-pfl share a secret: draw one, and give it to them"
        )
    check_secret(shared_secret)
    return shared_secret
