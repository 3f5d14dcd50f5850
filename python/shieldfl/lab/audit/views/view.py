"""Federations with every role's messages recorded, the truth about them, and what parties have of them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import nn

from shieldfl.array_view import FloatVector
from shieldfl.authority.authority_secrets import Contents
from shieldfl.authority.key_authority import KeyPairAuthority
from shieldfl.authority.message import Message
from shieldfl.encryption.parameters import SchemeParameters
from shieldfl.encryption.registry import scheme_of
from shieldfl.errors import ParameterError, PrecisionWarning
from shieldfl.lab.audit.audit_config import AuditConfig
from shieldfl.lab.audit.views.observed_update import Counts, Flags, Floats, ObservedUpdate
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.lab.simulation.data import Dataset, LabelledSamples, fitted_samples
from shieldfl.lab.simulation.federation import EmbeddedFederation
from shieldfl.lab.simulation.method_run import MethodRun
from shieldfl.lab.simulation.runner import planned_method
from shieldfl.learning.local_trainer import LocalTrainer
from shieldfl.learning.local_update import LocalUpdate
from shieldfl.learning.networks import build_model
from shieldfl.methods.masked_average.method import MaskedAverageClient
from shieldfl.methods.registry import MethodSettings, adapt_model, make_method, method_class
from shieldfl.models.model_layout import ParameterLayout
from shieldfl.models.torch_bridge import load_flat, parameter_layout
from shieldfl.privacy.synthetic_data import fit_synthetic_data
from shieldfl.rounds.authorities import AuthoritySteps
from shieldfl.rounds.collecting_aggregator import CollectingAggregator
from shieldfl.rounds.driver import RoundTraffic
from shieldfl.rounds.method import Method
from shieldfl.rounds.plan import FederationPlan, GlobalModel, PublicSetup
from shieldfl.rounds.reports import Disclosure
from shieldfl.rounds.training_client import TrainingClient

_kept: dict[tuple[str, int, tuple[float, float]], Contents] = {}
"""Key pair as it was before it opened anything, by parameters, fewest clients and bounds of weights."""


def kept_pair(
    parameters: SchemeParameters[Any],
    min_clients: int,
    *,
    threads: int | None,
    weight_bounds: tuple[float, float],
) -> KeyPairAuthority[Any]:
    """Return a key authority with a new pair; where pairs last, with an earlier authority's.

    Pairs of single rounds are made anew. The authority does not know what an earlier one opened: each belongs
    to a federation of its own, with its own session and signing key. Only the audit uses this: no command,
    and no other part of the package, has two authorities of one key. Raises as :class:`KeyPairAuthority`
    does.
    """
    made: Any = partial(
        KeyPairAuthority, parameters, min_clients, threads=threads, weight_bounds=weight_bounds
    )
    if not scheme_of(parameters).keys_last:
        return made()  # type: ignore[no-any-return]
    which = repr(parameters), min_clients, weight_bounds
    if which not in _kept:
        _kept[which] = made().contents()
    contents = replace(_kept[which], secret=bytearray(_kept[which].secret), opened={})
    return KeyPairAuthority.of_contents(contents, threads=threads)


AGGREGATOR = "aggregator"
AUTHORITY = "key authority"

_STEPS = (
    *("enrolled", "begin_round", "finish_training", "step", "end_round"),
    *("begin_phase", "receive", "open", "keep"),
    *("enrol", "grant", "answer", "sign_answer"),
)
"""Names of the steps that bring messages, or a training's result, to clients, aggregator and authority."""

Role = TypeVar("Role")


def client_name(index: int) -> str:
    return f"client {index}"


def parameters_of(model: Message, size: int) -> FloatVector:
    parameters: FloatVector = model.vector("parameters", np.float32, size).copy()
    return parameters


