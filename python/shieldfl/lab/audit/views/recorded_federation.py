"""A federation of which every message that a role gets, and every model that a role comes to, is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from shieldfl.authority.authority_secrets import Contents
from shieldfl.authority.key_authority import KeyPairAuthority
from shieldfl.authority.message import Message
from shieldfl.encryption.parameters import SchemeParameters
from shieldfl.encryption.registry import scheme_of
from shieldfl.lab.simulation.federation import EmbeddedFederation
from shieldfl.learning.local_trainer import LocalTrainer
from shieldfl.learning.local_update import FloatVector, LocalUpdate
from shieldfl.methods.masked_average.method import MaskedAverageClient
from shieldfl.rounds.authorities import AuthoritySteps
from shieldfl.rounds.collecting_aggregator import CollectingAggregator
from shieldfl.rounds.driver import RoundTraffic
from shieldfl.rounds.global_model import GlobalModel
from shieldfl.rounds.method import Method
from shieldfl.rounds.public_setup import PublicSetup
from shieldfl.rounds.reports import Disclosure
from shieldfl.rounds.training_client import TrainingClient

_kept: dict[tuple[str, int, tuple[float, float]], Contents] = {}
"""By parameters and policy: a pair as it was made, before it opened anything."""


def kept_pair(
    parameters: SchemeParameters[Any, Any],
    min_clients: int,
    *,
    threads: int | None,
    weight_bounds: tuple[float, float],
) -> KeyPairAuthority[Any]:
    """Return a key authority as :class:`KeyPairAuthority` makes it; where pairs last, with that of an earlier one.

    Pairs of single rounds are made anew. What was opened by an earlier authority this one does not know: each is of a
    federation of its own, with its own session and signing key. It is for the audit alone: no command, and no other
    part of the package, has two authorities of one key. Raises as :class:`KeyPairAuthority` does.
    """
    how: Any = {"threads": threads, "weight_bounds": weight_bounds}
    if not scheme_of(parameters).keys_last:
        return KeyPairAuthority(parameters, min_clients, **how)
    which = repr(parameters), min_clients, weight_bounds
    if which not in _kept:
        _kept[which] = KeyPairAuthority(parameters, min_clients, **how).contents()
    contents = replace(_kept[which], secret=bytearray(_kept[which].secret), opened={})
    return KeyPairAuthority.of_contents(contents, threads=threads)


AGGREGATOR = "aggregator"
AUTHORITY = "key authority"

_STEPS = (
    *("enrolled", "begin_round", "finish_training", "step", "end_round"),
    *("begin_phase", "receive", "open", "keep"),
    *("enrol", "grant", "answer", "sign_answer"),
)
"""Of clients, aggregator and key authority: those that bring them messages, or what training gave."""

Role = TypeVar("Role")


def client_name(index: int) -> str:
    """Return by what name a client is recorded."""
    return f"client {index}"


@dataclass(frozen=True)
class Delivery:
    """One message that a role got, as its bytes."""

    receiver: str
    step: str
    """Which of the role's steps took it, such as ``receive``."""
    details: tuple[int | str, ...]
    """What came with it outside of the bytes: phase, client, round, in the step's order."""
    round: int
    """In which it came; 0 for what came before the first."""
    data: bytes

    @property
    def message(self) -> Message:
        """The message, read."""
        return Message.from_bytes(self.data)


@dataclass
class Record:
    """What the roles of one federation got, and what they could tell from it."""

    deliveries: list[Delivery] = field(default_factory=list)
    models: dict[tuple[str, int], FloatVector] = field(default_factory=dict)
    """By client or aggregator, and round: the global parameters (P,) that the role has when that round begins; no entry
    for a role that never has them. The model behind the last round stands under the round that would come next."""
    authority_has: set[int] = field(default_factory=set)
    """Rounds that begin with models of the key authority: of every client the one that it is sent."""
    own_updates: dict[tuple[int, int], LocalUpdate] = field(default_factory=dict)
    """By client and round: what its training gave, which that client alone has."""
    own_shares: dict[tuple[int, int], NDArray[np.float64]] = field(default_factory=dict)
    """By client and round: what its part of a sum with noise comes to in the mean (P,), where it adds a share of that
    to what it encrypts: clipped and with the share, which that client alone has."""
    disclosures: dict[tuple[int, int], Disclosure] = field(default_factory=dict)
    """By client and round: what the client says has left it."""
    deviations: dict[tuple[int, int], float] = field(default_factory=dict)
    """By client and round: of the noise on what it discloses as noised, as settings that everybody knows tell it."""
    participants: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """By round: clients that went through the whole of it."""
    round: int = 0
    """That runs."""


