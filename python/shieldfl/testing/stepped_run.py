"""Drives any method's steps by hand: a training that needs no torch, and messages that a test can alter."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from shieldfl.authority.message import Message
from shieldfl.authority.role_state import SEALING_KEY_BYTES
from shieldfl.learning.local_update import FloatVector, LocalUpdate, StartingPoint, contraction
from shieldfl.masks import Mask
from shieldfl.methods.registry import MethodSettings, make_method
from shieldfl.rounds.collecting_aggregator import CollectingAggregator
from shieldfl.rounds.driver import EmbeddedRoles, RoundDriver
from shieldfl.rounds.opening_rule import HISTORY
from shieldfl.rounds.plan import FederationPlan, GlobalModel, Opener, Phase
from shieldfl.rounds.reports import Account, Reporter

Train = Callable[[int, int, StartingPoint], LocalUpdate]
Messages = dict[int, Message]
Intrude = Callable[[str, CollectingAggregator, Messages], None]


@dataclass(frozen=True)
class MethodCase:
    """A method under one setting, and the model that it is tried with."""

    method: str
    settings: MethodSettings = field(default_factory=MethodSettings)
    layer_offsets: tuple[int, ...] = (0, 200, 320, 333)
    """Of the model's layers; 333 parameters are no multiple of the 64 bits of a mask's word."""
    buffers: int = 5
    clients: int = 4
    tolerance: float = 0.0
    """How far the parameters of two runs may be apart: noise that is added."""
    opener: Opener = None
    """Who opens sums: as of the plan."""
    fraction_bits: int = 20
    """Behind the point of an encrypted value: a mean of values that are rounded alone is off by half of their step."""

    @property
    def size(self) -> int:
        return self.layer_offsets[-1]


def initial_model(size: int, buffers: int) -> GlobalModel:
    """Return a model of random numbers, always the same."""
    generator = np.random.default_rng(0)
    return GlobalModel(
        generator.normal(0.0, 0.3, size).astype(np.float32),
        generator.normal(0.0, 0.3, buffers).astype(np.float32),
    )


class _RoundClients:
    """A run's clients in one round: what they send is kept, and may be tampered with before it arrives."""

    def __init__(self, run: SteppedRun, intrude: Intrude | None) -> None:
        self._run = run
        self._intrude = intrude

    def begin_round(
        self,
        clients: Sequence[int],
        round_number: int,
        participants: int,
        message_of: Callable[[int], Message],
    ) -> None:
        for index in clients:
            self._run.train_client(index, round_number, participants, message_of(index))

    def step(
        self, clients: Sequence[int], phase: str, message_of: Callable[[int], Message] | None
    ) -> Iterator[tuple[int, bytes]]:
        run = self._run
        messages = {
            index: run.clients[index].step(phase, None if message_of is None else message_of(index))
            for index in clients
        }
        run.sent[phase] = messages
        if self._intrude is not None:
            self._intrude(phase, run.aggregator, messages)
        for index, message in messages.items():
            yield index, message.to_bytes()

    def end_round(self, clients: Sequence[int], message_of: Callable[[int], Message]) -> None:
        for index in clients:
            self._run.clients[index].end_round(message_of(index))


class _KeepingDriver(RoundDriver):
    """Has a run keep what the aggregator closes a phase with, and what clients get for it."""

    run: SteppedRun

    def _answer(self, phase: Phase, round_number: int, left: Sequence[int], result: Message) -> Message:
        self.run.closed[phase.name] = self.run.answers[phase.name] = result
        answer = super()._answer(phase, round_number, left, result)
        self.run.answers[phase.name] = answer
        return answer