@dataclass(frozen=True)
class Delivery:
    receiver: str
    step: str
    details: tuple[int | str, ...]
    """Further arguments of the step besides messages, in its order: phase, client, round."""
    round: int
    """Number of the round of the delivery; 0 before the first round."""
    data: bytes

    @property
    def message(self) -> Message:
        return Message.from_bytes(self.data)


@dataclass
class Record:
    deliveries: list[Delivery] = field(default_factory=list)
    models: dict[tuple[str, int], FloatVector] = field(default_factory=dict)
    """Global parameters (P,) that a role has when a round begins, by the role's name and the round.

    The roles are clients and the aggregator. A role that never has them has no entry. The model after the
    last round has the number of the next round.
    """
    authority_has: set[int] = field(default_factory=set)
    """Rounds at whose start the key authority has the models, of every client the one that it is sent."""
    own_updates: dict[tuple[int, int], LocalUpdate] = field(default_factory=dict)
    """Result of a client's training, which that client alone has, by client and round."""
    own_shares: dict[tuple[int, int], Floats] = field(default_factory=dict)
    """Part (P,) that a client adds to the mean of a noised or compressed sum, by client and round.

    The part is clipped and includes the client's share of the noise, or is what rounding left of its update.
    That client alone has it.
    """
    lost: dict[tuple[int, int], float] = field(default_factory=dict)
    """Standard deviation of what compression loses of each of a client's values, by client and round."""
    disclosures: dict[tuple[int, int], Disclosure] = field(default_factory=dict)
    deviations: dict[tuple[int, int], float] = field(default_factory=dict)
    """Standard deviation of a client's noise, as public settings tell it, by client and round."""
    participants: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Clients that went through the whole round, by round."""
    round: int = 0


class RecordedFederation(EmbeddedFederation):
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
        client = super().new_client(index)
        if isinstance(client, MaskedAverageClient) and (
            client.method.noise is not None or client.method.compression is not None
        ):
            sharing = client

            def keep(vector: FloatVector | Floats) -> None:
                self.record.own_shares[index, sharing.round] = sharing.in_the_mean(vector)
                self.record.lost[index, sharing.round] = sharing.deviation_lost
                if sharing.method.noise is not None:
                    self.record.deviations[index, sharing.round] = sharing.deviation_of_share

            # What a client encrypts, decoded as its sum will be: no message tells what it draws or rounds.
            sharing.tell_vector = keep
        return self._recorded(client, client_name(index), index)

    def new_aggregator(self) -> CollectingAggregator:
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
        """Keep each role's own model; a client has the one that it opened or was sent last."""
        method, models, size = self.method, self.record.models, self.initial.parameters.size
        for index, client in enumerate(self.clients):
            newest = client.global_model(self._driver.model)
            if method.has_model(index, newest):
                models[client_name(index), round_number] = parameters_of(
                    method.message_for(index, newest), size
                )
        if method.aggregator_has_model:
            models[AGGREGATOR, round_number] = parameters_of(self.aggregator.newest_model(), size)
        elif self.authority is not None and not method.clients_open:
            self.record.authority_has.add(round_number)


@dataclass(frozen=True)
class Party:
    """One party, honest but curious: it keeps what it gets and does as the method says.

    Its clients are given by their number: the first ones that are not the victim.
    """

    name: str
    meaning: str
    role: str = ""
    """Role that the party has besides its clients; empty if it has none."""
    colluding_clients: int | None = 0
    """Number of clients in the party; None for all but the victim."""
    reads_channel: bool = False
    """Whether the party has every message to and from clients, as it would without TLS."""
    has_last_model: bool = False


PARTIES = (
    Party("aggregator", "the server that adds updates", AGGREGATOR),
    Party("client", "one of the other clients", colluding_clients=1),
    Party("other-clients", "all clients but the one that is attacked, together", colluding_clients=None),
    Party("authority", "the key authority", AUTHORITY),
    Party("aggregator-and-client", "the server together with one client", AGGREGATOR, colluding_clients=1),
    Party("network", "reads all messages to and from clients, without TLS", reads_channel=True),
    Party("outsider", "who gets the model behind the last round", has_last_model=True),
)


