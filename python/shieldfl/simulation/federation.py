"""The embedded federation: all roles of one method in one process, messages as the bytes they would be."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial

import numpy as np

from shieldfl.errors import ConvergenceError, RangeError
from shieldfl.methods.protocol.account import Account
from shieldfl.methods.protocol.global_model import GlobalModel
from shieldfl.methods.protocol.method import Method, Phase
from shieldfl.methods.protocol.plan import checked_weights
from shieldfl.methods.protocol.public_setup import PublicSetup
from shieldfl.methods.protocol.restarted import restarted
from shieldfl.methods.protocol.steps import AggregatorSteps, AuthoritySteps, ClientSteps
from shieldfl.roles.message import Message
from shieldfl.roles.role_state import SEALING_KEY_BYTES
from shieldfl.roles.round_key_check import round_key_parts
from shieldfl.simulation.local_training import LocalTrainer, training_seed
from shieldfl.torch_bridge import ParameterLayout

__all__ = ["EmbeddedFederation", "RoundTraffic"]

_MOST_DRAWS = 10_000


class RoundTraffic:
    """What one round moved and measured, summed over its participants."""

    def __init__(self, participants: int) -> None:
        self.participants = participants
        """Clients that began the round."""
        self.finished: list[int] = []
        """Clients that went through the whole round: none where it was given up."""
        self.senders: list[int] = []
        """Clients that sent something in any phase."""
        self.bytes_up = 0
        self.bytes_down = 0
        self.losses: list[float] = []
        """Training losses of the clients that finished their training."""


class EmbeddedFederation:
    """Moves messages between the roles of one method.

    The authority's set-up is passed to the other roles as the bytes that it would be, and so is every message.

    Parameters
    ----------
    method : what they do, for as many clients as there are trainers.
    initial : the model before the first round.
    trainers : one for each client.
    seed : makes sampling and training repeatable.
    weights : how much each client counts; None for all alike.
    threads : for the core; None for as many as the work is worth.
    shared_secret : of clients and key authority, for methods that have one; None draws it. Given for repeatable runs.
    layout : of the model, so that an update that is refused names the tensor; None where it is not known.
    account : takes the roles' reports; None for a new one of the method's.
    restarts_roles : whether every step of a role runs in a new object, restored from the state of the one before.
    """

    def __init__(
        self,
        method: Method,
        initial: GlobalModel,
        trainers: Sequence[LocalTrainer],
        seed: int,
        *,
        weights: Sequence[int] | None = None,
        threads: int | None = None,
        shared_secret: bytes | None = None,
        layout: ParameterLayout | None = None,
        account: Account | None = None,
        restarts_roles: bool = False,
    ) -> None:
        if method.needs_shared_secret and shared_secret is None:
            shared_secret = secrets.token_bytes(32)
        own_weights = checked_weights(weights, len(trainers))
        self.method = method
        self.account = method.account() if account is None else account
        authority, setup = method.authority_setup(initial, threads=threads, shared_secret=shared_secret)
        self.setup = public = PublicSetup.from_bytes(setup.to_bytes(), setup.digest)

        def client(index: int) -> ClientSteps:
            return method.client_steps(
                public, index, own_weights[index], initial, threads=threads, shared_secret=shared_secret
            )

        def aggregator() -> AggregatorSteps:
            held = initial if authority is None else None
            return method.aggregator_steps(public, own_weights, initial=held, threads=threads)

        def authority_again() -> AuthoritySteps:
            return method.authority_steps(public, initial, threads=threads, shared_secret=shared_secret)

        self._authority = authority
        self.clients = [client(index) for index in range(len(trainers))]
        self._aggregator = aggregator()
        if restarts_roles:
            self.clients = [restarted(one, partial(client, index)) for index, one in enumerate(self.clients)]
            self._aggregator = restarted(self._aggregator, aggregator)
            if authority is not None:
                self._authority = restarted(
                    authority, authority_again, secrets.token_bytes(SEALING_KEY_BYTES)
                )
        self.model = method.first_message(initial, shared_secret)
        self._trainers = trainers
        self._seed = seed
        self._layout = layout
        self._sampling = np.random.default_rng([seed, len(trainers)])
        # Of its own, so that dropouts do not change who is drawn.
        self._dropouts = np.random.default_rng([seed, len(trainers), 1])
        self._refusals: list[RangeError] = []

    def draw(self, sample_rate: float, min_clients: int) -> list[int]:
        """Draw each client with the same probability; draw again, and charge it, when too few came.

        Raises ConvergenceError after 10,000 draws: such a federation would never start a round.
        """
        for _ in range(_MOST_DRAWS):
            chosen = np.flatnonzero(self._sampling.random(len(self.clients)) < sample_rate)
            self.account.charge_draw(len(chosen))
            if len(chosen) >= min_clients:
                return [int(index) for index in chosen]
        raise ConvergenceError(
            f"{_MOST_DRAWS:,} draws gave no {min_clients} clients: raise sample_rate or lower min_clients"
        )

    def draw_leavers(self, participants: Sequence[int], dropout: float, round_number: int) -> dict[int, str]:
        """Draw who leaves the round, and before which phase: each with the same probability, any phase alike.

        In every method the same clients leave.
        """
        phases = [phase.name for phase in self.method.phases_of(self.model, round_number)]
        draws = self._dropouts.random((len(participants), 2))
        return {
            index: phases[int(moment * len(phases))]
            for index, (chance, moment) in zip(participants, draws, strict=True)
            if chance < dropout
        }

    def run_round(
        self,
        round_number: int,
        participants: Sequence[int],
        min_clients: int = 1,
        leaving: Mapping[int, str] | None = None,
    ) -> RoundTraffic:
        """Run one round with these clients.

        Parameters
        ----------
        min_clients : with fewer left the round is given up: the model stays, which is noted.
        leaving : clients that leave, and the phase before which they do. One whose training or update is refused leaves
            there too, which is noted.

        Raises RangeError when so many updates are refused that the round cannot go on.
        """
        traffic = RoundTraffic(len(participants))
        self._refusals = []
        try:
            self._run_phases(round_number, participants, min_clients, leaving or {}, traffic)
        finally:
            # Also what left in a round that something stopped.
            self._take_reports()
        return traffic

    def _take_reports(self) -> None:
        authority = () if self._authority is None else (self._authority,)
        for role in (*self.clients, self._aggregator, *authority):
            self.account.take(role.report())

    def _run_phases(
        self,
        round_number: int,
        participants: Sequence[int],
        min_clients: int,
        leaving: Mapping[int, str],
        traffic: RoundTraffic,
    ) -> None:
        first = self._begin_round(round_number)
        left = [index for index in participants if self._train(round_number, index, first, traffic)]
        answer: Message | None = None
        for phase in self.method.phases_of(self.model, round_number):
            left = [index for index in left if leaving.get(index) != phase.name]
            if answer is not None:
                traffic.bytes_down += sum(self._for(index, answer).nbytes for index in left)
            answer, left = self._run_phase(phase, round_number, left, min_clients, answer, traffic)
            if answer is None:
                if len(participants) - len(self._refusals) < min_clients:
                    raise self._refusals[-1]
                self.account.note(
                    f"round {round_number} was given up: {len(left)} of {len(participants)} clients were left"
                )
                return
        assert answer is not None
        self.model = answer
        traffic.finished = left
        for index in left:
            with self.account.clock.stage("merge"):
                self.clients[index].end_round(self._for(index, answer))

    def _for(self, client: int, message: Message) -> Message:
        return self.method.message_for(client, message)

    def _begin_round(self, round_number: int) -> Message:
        """Return the round's first message: where there is a key authority, the model with the keys that it made.

        The aggregator gets the keys alone: it must not see the model, which opened sums have moved.
        """
        first = self.model
        if self._authority is not None:
            first = Message.from_bytes(self._authority.begin_round(round_number, self.model).to_bytes())
        self._aggregator.begin_round(round_number, Message(round_key_parts(first)))
        return first

    def _train(self, round_number: int, index: int, first: Message, traffic: RoundTraffic) -> bool:
        """Train one client; say whether it goes on."""
        model = self._for(index, first)
        traffic.bytes_down += model.nbytes
        with self.account.clock.stage("merge"):
            start = self.clients[index].begin_round(round_number, traffic.participants, model)
        try:
            update, loss = self._trainers[index].train(start, training_seed(self._seed, round_number, index))
            self.clients[index].finish_training(update)
        except RangeError as error:
            self._leave(round_number, index, error)
            return False
        finally:
            self.account.clock.add(self._trainers[index].clock.take())
        traffic.losses.append(loss)
        return True

    def _leave(self, round_number: int, index: int, error: RangeError) -> None:
        self._refusals.append(error)
        self.account.note(f"client {index} left round {round_number}: {error}")

    def _run_phase(
        self,
        phase: Phase,
        round_number: int,
        participants: Sequence[int],
        min_clients: int,
        answer: Message | None,
        traffic: RoundTraffic,
    ) -> tuple[Message | None, list[int]]:
        """Return the phase's answer and who is left; no answer where too few are."""
        clock = self.account.clock
        self._aggregator.begin_phase(phase.name, round_number, answer)
        left = []
        for index in participants:
            try:
                with nullcontext() if self._layout is None else self._layout.naming_tensors():
                    message = self.clients[index].step(
                        phase.name, None if answer is None else self._for(index, answer)
                    )
                with clock.stage("upload"):
                    wire = message.to_bytes()
                    received = Message.from_bytes(wire)
                traffic.bytes_up += len(wire)
                if index not in traffic.senders:
                    traffic.senders.append(index)
                self._aggregator.receive(phase.name, index, received)
            except RangeError as error:
                self._leave(round_number, index, error)
                continue
            left.append(index)
        if len(left) < min_clients:
            return None, left
        result = self._aggregator.close(phase.name)
        if phase.answered_by_authority:
            assert self._authority is not None
            result = self._authority.answer(phase.name, Message.from_bytes(result.to_bytes()))
        return result, left
