"""The embedded federation: all roles of one method in one process, messages as the bytes they would be."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext

import numpy as np

from shieldfl.authority.message import Message
from shieldfl.errors import ConvergenceError, RangeError
from shieldfl.lab.simulation.training_processes import ClientTraining, Trained
from shieldfl.learning.local_trainer import LocalTrainer, training_seed
from shieldfl.models.model_layout import ParameterLayout
from shieldfl.rounds.driver import EmbeddedRoles, RoundDriver, RoundTraffic
from shieldfl.rounds.method import Method
from shieldfl.rounds.opening_rule import OpenedTogether
from shieldfl.rounds.plan import GlobalModel
from shieldfl.rounds.reports import Account

__all__ = ["EmbeddedFederation"]

_MOST_DRAWS = 10_000


class EmbeddedFederation(EmbeddedRoles):
    """Moves messages between the roles of one method, each as the bytes that it would be.

    Clients' steps run one after another in this process; where they train, others' steps go on. Totals that all clients
    open alike are opened once; the seconds of it count for each client. What a client's messages of a round were made
    of is let go with the round's end: memory is that of the clients of one round.

    Parameters
    ----------
    method, initial, weights, threads, shared_secret : as for :class:`EmbeddedRoles`.
    trainers : one for each of the plan's clients, in ``processes`` beside this one, see
        :class:`ClientTraining`.
    seed : makes sampling and training repeatable.
    layout : of the model, so that an update that is refused names the tensor; None where it is not known.
    account : takes the roles' reports; None for a new one of the method's.
    kept : what :meth:`parts` returned in another process, and the key: goes on with the round that came next there.
    clients_keep_nothing : whether what a client sends depends on the models and its data alone, and not on which rounds
        it was in: then the account is told of whom clients are drawn.
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
        kept: tuple[Message, bytes] | None = None,
        clients_keep_nothing: bool = False,
        processes: int = 1,
    ) -> None:
        together = OpenedTogether(method.plan.clients)
        super().__init__(
            method,
            initial,
            weights,
            threads=threads,
            shared_secret=shared_secret,
            kept=kept,
            together=together,
        )
        self.account = method.account() if account is None else account
        self._shared = together
        self._training = ClientTraining(trainers, self._trained, processes)
        self._seed = seed
        self._layout = layout
        self._losses: dict[int, float | None] = {}
        """Of the round's clients, in their order; None for one without."""
        self._saved_seconds = 0.0
        """Of the round, see :attr:`RoundTraffic.saved_seconds`."""
        self._refused: dict[int, RangeError] = {}
        self._driver = RoundDriver(method, self.authority, self.aggregator, self, self.account)
        self._drawn_from = len(trainers) if clients_keep_nothing else None
        # One of the clients that went through the last round that was not given up.
        self._newest = 0
        # Dropouts of their own, so that they do not change who is drawn.
        seeds = {"sampling": [seed, len(trainers)], "dropouts": [seed, len(trainers), 1]}
        self._draws = {name: np.random.default_rng(one) for name, one in seeds.items()}
        if kept is not None:
            parts, _ = kept
            self._newest = parts.number("newest")
            for name, generator in self._draws.items():
                generator.bit_generator.state = json.loads(bytes(parts[name]))

    def parts(self, key: bytes) -> Message:
        # Of 128 bits, which only JSON writes as they are.
        draws = {name: json.dumps(one.bit_generator.state).encode() for name, one in self._draws.items()}
        return Message({**super().parts(key), "newest": Message.from_number(self._newest), **draws})

    @property
    def model(self) -> Message:
        """The newest global model, as a message brings it, or as clients that open sums have it."""
        return self.clients[self._newest].global_model(self._driver.model)

    def draw(self, sample_rate: float, min_clients: int) -> list[int]:
        """Draw each client with the same probability; draw again when too few came, which is charged, or too many.

        Of too many nothing is charged, since nothing is sent: how many came follows from no data, and among those of
        one number all sets stay alike. A charge of so many would stand for more noise than a round has.

        Raises ConvergenceError after 10,000 draws: such a federation would never start a round.
        """
        most = self.method.plan.most_participants
        for _ in range(_MOST_DRAWS):
            chosen = np.flatnonzero(self._draws["sampling"].random(len(self.clients)) < sample_rate)
            if len(chosen) > most:
                continue
            self.account.charge_draw(len(chosen), self._drawn_from)
            if len(chosen) >= min_clients:
                return [int(index) for index in chosen]
        bounded = self.method.plan.max_clients is not None
        raise ConvergenceError(
            f"{_MOST_DRAWS:,} draws gave no {min_clients} clients{f', and no more than {most},' * bounded}: "
            f"raise sample_rate or lower min_clients{', or raise max_clients' * bounded}"
        )

    def draw_leavers(self, participants: Sequence[int], dropout: float, round_number: int) -> dict[int, str]:
        """Draw who leaves the round, and before which phase: each with the same probability, any phase alike.

        In every method the same clients leave.
        """
        phases = [phase.name for phase in self.method.round_phases(self._driver.model, round_number)]
        draws = self._draws["dropouts"].random((len(participants), 2))
        return {
            index: phases[int(moment * len(phases))]
            for index, (chance, moment) in zip(participants, draws, strict=True)
            if chance < dropout
        }

    def close(self) -> None:
        self._training.close()

    def run_round(
        self,
        round_number: int,
        participants: Sequence[int],
        min_clients: int = 1,
        leaving: Mapping[int, str] | None = None,
    ) -> RoundTraffic:
        """Run one round as :meth:`RoundDriver.run_round`, and take what the roles report of it."""
        try:
            traffic = self._driver.run_round(round_number, participants, min_clients, leaving)
            self._training.wait_for_all()
            traffic.losses = [loss for loss in self._losses.values() if loss is not None]
            traffic.saved_seconds = self._saved_seconds + self._training.take_saved()
            self._newest = next(iter(traffic.finished), self._newest)
            return traffic
        except BaseException:
            self.close()  # who trains yet does so for nothing
            raise
        finally:
            # Also what left in a round that something stopped.
            self.report_to(self.account)
            for index in participants:
                self.clients[index].forget_round()

    def begin_round(
        self,
        clients: Sequence[int],
        round_number: int,
        participants: int,
        message_of: Callable[[int], Message],
    ) -> None:
        self._losses, self._refused, self._saved_seconds = dict.fromkeys(clients), {}, 0.0
        self._training.take_saved()  # of a round that something stopped
        for index in clients:
            model = message_of(index)
            with self.account.clock.stage("merge"):
                start = self.clients[index].begin_round(round_number, participants, model)
            self._charge("merge")
            self._training.begin(index, start, training_seed(self._seed, round_number, index))

    def _trained(self, trained: Trained) -> None:
        self.account.clock.add(trained.seconds)
        try:
            if isinstance(trained.outcome, RangeError):
                raise trained.outcome
            self.clients[trained.client].finish_training(trained.outcome)
            self._losses[trained.client] = trained.loss
        except RangeError as error:
            self._refused[trained.client] = error

    def step(
        self, clients: Sequence[int], phase: str, message_of: Callable[[int], Message] | None
    ) -> Iterator[tuple[int, bytes | RangeError]]:
        for index in clients:
            self._training.wait_for(index)
            if index in self._refused:
                yield index, self._refused.pop(index)
                continue
            found: bytes | RangeError
            try:
                with nullcontext() if self._layout is None else self._layout.naming_tensors():
                    message = self.clients[index].step(
                        phase, None if message_of is None else message_of(index)
                    )
                self._charge("open")
                with self.account.clock.stage("upload"):
                    found = message.to_bytes()
            except RangeError as error:
                found = error
            yield index, found

    def end_round(self, clients: Sequence[int], message_of: Callable[[int], Message]) -> None:
        stage = "open" if self.method.clients_open else "merge"
        for index in clients:
            with self.account.clock.stage(stage):
                self.clients[index].end_round(message_of(index))
            self._charge(stage)

    def _charge(self, stage: str) -> None:
        """Count the seconds that a client of its own machine would have taken for what another one here has opened."""
        saved = self._shared.take_saved()
        self.account.clock.add({stage: saved})
        self._saved_seconds += saved