def party_named(name: str) -> Party:
    for party in PARTIES:
        if party.name == name:
            return party
    raise ParameterError(f"there is no party {name!r}: choose among {', '.join(one.name for one in PARTIES)}")


PARTS_OF_VALUES = ("values", "update")


@dataclass(frozen=True)
class KnownChange:
    """What a party knows of the change in a round by one client's training, or by several together."""

    round: int
    clients: tuple[int, ...]
    """Clients whose change this is; each position has the mean over its senders among them."""
    change: FloatVector
    """Change of the parameters, float32 (P,); 0 where nothing is known."""
    known: Flags
    start: FloatVector | None
    """Global parameters (P,) at the start of the round; None if the party does not have them."""
    source: str
    synthetic: bool
    """Whether all these clients trained in this round on synthetic data alone, without their own samples."""
    deviation: FloatVector
    """Standard deviation of each value (P,), by the clients' noise and by rounding before encryption."""


class View:
    """All that one party got of one federation, with one client as the victim."""

    def __init__(self, record: Record, method: Method, party: Party, victim: int) -> None:
        self._record, self._method = record, method
        self.party, self.victim = party, victim
        others = [index for index in range(method.plan.clients) if index != victim]
        self.clients = tuple(others[: party.colluding_clients])
        self._roles = {party.role, *(client_name(index) for index in self.clients)}
        bits = method.own_settings.get("fraction_bits")
        self._rounding = 0.0 if bits is None else 2.0**-bits / math.sqrt(12)
        """Standard deviation of rounding to encrypt a value, uniform in a step; 0 if no steps are stated.

        Methods with shares of noise state none: next to the noise, rounding is negligible.
        """

    @cached_property
    def deliveries(self) -> tuple[Delivery, ...]:
        # The channel carries what clients get, and what aggregator and authority get from them.
        return tuple(
            one
            for one in self._record.deliveries
            if one.receiver in self._roles
            or (
                self.party.reads_channel
                and (one.receiver not in (AGGREGATOR, AUTHORITY) or one.step in ("receive", "enrol"))
            )
        )

    def of_victim(self) -> Iterator[Delivery]:
        """Yield the victim's own messages that the party has, of rounds and of enrolment."""
        return (one for one in self.deliveries if _is_of(one, self.victim))

    def own_exchanges(self) -> Iterator[tuple[list[Delivery], list[Delivery]]]:
        """Yield messages to and from each of the party's clients, or to the victim for a channel's reader."""
        readers = (self.victim,) if self.party.reads_channel else self.clients
        for client in readers:
            sent = [one for one in self._record.deliveries if one.receiver == client_name(client)]
            own = () if client == self.victim else self._record.deliveries
            yield sent, [one for one in own if _is_of(one, client)]

    def model(self, round_number: int) -> FloatVector | None:
        """Return the global parameters (P,) that a round begins with; None if the party does not have them.

        The round after the last stands for the last model. A party that reads the channel has a model if a
        message brings it. Of several clusters' models it is the victim's, if the party has that one.
        """
        models = self._record.models
        victims = models.get((client_name(self.victim), round_number))
        found = [models[one, round_number] for one in sorted(self._roles) if (one, round_number) in models]
        if found:
            return next((one for one in found if np.array_equal(one, cast(FloatVector, victims))), found[0])
        if self.party.reads_channel:
            return self._model_on_the_way(round_number)
        last = {max(self._record.participants) + 1} if self.party.has_last_model else set()
        told = self._record.authority_has if AUTHORITY in self._roles else last
        return victims if round_number in told else None

    def _model_on_the_way(self, round_number: int) -> FloatVector | None:
        for one in self.deliveries:
            comes = (one.round, one.step) in ((round_number, "begin_round"), (round_number - 1, "end_round"))
            if comes and one.receiver == client_name(self.victim):
                message = self._method.message_for(self.victim, one.message)
                if "parameters" in message:
                    return parameters_of(message, self._method.plan.parameters)
        return None

    def changes(self) -> Iterator[KnownChange]:
        """Yield what is known of the victim. Raises ParameterError for numbers without stated places."""
        for one in self.deliveries:
            found = self._numbers(one, self.victim)
            if found is not None and found[0].any():
                known, values = found
                change = np.zeros(known.size, dtype=np.float32)
                change[known] = values
                synthetic = self._record.disclosures[self.victim, one.round].synthetic
                start, noise = self.model(one.round), self._noise(self.victim, one.round)
                yield KnownChange(
                    one.round, (self.victim,), change, known, start, "message", synthetic, noise
                )
        yield from self._from_sums()

    def _numbers(self, delivery: Delivery, client: int) -> tuple[Flags, FloatVector] | None:
        """Return the positions (P,) of the numbers in this client's message, and the numbers; else None."""
        disclosure = self._record.disclosures.get((client, delivery.round))
        if delivery.step != "receive" or client not in delivery.details[1:] or disclosure is None:
            return None
        message = delivery.message
        part = next((name for name in PARTS_OF_VALUES if name in message), None)
        if part is None:
            return None
        return _placed(np.frombuffer(message[part], np.float32), disclosure, self._method)

    def _from_sums(self) -> Iterator[KnownChange]:
        """Yield a sum's mean over clients that are not the party's own, from the models before and after."""
        for number, participants in sorted(self._record.participants.items()):
            before, after = self.model(number), self.model(number + 1)
            if self.victim not in participants or before is None or after is None:
                continue
            mean = (after.astype(np.float64) - before) / self._method.plan.server_learning_rate
            if not mean.any():
                continue  # a cluster of too few clients keeps its model
            models = self._record.models
            together = tuple(
                one for one in participants if np.array_equal(models[client_name(one), number + 1], after)
            )
            if self.victim not in together:
                continue
            senders = {one: self._positions_sent(one, number) for one in together}
            by_all = self._method.own_settings.get("divisor") == "participants"
            total = mean * (len(together) if by_all else np.sum([*senders.values()], axis=0))
            others = tuple(one for one in together if one not in self.clients)
            for one in together:
                if one in self.clients:
                    total -= np.where(senders[one], self._sent(one, number, before), 0.0)
            left = np.sum([senders[one] for one in others], axis=0)
            known = left > 0
            change = np.divide(total, left, out=np.zeros_like(total), where=known).astype(np.float32)
            synthetic = all(self._record.disclosures[one, number].synthetic for one in others)
            variance = np.sum([self._noise(one, number) ** 2 for one in others], axis=0)
            variance += sum(self._record.lost.get((one, number), 0.0) ** 2 for one in others)
            error = np.sqrt(variance + len(together) * self._rounding**2)
            deviation = np.divide(error, left, out=np.zeros_like(error), where=known).astype(np.float32)
            yield KnownChange(number, others, change, known, before, "sum", synthetic, deviation)

    def _noise(self, client: int, number: int) -> FloatVector:
        """Return the deviation of the noise on each value of a client's update (P,), 0 where it adds none."""
        disclosure = self._record.disclosures[client, number]
        noised = disclosure.noised | disclosure.encrypted if disclosure.encrypts_noised else disclosure.noised
        return noised.to_bool() * np.float32(self._record.deviations[client, number])

    def _positions_sent(self, client: int, number: int) -> Flags:
        if self._method.averages_all:
            return np.ones(self._method.plan.parameters, dtype=np.bool_)
        return ~self._record.disclosures[client, number].kept.to_bool()

    def _sent(self, client: int, number: int, before: FloatVector) -> Floats:
        if (client, number) in self._record.own_shares:
            return self._record.own_shares[client, number].copy()
        sent = self._record.own_updates[client, number].parameters.astype(np.float64) - before
        for one in self._record.deliveries:
            if one.round == number and (found := self._numbers(one, client)) is not None:
                known, values = found
                sent[known] = values
        return sent


