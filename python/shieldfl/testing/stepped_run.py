"""Drives any method's steps by hand: a training that needs no torch, and messages that a test can alter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from shieldfl.masks import Mask
from shieldfl.methods.protocol.account import Account
from shieldfl.methods.protocol.global_model import GlobalModel
from shieldfl.methods.protocol.local_update import FloatVector, LocalUpdate, PrivateSteps, StartingPoint
from shieldfl.methods.protocol.plan import FederationPlan, checked_weights
from shieldfl.methods.protocol.public_setup import PublicSetup
from shieldfl.methods.protocol.restarted import restarted
from shieldfl.methods.protocol.steps import AggregatorSteps, AuthoritySteps, ClientSteps
from shieldfl.methods.registry import make_method
from shieldfl.methods.settings import MethodSettings
from shieldfl.roles.message import Message
from shieldfl.roles.round_key_check import round_key_parts

__all__ = ["MethodCase", "SteppedRun", "contraction", "initial_model"]

Train = Callable[[int, int, StartingPoint], LocalUpdate]
Messages = dict[int, Message]
Intrude = Callable[[str, AggregatorSteps, Messages], None]


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
    fraction_bits: int = 20
    """Behind the point of an encrypted value: a mean of values that are rounded alone is off by half of their step."""

    @property
    def size(self) -> int:
        """P, the number of the model's parameters."""
        return self.layer_offsets[-1]


def initial_model(size: int, buffers: int) -> GlobalModel:
    """Return a model of random numbers, always the same."""
    generator = np.random.default_rng(0)
    return GlobalModel(
        generator.normal(0.0, 0.3, size).astype(np.float32),
        generator.normal(0.0, 0.3, buffers).astype(np.float32),
    )


def contraction(round_number: int, client: int, start: StartingPoint) -> LocalUpdate:
    """Go a tenth of the way to a target that is the client's own in this round; random scores up to 1."""
    generator = np.random.default_rng([round_number, client])
    vectors = (start.parameters, start.buffers)
    targets = [generator.normal(0.0, 1.0, one.size).astype(np.float32) for one in vectors]
    scores = generator.random(start.parameters.size, dtype=np.float32)
    step = np.float32(0.1)
    return start.trained(
        start.parameters + step * (targets[0] - start.parameters),
        start.buffers + step * (targets[1] - start.buffers),
        scores,
        None if start.noise is None else PrivateSteps(steps=2, sample_rate=0.5),
    )