class SteppedRun(EmbeddedRoles):
    """One method, its roles and their messages; nothing happens but what a test asks for.

    Every message, and the public set-up, is passed on as its bytes. The plan is of 100 rounds and at least two
    clients, and the server averages as FedAvg does.

    Parameters
    ----------
    case : what is tried.
    clients : how many; None for the case's.
    initial : the model before the first round; None for random numbers.
    train : makes an update of round, client and starting point.
    trained : the positions that training changes; None for what the method says.
    weights, shared_secret : as for :class:`EmbeddedRoles`.
    restarts_roles : whether every step of a role runs in a new object, restored from the state of the one before: what
        a process that ends after every message goes through.
    changes : of the plan.
    """

    def __init__(
        self,
        case: MethodCase,
        *,
        clients: int | None = None,
        initial: GlobalModel | None = None,
        train: Train = contraction,
        trained: Mask | None = None,
        weights: Sequence[int] | None = None,
        shared_secret: bytes = bytes(range(32)),
        restarts_roles: bool = False,
        **changes: Any,
    ) -> None:
        model = initial or initial_model(case.size, case.buffers)
        parameters = model.parameters.size
        facts = {
            "clients": case.clients if clients is None else clients,
            "rounds": 100,
            "min_clients": 2,
            "server_learning_rate": 1.0,
            "parameters": parameters,
            "buffers": model.buffers.size,
            "layer_offsets": case.layer_offsets if parameters == case.size else (),
            "opener": case.opener,
        }
        plan = FederationPlan.for_weights(weights, **{**facts, **changes})
        method = make_method(case.method, case.settings, plan)
        super().__init__(method, model, weights, threads=1, shared_secret=shared_secret)
        if restarts_roles:
            for index, client in enumerate(self.clients):
                _restart_each_step(client, partial(self.new_client, index))
            _restart_each_step(self.aggregator, self.new_aggregator)
            if self.authority is not None:
                _restart_each_step(self.authority, self.new_authority)
        self.entry = case.settings.of(case.method)
        """The method's settings."""
        holder = self.aggregator if method.aggregator_has_model else self.authority
        assert holder is not None
        self.model = self.clients[0].global_model(holder.newest_model())
        """The global model, as a message brings it, or as clients that open sums have it."""
        self.starts: dict[int, StartingPoint] = {}
        """By client: what it trained from in the last round."""
        self.updates: dict[int, LocalUpdate] = {}
        """By client: what it trained then."""
        self.sent: dict[str, Messages] = {}
        """By phase and client: the messages of the last round."""
        self.closed: dict[str, Message] = {}
        """By phase: what the aggregator made of them."""
        self.answers: dict[str, Message] = {}
        """By phase: what the clients got."""
        self._account = method.account()
        self._train = train
        self._trained = method.trained if trained is None else trained
        self._round = 0

    @property
    def account(self) -> Account:
        self.report_to(self._account)
        return self._account

    def settings(self) -> dict[str, object]:
        return self.method.settings(self.weights) | self.account.settings()

    @property
    def parameters(self) -> FloatVector:
        """The first client's global model's parameters, float32 (P,)."""
        model = self.method.message_for(0, self.model)
        return model.vector("parameters", np.float32, self.initial.parameters.size)

    @property
    def buffers(self) -> FloatVector:
        """Its buffers; empty where they stay local."""
        return np.frombuffer(self.method.message_for(0, self.model)["buffers"], dtype=np.float32)

    def run_round(
        self,
        participants: Iterable[int] | None = None,
        dropping: Iterable[int] = (),
        intrude: Intrude | None = None,
    ) -> None:
        """Run a round. Clients that are ``dropping`` send nothing in the last phase.

        ``intrude(phase, aggregator, messages)`` may do as it likes before the honest messages arrive, or take some out.
        """
        chosen = list(range(len(self.clients))) if participants is None else list(participants)
        self._round += 1
        self.sent = {}
        (*_, last) = self.method.round_phases(self.model, self._round)
        driver = self._driver(intrude)
        # The aggregator or the authority says what becomes of a round of too few.
        leaving = dict.fromkeys(dropping, last.name)
        traffic = driver.run_round(self._round, chosen, min_clients=0, leaving=leaving)
        if traffic.finished:
            self.model = self.clients[traffic.finished[0]].global_model(driver.model)

    def answer_again(self, phase: str) -> Message:
        """Return what clients get where the last round's result of a phase is closed and answered again."""
        result = self.aggregator.close(phase)
        if self.authority is None:
            return result
        if self.method.aggregator_opens:
            return self.aggregator.open(phase, self.authority.answer(phase, self.aggregator.request(phase)))
        if not self.method.clients_open:
            return self.authority.answer(phase, result)
        asked = self.aggregator.request(phase)
        return Message({**result, HISTORY: asked[HISTORY], **self.authority.answer(phase, asked)})

    def _driver(self, intrude: Intrude | None = None) -> RoundDriver:
        clients = _RoundClients(self, intrude)
        driver = _KeepingDriver(self.method, self.authority, self.aggregator, clients, self._account)
        driver.run = self
        return driver

    def train_client(self, index: int, round_number: int, participants: int, model: Message) -> None:
        start = self.clients[index].begin_round(round_number, participants, model)
        update = self._train(round_number, index, start)
        if self._trained is not None:
            frozen = ~self._trained
            frozen.scatter(frozen.gather(start.parameters), update.parameters)
        self.starts[index], self.updates[index] = start, update
        self.clients[index].finish_training(update)

    def begin_round(self, round_number: int, invited: Sequence[int] | None = None) -> Message:
        return self._driver().begin_round(round_number, invited)

    def merged(self, client: int) -> StartingPoint:
        return self.clients[client].merged_model(self.method.message_for(client, self.model))


def _restart_each_step(role: Reporter, make: Callable[[], Reporter]) -> None:
    """Have each call of a role run in a new object, restored from the state before."""
    kind: Any = type(role)
    key = secrets.token_bytes(SEALING_KEY_BYTES) if role.needs_sealing else None
    runs = False  # a step that calls another one is one step

    def restarted(name: str) -> Callable[..., Any]:
        def step(self: Any, *arguments: Any, **options: Any) -> Any:
            nonlocal runs
            if runs:
                return getattr(kind, name)(self, *arguments, **options)
            runs = True
            try:
                fresh = make()
                fresh.restore(kind.state(self, key), key)
                vars(self).update(vars(fresh))
                return getattr(kind, name)(self, *arguments, **options)
            finally:
                runs = False

        return step

    own = {name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))}
    steps = {name: restarted(name) for name in own - vars(Reporter).keys() | {"report"}}
    role.__class__ = type(kind.__name__, (kind,), steps)