def why_sums_are_unread(method: Method) -> str:
    """Return why no attack here can use a method's sums; "" where they can."""
    compression = getattr(method, "compression", None)
    if compression is None or compression.one_in == 1:
        return ""
    return "a round sends one in several rotated values, among which attacks here do not search"


def _is_of(delivery: Delivery, client: int) -> bool:
    step, details = delivery.step, delivery.details
    return (step == "receive" and client in details[1:]) or (step == "enrol" and client in details[:1])


def _placed(numbers: FloatVector, disclosure: Disclosure, method: Method) -> tuple[Flags, FloatVector]:
    """Return the positions (P,) of a message's numbers, and these numbers in order, without buffers.

    Positions that stay with a client may be hidden among the others, with noise alone. They count as not
    known. That favours the attacker, who cannot tell them apart.
    """
    sent = disclosure.clear.to_bool() | disclosure.noised.to_bool()
    count, buffers = int(sent.sum()), method.plan.buffers
    if numbers.size in (count, count + buffers):
        return sent, numbers[:count]
    outside = ~disclosure.encrypted.to_bool()
    if numbers.size == int(outside.sum()):
        return sent, numbers[sent[outside]]
    raise ParameterError(
        f"{method.name}: a client's message has {numbers.size:,} numbers, and it states the places of "
        f"{count:,}: there is no view of it to attack"
    )