class RecordedFederation(EmbeddedFederation):
    """An embedded federation whose roles are all recorded, from enrolment on; it does what an embedded one does."""

    def __init__(
        self,
        method: Method,
        initial: GlobalModel,
        trainers: Sequence[LocalTrainer],
        seed: int,
        **options: Any,
    ) -> None:
        self.record = Record()
        self._known_of_training = [(trainer.settings, trainer.samples) for trainer in trainers]
        super().__init__(method, initial, trainers, seed, **options)
        self._keep_models(1)

    def _recorded(self, role: Role, name: str, client: int | None = None) -> Role:
        """Keep what comes with each step of a role."""
        for step in _STEPS:
            if hasattr(role, step):
                setattr(role, step, partial(self._kept, getattr(role, step), name, step, client))
        return role

    def _kept(
        self,
        own: Callable[..., Any],
        name: str,
        step: str,
        client: int | None,
        *arguments: Any,
        **options: Any,
    ) -> Any:
        given, record = [*arguments, *options.values()], self.record
        details = tuple(one for one in given if isinstance(one, int | str))
        for one in given:
            if isinstance(one, Message):
                record.deliveries.append(Delivery(name, step, details, record.round, one.to_bytes()))
            elif isinstance(one, LocalUpdate) and client is not None:
                record.own_updates[client, record.round] = one.copied()
        return own(*arguments, **options)

    def new_client(self, index: int) -> TrainingClient:
        """Make a client, as every embedded federation does, and record what it gets."""
        client = super().new_client(index)
        if isinstance(client, MaskedAverageClient) and client.noise_shares is not None:
            self._keep_shares(client, index)
        return self._recorded(client, client_name(index), index)

    def _keep_shares(self, client: MaskedAverageClient, index: int) -> None:
        """Keep what a client encrypts, turned back as its sum will be: what it draws no message tells."""

        def keep(vector: NDArray[np.float32] | NDArray[np.float64]) -> None:
            self.record.own_shares[index, client.round] = client.in_the_mean(vector)
            self.record.deviations[index, client.round] = client.deviation_of_share

        client.tell_vectors(keep)

    def new_aggregator(self) -> CollectingAggregator:
        """Make the aggregator, and record what it gets."""
        return self._recorded(super().new_aggregator(), AGGREGATOR)

    def _made_authority(self, **how: Any) -> tuple[AuthoritySteps | None, PublicSetup]:
        steps, made = super()._made_authority(**how, make_pair=kept_pair)
        return None if steps is None else self._recorded(steps, AUTHORITY), made

    def run_round(
        self,
        round_number: int,
        participants: Sequence[int],
        min_clients: int = 1,
        leaving: Mapping[int, str] | None = None,
    ) -> RoundTraffic:
        """Run one round as every embedded federation does, and keep what came of it."""
        record = self.record
        record.round = round_number
        traffic = super().run_round(round_number, participants, min_clients, leaving)
        record.participants[round_number] = tuple(traffic.finished)
        for index in traffic.senders:
            training = self._known_of_training[index]
            stated = self.clients[index].disclosure
            has_share = stated.encrypts_noised and stated.noise is None
            record.disclosures[index, round_number] = stated
            if not has_share:
                record.deviations[index, round_number] = self.method.noise_deviation(
                    *training, len(participants)
                )
        self._keep_models(round_number + 1)
        return traffic

    def _keep_models(self, round_number: int) -> None:
        """Keep, for every role, the model that it has by itself: a client what it opened or was sent last."""
        method, models = self.method, self.record.models
        for index, client in enumerate(self.clients):
            newest = client.global_model(self._driver.model)
            if method.has_model(index, newest):
                models[client_name(index), round_number] = self._parameters(method.message_for(index, newest))
        if method.aggregator_has_model:
            models[AGGREGATOR, round_number] = self._parameters(self.aggregator.newest_model())
        elif self.authority is not None and not method.clients_open:
            self.record.authority_has.add(round_number)

    def _parameters(self, model: Message) -> FloatVector:
        parameters: FloatVector = model.vector("parameters", np.float32, self.initial.parameters.size).copy()
        return parameters