class SteppedRun:
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
    weights : how much each client counts; None for all alike.
    shared_secret : of clients and key authority, for methods that have one.
    restarts_roles : whether every step of a role runs in a new object, restored from the state of the one before.
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
        self.initial = initial or initial_model(case.size, case.buffers)
        count = case.clients if clients is None else clients
        parameters = self.initial.parameters.size
        facts = {
            "rounds": 100,
            "min_clients": 2,
            "server_learning_rate": 1.0,
            "parameters": parameters,
            "buffers": self.initial.buffers.size,
            "layer_offsets": case.layer_offsets if parameters == case.size else (),
        }
        plan = FederationPlan.for_weights(weights, clients=count, **{**facts, **changes})
        self.method = make_method(case.method, case.settings, plan)
        self.entry = case.settings.of(case.method)
        """The method's settings."""
        self.weights = checked_weights(weights, count)
        self.shared_secret = shared_secret
        self.authority, made = self.method.authority_setup(
            self.initial, threads=1, shared_secret=shared_secret
        )
        self.setup = PublicSetup.from_bytes(made.to_bytes(), made.digest)
        self.clients = [self.new_client(index) for index in range(count)]
        self.aggregator = self.new_aggregator()
        if restarts_roles:
            self.clients = [
                restarted(one, partial(self.new_client, index)) for index, one in enumerate(self.clients)
            ]
            self.aggregator = restarted(self.aggregator, self.new_aggregator)
            if self.authority is not None:
                self.authority = restarted(self.authority, self.new_authority, bytes(32))
        self.model = self.method.first_message(self.initial, shared_secret)
        self.starts: dict[int, StartingPoint] = {}
        """By client: what it trained from in the last round."""
        self.sent: dict[str, Messages] = {}
        """By phase and client: the messages of the last round."""
        self.closed: dict[str, Message] = {}
        """By phase: what the aggregator made of them."""
        self.answers: dict[str, Message] = {}
        """By phase: what the clients got."""
        self._account = self.method.account()
        self._train = train
        self._trained = self.method.trained if trained is None else trained
        self._round = 0

    def new_client(self, index: int) -> ClientSteps:
        """Make a client, from the public set-up alone."""
        return self.method.client_steps(
            self.setup,
            index,
            self.weights[index],
            self.initial,
            threads=1,
            shared_secret=self.shared_secret,
        )

    def new_authority(self) -> AuthoritySteps:
        """Make a key authority that has no keys yet."""
        return self.method.authority_steps(
            self.setup, self.initial, threads=1, shared_secret=self.shared_secret
        )

    def new_aggregator(self) -> AggregatorSteps:
        """Make an aggregator, from the public set-up, and the model where it holds that."""
        initial = self.initial if self.authority is None else None
        return self.method.aggregator_steps(self.setup, self.weights, initial=initial, threads=1)

    @property
    def account(self) -> Account:
        """What the roles have reported so far."""
        authority = () if self.authority is None else (self.authority,)
        for role in (*self.clients, self.aggregator, *authority):
            self._account.take(role.report())
        return self._account

    def settings(self) -> dict[str, object]:
        """Return the settings, with what was charged."""
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
        leaving = set(dropping)
        self._round += 1
        first = self.begin_round(self._round)
        for index in chosen:
            self._train_client(index, len(chosen), first)
        answer = None
        self.sent = {}
        phases = self.method.phases_of(self.model, self._round)
        for phase in phases:
            last = phase is phases[-1]
            senders = [index for index in chosen if not (last and index in leaving)]
            self.aggregator.begin_phase(phase.name, self._round, answer)
            messages = {
                index: self.clients[index].step(phase.name, self._answer_for(index, answer))
                for index in senders
            }
            self.sent[phase.name] = messages
            if intrude is not None:
                intrude(phase.name, self.aggregator, messages)
            for index, message in messages.items():
                self.aggregator.receive(phase.name, index, Message.from_bytes(message.to_bytes()))
            chosen = list(messages)
            answer = self.aggregator.close(phase.name)
            self.closed[phase.name] = answer
            if phase.answered_by_authority:
                assert self.authority is not None
                answer = self.authority.answer(phase.name, Message.from_bytes(answer.to_bytes()))
            self.answers[phase.name] = answer
        assert answer is not None
        self.model = answer
        for index in chosen:
            self.clients[index].end_round(self.method.message_for(index, answer))

    def _train_client(self, index: int, participants: int, first: Message) -> None:
        model = self.method.message_for(index, first)
        start = self.clients[index].begin_round(self._round, participants, model)
        update = self._train(self._round, index, start)
        if self._trained is not None:
            frozen = ~self._trained
            frozen.scatter(frozen.gather(start.parameters), update.parameters)
        self.starts[index] = start
        self.clients[index].finish_training(update)

    def begin_round(self, round_number: int, model: Message | None = None) -> Message:
        """Let authority and aggregator begin a round, from the newest model or another: its first message."""
        first = self.model if model is None else model
        if self.authority is not None:
            first = self.authority.begin_round(round_number, first)
        first = Message.from_bytes(first.to_bytes())
        self.aggregator.begin_round(round_number, Message(round_key_parts(first)))
        return first

    def merged(self, client: int) -> StartingPoint:
        """Return what a client would use for inference."""
        return self.clients[client].merged_model(self.method.message_for(client, self.model))

    def _answer_for(self, client: int, answer: Message | None) -> Message | None:
        return None if answer is None else self.method.message_for(client, answer)