_MEASURED = 64
"""Test samples on which a trial's models are measured; few, since nobody looks at their accuracy."""
_OF_THE_ATTACKER = 2**31
"""Number added to a trial's seed, so that the attacker draws another model of the same kind."""


def private_batches(dataset: Dataset, config: RunConfig) -> list[Counts]:
    """Draw each client's samples from the training set, none twice.

    Raises ParameterError where there are too few.
    """
    wanted = config.clients * config.batch_size
    if wanted > len(dataset.train_labels):
        raise ParameterError(
            f"{config.clients} clients of {config.batch_size} samples need {wanted:,}, and {dataset.name} "
            f"has {len(dataset.train_labels):,}: take fewer samples or clients"
        )
    drawn = np.random.default_rng([config.seed, 7]).permutation(len(dataset.train_labels))[:wanted]
    return list(drawn.reshape(config.clients, config.batch_size))


def first_model(config: RunConfig, dataset: Dataset) -> nn.Module:
    return build_model(str(config.model), dataset.feature_shape, dataset.classes, config.seed)


def planned(name: str, settings: MethodSettings, config: AuditConfig, **facts: Any) -> Method:
    """Return a method for the audit's clients, and for a model that belongs to no data set.

    ``facts`` are further facts of its plan.
    """
    plan = FederationPlan.for_weights(
        None,
        clients=config.clients,
        min_clients=config.min_clients,
        server_learning_rate=1.0,
        opener=config.opener if method_class(name).schemes else None,
        **facts,
    )
    return make_method(name, settings, plan)


def recorded_run(
    name: str,
    settings: MethodSettings,
    config: RunConfig,
    dataset: Dataset,
    plain: nn.Module,
    batches: Sequence[Counts],
) -> tuple[MethodRun, Method, nn.Module, Record]:
    """Run and record a federation; clients trained the module, whose parameters are overwritten."""
    if not method_class(name).schemes:
        config = replace(config, opener=None)  # nobody opens anything under such a method
    if getattr(settings.of(name), "synthetic_samples", 0) is None:
        # As many as the clients' own samples, not as many as the data set has.
        settings = settings.changed(name, {"synthetic_samples": sum(map(len, batches))})
    model = adapt_model(name, plain, settings)
    method = planned_method(name, config, settings, dataset, model, None)
    measured = replace(
        dataset, test_features=dataset.test_features[:_MEASURED], test_labels=dataset.test_labels[:_MEASURED]
    )
    if method.own_settings.get("synthetic_share"):
        raise ParameterError(
            f"{name} trains on synthetic samples beside the client's own, which no attack here tells from "
            "them: set synthetic_share to 0"
        )
    synthetic = None
    if (demand := method.synthetic_demand) is not None:
        if dataset.feature_range is None:
            raise ParameterError(
                f"{dataset.name} has no range that is public, which synthetic data are made in"
            )
        synthetic = fitted_samples(dataset, demand, _made_synthetic)
    run = MethodRun(method, config, measured, model, batches, None, synthetic, federation=RecordedFederation)
    with warnings.catch_warnings():
        # What rounding loses, attackers do not get.
        warnings.simplefilter("ignore", PrecisionWarning)
        run.run(None)
    return run, method, model, cast(RecordedFederation, run.federation).record


@lru_cache(maxsize=4)
def _made_synthetic(*samples: Any, **how: Any) -> LabelledSamples:
    """Make samples once for federations on the same tensors: it takes a hundred times a federation's time."""
    made = fit_synthetic_data(*samples, **how, seed=0)
    return made.features, made.labels


class Trial:
    """A method's federation, run and recorded.

    ``number`` decides samples, models and seeds. ``planted`` is the first model if the attacker chose it, and
    so knows it; None for the configuration's model. ``batches`` are each client's samples, positions in the
    training set; None draws them without regard to their labels.
    """

    def __init__(
        self,
        name: str,
        settings: MethodSettings,
        config: AuditConfig,
        dataset: Dataset,
        number: int,
        planted: nn.Module | None = None,
        batches: Sequence[Counts] | None = None,
    ) -> None:
        self.config = config.run_config(number)
        self.dataset = dataset
        plain = planted or first_model(self.config, dataset)
        self._batches = private_batches(dataset, self.config) if batches is None else batches
        run, self.method, self.model, self.record = recorded_run(
            name, settings, self.config, dataset, plain, self._batches
        )
        self.round_seconds = min(record.seconds for record in run.records)
        """Seconds of the quickest round, without what is loaded and made once."""
        self._chosen = None if planted is None else run.federation.initial.parameters

    @property
    def layout(self) -> ParameterLayout:
        return parameter_layout(self.model)

    def truth(self, clients: tuple[int, ...]) -> LabelledSamples:
        chosen = np.concatenate([self._batches[index] for index in clients])
        return self.dataset.train_features[chosen], self.dataset.train_labels[chosen]

    @cached_property
    def _drawn_anew(self) -> nn.Module:
        """A model of the same kind with fresh layers, which a party without the model can use for it."""
        other = deepcopy(self.model)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.config.seed + _OF_THE_ATTACKER)
            for module in other.modules():
                if callable(reset := getattr(module, "reset_parameters", None)):
                    reset()
        return other

    def changes(self, party: Party, victim: int) -> Iterator[KnownChange]:
        return View(self.record, self.method, party, victim).changes()

    def as_update(self, known: KnownChange) -> ObservedUpdate:
        # A party that chose the first model, and has no later one, uses it: training moves it by little.
        start = self._chosen if known.start is None else known.start
        model = deepcopy(self._drawn_anew if start is None else self.model)
        if start is not None:
            load_flat(model, start)
        low, high = self.dataset.feature_range or (torch.tensor(0.0), torch.tensor(1.0))
        # The mean of several clients' steps, each from its own batch, is one step from all of their samples.
        samples = self.config.batch_size * len(known.clients)
        return ObservedUpdate(
            model,
            known.change,
            known.known,
            replace(self.config, batch_size=samples),
            samples,
            self.dataset.feature_shape,
            self.dataset.classes,
            noise_deviation=known.deviation,
            value_range=(float(low.min()), float(high.max())),
        )
