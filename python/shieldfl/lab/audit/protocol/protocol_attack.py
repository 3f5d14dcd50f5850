"""Attacks on the protocol: a lie, told in a small federation to a method's own roles, and its outcome.

The lying aggregator has a client on its side. Both keep what they were sent, and ask.
"""

from __future__ import annotations

import functools
import secrets
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from shieldfl.array_view import FloatVector
from shieldfl.authority.message import Message
from shieldfl.authority.role_state import SEALING_KEY_BYTES
from shieldfl.errors import ParameterError, ShieldError, WireFormatError
from shieldfl.lab.audit.attack import (
    FEWEST_TRIES,
    UNDEFENDED,
    Cell,
    FederationAttack,
    OnFederation,
    bootstrap_interval,
)
from shieldfl.lab.audit.audit_config import AuditConfig
from shieldfl.lab.audit.views.observed_update import Flags
from shieldfl.lab.audit.views.view import parameters_of, planned, why_sums_are_unread
from shieldfl.learning.local_update import contraction
from shieldfl.methods.registry import MethodSettings, method_class
from shieldfl.rounds.collecting_aggregator import CollectingAggregator
from shieldfl.rounds.driver import RoundDriver
from shieldfl.rounds.method import EmbeddedRoles
from shieldfl.rounds.opening_rule import HISTORY
from shieldfl.rounds.plan import GlobalModel
from shieldfl.rounds.reports import Reporter
from shieldfl.rounds.training_client import TrainingClient

_SHARES_OF_LAYERS = (0.6, 0.95, 1.0)
_SHARED = bytes(range(32))
"""Secret of the clients and the key authority, for methods in which they share one."""
_ROUNDS = 100


class PlayedFederation(EmbeddedRoles):
    """Rounds of one method, whose clients train without data: lies do not depend on what is learned.

    ``config`` is the audit's: number of clients, fewest clients of a round, opener. ``parameters`` is the
    model's number of parameters. ``kept`` is the state of another federation's roles before their first
    round, and its key, as for :class:`EmbeddedRoles`. Raises ParameterError for what the method refuses.
    """

    def __init__(
        self,
        name: str,
        settings: MethodSettings,
        config: AuditConfig,
        parameters: int,
        *,
        kept: tuple[Message, bytes] | None = None,
    ) -> None:
        drawn = np.random.default_rng(config.seed).normal(0.0, 0.3, parameters).astype(np.float32)
        method = planned(
            name,
            settings,
            config,
            rounds=_ROUNDS,
            parameters=parameters,
            layer_offsets=(0, *(int(share * parameters) for share in _SHARES_OF_LAYERS)),
            samples=config.clients * config.samples,
        )
        model = GlobalModel(drawn, np.empty(0, np.float32))
        super().__init__(method, model, threads=1, shared_secret=_SHARED, kept=kept)
        self.changes: dict[int, FloatVector] = {}
        """Change (P,) of the global model by a client's training in the current round, by client number."""
        self.round = 0
        self._seed = config.seed
        self._account = self.method.account()

    @classmethod
    def set_up(cls, *how: Any) -> PlayedFederation:
        """Return a federation as if just set up. Keys, which may take seconds to make, are made once."""
        return cls(*how, kept=_kept(*how))

    def unplayable(self) -> str | None:
        """Return why lies do not fit these roles, else None: lies rely on how this package's roles open."""
        clients_fit = all(isinstance(one, TrainingClient) for one in self.clients)
        if clients_fit and isinstance(self.aggregator, CollectingAggregator):
            return None
        return "the roles of this method are none of this package's, for which lies are written"

    def run_round(self) -> ShieldError | None:
        self.round += 1
        driver = RoundDriver(self.method, self.authority, self.aggregator, self, self._account)
        try:
            driver.run_round(self.round, range(len(self.clients)), min_clients=0)
        except ShieldError as error:
            return error
        return None

    def begin_round(
        self,
        clients: Sequence[int],
        round_number: int,
        participants: int,
        message_of: Callable[[int], Message],
    ) -> None:
        for index in clients:
            client, first = self.clients[index], message_of(index)
            start = client.begin_round(round_number, participants, first)
            update = contraction(round_number, self._seed + index, start)
            if (trained := self.method.trained) is not None:
                frozen = ~trained
                frozen.scatter(frozen.gather(start.parameters), update.parameters)
            client.finish_training(update)
            known = client.global_model(first)
            held = (
                known.vector("parameters", np.float32, start.parameters.size)
                if "parameters" in known
                else start.parameters
            )
            self.changes[index] = update.parameters - held

    def step(
        self, clients: Sequence[int], phase: str, message_of: Callable[[int], Message] | None
    ) -> Iterator[tuple[int, bytes]]:
        for index in clients:
            answer = None if message_of is None else message_of(index)
            yield index, self.clients[index].step(phase, answer).to_bytes()

    def end_round(self, clients: Sequence[int], message_of: Callable[[int], Message]) -> None:
        for index in clients:
            self.clients[index].end_round(message_of(index))


@functools.lru_cache(maxsize=32)
def _kept(*how: Any) -> tuple[Message, bytes]:
    key = secrets.token_bytes(SEALING_KEY_BYTES)
    return PlayedFederation(*how).parts(key), key


Messages = Mapping[int, Message]
Role = TypeVar("Role", bound=Reporter)


@dataclass(frozen=True)
class Question:
    """What a key authority can be asked: a closed phase's result or, if it opens nothing, a client list."""

    phase: str
    round: int
    closed: Message
    asked: Message
    model: Message
    aggregator: CollectingAggregator
    """The aggregator that closed the phase; where the aggregator opens, it alone opens the answer."""
    reader: TrainingClient
    """Copy of the liar's client at the time of the question; where clients open, it opens the answer."""


class LyingAggregator:
    """Takes over an honest aggregator's steps, and lies before the last phase's result leaves.

    It makes every further sum with a copy of the honest role in its state, so that the round continues as if
    nothing had been asked. A client on its side, the ``reader``, opens what clients may open. Policies that
    the reader's own code keeps, such as the fewest clients of a sum, are left out.

    ``changes`` returns each client's change of the model by this round's training, (P,); a lie may use the
    reader's. ``lie`` is called with the last phase before its result leaves. ``alter`` returns what is taken
    instead of a client's message.
    """

    def __init__(
        self,
        roles: EmbeddedRoles,
        reader: int,
        changes: Callable[[], Mapping[int, FloatVector]],
        lie: Callable[[LyingAggregator, str], None],
        alter: Callable[[LyingAggregator, str, int, Message], Message],
    ) -> None:
        self.roles, self.reader = roles, reader
        self.honest: Any = roles.aggregator
        self._changes, self._lie, self._alter = changes, lie, alter
        self.round = 0
        self.first = Message()
        """First message to the clients of the round; empty if there is no key authority."""
        self.sent: dict[int, Message] = {}
        self.answers: dict[str, Message | None] = {}
        """Clients' answer to the phase before, by name of the round's phase; None if there is none."""
        self._taken: dict[int, Message] = {}
        self.refused: ShieldError | None = None
        """Error with which the honest role refused an altered message; None if it took all of them.

        It then took the original message.
        """
        self.kept: dict[int, Question] = {}
        """Question of an earlier round that a lie returns to, by client number."""

        honest = self.honest
        self._begin, self._receive, self._close = honest.begin_phase, honest.receive, honest.close
        for step in ("begin_phase", "receive", "close"):
            setattr(self.honest, step, getattr(self, step))

    @property
    def own_change(self) -> FloatVector:
        return self._changes()[self.reader]

    def begin_phase(self, phase: str, round_number: int, answer: Message | None) -> None:
        self._begin(phase, round_number, answer)
        if round_number != self.round:
            self.round, self.answers = round_number, {}
            self.first = Message()
            if (authority := self.roles.authority) is not None:
                # The round is begun again, as it was.
                signed = authority.begin_round(self.round, None, self.honest.model_digest())
                own = self.honest.newest_model() if self.roles.method.aggregator_opens else Message()
                self.first = Message({**own, **signed})
        self.answers[phase] = answer
        self.sent, self._taken, self.refused = {}, {}, None

    def receive(self, phase: str, client: int, message: Message) -> None:
        taken = self._alter(self, phase, client, message)
        try:
            self._receive(phase, client, taken)
        except ShieldError as error:
            if taken is message:
                raise
            self.refused, taken = error, message
            self._receive(phase, client, message)
        self.sent[client], self._taken[client] = message, taken

    def close(self, phase: str) -> Message:
        result: Message = self._close(phase)
        if phase == self.roles.method.phases[-1].name:
            self._lie(self, phase)
        return result

    def question(self, phase: str, messages: Messages | None = None) -> Question:
        """Sum messages of the phase, None for those it took, and return the question for their sum."""
        copied = _copied(self.honest, self.roles.new_aggregator())
        copied.begin_phase(phase, self.round, self.answers[phase])
        for client, message in (self._taken if messages is None else messages).items():
            copied.receive(phase, client, Message.from_bytes(message.to_bytes()))
        closed = copied.close(phase)
        method = self.roles.method
        opens_apart = method.clients_open or method.aggregator_opens
        asked = copied.request(phase) if opens_apart else closed
        reader = _copied(self.roles.clients[self.reader], self.roles.new_client(self.reader))
        return Question(phase, self.round, closed, asked, self._model(), copied, reader)

    def _model(self) -> Message:
        roles, method = self.roles, self.roles.method
        if method.aggregator_has_model:
            newest: Message = self.honest.newest_model()
            return newest
        if method.clients_open:
            return roles.clients[self.reader].global_model(Message())
        assert roles.authority is not None
        return roles.authority.newest_model()

    def changed_since(self, question: Question, client: int) -> FloatVector:
        return self._parameters(client, self._model()) - self._parameters(client, question.model)

    def _parameters(self, client: int, model: Message) -> FloatVector:
        method = self.roles.method
        return parameters_of(method.message_for(client, model), method.plan.parameters)

    def answer(self, question: Question, victim: int) -> FloatVector:
        """Ask the key authority, and return the change (P,) of the model that the victim would then have.

        Raises the error of a refusal, and WireFormatError for a sum that opens to nothing usable.
        """
        authority = self.roles.authority
        assert authority is not None
        answer = authority.answer(question.phase, Message.from_bytes(question.asked.to_bytes()))
        method, phase, opened = self.roles.method, question.phase, answer
        opener = question.aggregator if method.aggregator_opens else question.reader
        if opener._opening is not None:
            opener._opening.keys._min_clients = 1  # its own policy, which a liar does not keep
        if method.aggregator_opens:
            opened = question.aggregator.open(phase, answer)
        elif method.clients_open:
            reader = question.reader
            assert reader._opening is not None
            reader.report()
            reader.end_round(Message({**question.closed, HISTORY: question.asked[HISTORY], **answer}))
            if reader._opening.newest_spoiled(phase) == question.round:
                raise WireFormatError("; ".join(one.text for one in reader.report().notes))
            opened = reader.global_model(Message())
        return self._parameters(victim, opened) - self._parameters(victim, question.model)


def _copied(role: Role, new: Role) -> Role:
    key = secrets.token_bytes(SEALING_KEY_BYTES) if role.needs_sealing else None
    new.restore(role.state(key), key)
    return new


_CLOSE = 0.01
"""Error up to which a value counts as told, as a share of the update's root mean square."""
_ALL = 0.9
"""Share of a client's encrypted values that counts as its update; the rest may differ by rounding."""
_MOST_ROUNDS = 4 * FEWEST_TRIES
"""Most rounds of all federations together; methods that alternate have rounds without encryption."""
_NO_LIE = "no lie is needed: each client's message has its update in the clear"
_SECRET = "aggregator-and-client"
"""Name of the party that lies and has a client, which opens what clients may open."""


def share_told(guess: NDArray[np.floating[Any]] | None, change: FloatVector, encrypted: Flags) -> float:
    """Return the share of encrypted values (P,) that a guess tells, to 1 % of their root mean square."""
    if guess is None:
        return 0.0
    true = change[encrypted].astype(np.float64)
    step = _CLOSE * float(np.sqrt(np.mean(true**2)))
    return float(np.mean(np.abs(guess[encrypted] - true) <= step))


_Try = tuple[float, float, int, str]
"""Share of values told, share that all clients' honest mean tells, victim's number, and refusal or ""."""


def _tried(
    guess: NDArray[np.floating[Any]] | None,
    changes: Mapping[int, FloatVector],
    victim: int,
    encrypted: Flags,
    refusal: str = "",
) -> _Try:
    honest = np.mean(list(changes.values()), axis=0)
    told, honestly = (share_told(one, changes[victim], encrypted) for one in (guess, honest))
    return told, honestly, victim, refusal


class ProtocolAttack(FederationAttack):
    """A lie of the aggregator, told on drawn updates; its result is compared with the true update."""

    measured_by = "values told"
    is_told = True
    parameters = 24
    """Number of parameters of the model; few, since Paillier takes milliseconds for each."""
    rounds_back = 0
    """How many rounds before the lie the victim sent the values that the lie is about."""
    needs_client = False
    """Whether the aggregator needs a client on its side to tell the lie."""
    in_first_rounds = False
    """Whether, where clients open, the lie is told in first rounds only: later ones need what they opened."""

    @classmethod
    @abstractmethod
    def obtain(cls, liar: LyingAggregator, phase: str, victim: int) -> FloatVector | None:
        """Tell the lie; return the victim's change of the model, (P,), as the lie tells it.

        Returns None in a round that only prepares the lie. Raises the ShieldError of a refusal.
        """

    @classmethod
    def alter(cls, liar: LyingAggregator, phase: str, client: int, message: Message) -> Message:
        return message

    @classmethod
    def inapplicable(cls, federation: PlayedFederation) -> str | None:
        return None

    @classmethod
    def size_for(cls, federation: PlayedFederation) -> int:
        return cls.parameters

    def cells(self, method: str, on_federation: OnFederation) -> list[Cell]:
        if not method_class(method).schemes and method != UNDEFENDED:
            raise ParameterError("the method has no keys: there is nothing that a lie could have opened")

        def made(parameters: int) -> PlayedFederation:
            return PlayedFederation.set_up(method, self._settings, self._config, parameters)

        federation = made(self.parameters)
        if method == UNDEFENDED:
            tries = self._read(federation)
            return [self._cell(method, party.name, tries, True) for party in self._parties]
        why = federation.unplayable() or self.inapplicable(federation)
        if why is not None:
            raise ParameterError(why)
        size = self.size_for(federation)
        tries = self._told(lambda: made(size))
        if not tries:
            raise ParameterError("nothing was encrypted in a round that this lie can be told in")
        opens = federation.method.aggregator_opens
        return [self._cell(method, party.name, tries, opens) for party in self._parties]

    def _read(self, federation: PlayedFederation) -> list[_Try]:
        """Return what the aggregator of a method without encryption reads off each message, without a lie."""
        everything = np.ones(self.parameters, np.bool_)
        tries: list[_Try] = []

        def read(liar: LyingAggregator, phase: str) -> None:
            for victim, message in liar.sent.items():
                guess = message.vector("update", np.float32, self.parameters)
                tries.append(_tried(guess, federation.changes, victim, everything))

        self._liar(federation, read)
        while len(tries) < FEWEST_TRIES:
            ended = federation.run_round()
            if ended is not None:
                raise ended
        return tries[:FEWEST_TRIES]

    def _liar(self, federation: PlayedFederation, lie: Callable[[LyingAggregator, str], None]) -> None:
        LyingAggregator(federation, len(federation.clients) - 1, lambda: federation.changes, lie, self.alter)

    def _told(self, made: Callable[[], PlayedFederation]) -> list[_Try]:
        federation = made()
        if why := why_sums_are_unread(federation.method):
            raise ParameterError(why)
        tries: list[_Try] = []

        past: list[tuple[dict[int, FloatVector], dict[int, Flags]]] = []
        """Clients' changes and encrypted positions in each round of the current federation, newest last."""

        def tell(liar: LyingAggregator, phase: str) -> None:
            changes = dict(federation.changes)
            past.append(
                (changes, {one: federation.clients[one].disclosure.encrypted.to_bool() for one in changes})
            )
            if self.in_first_rounds and liar.roles.method.clients_open and len(past) > 1:
                return
            victim = len(tries) % (len(liar.roles.clients) - 1)
            changes, of_all = past[max(len(past) - 1 - self.rounds_back, 0)]
            encrypted = of_all[victim]
            if not encrypted.any() and not self.rounds_back:
                return
            guess: FloatVector | None = None
            refusal = ""
            try:
                guess = self.obtain(liar, phase, victim)
                if guess is None:
                    return
            except ShieldError as error:
                refusal = f"{type(error).__name__}: {error}"
            if encrypted.any():
                tries.append(_tried(guess, changes, victim, encrypted, refusal))

        self._liar(federation, tell)
        for _ in range(_MOST_ROUNDS):
            before = len(tries)
            ended = federation.run_round()
            if ended is not None and len(tries) == before:
                raise ended  # of no lie's doing
            if len(tries) == FEWEST_TRIES:
                break
            # After an answered lie nothing in the federation fits together any more.
            if ended is not None or (self.in_first_rounds and federation.method.clients_open):
                federation = made()
                past.clear()
                self._liar(federation, tell)
        return tries

    def _cell(self, method: str, party: str, tries: list[_Try], opens: bool) -> Cell:
        if party not in (_SECRET, "aggregator"):
            why = f"it is a lie of the aggregator's, with a client or without: ask for {_SECRET}"
            return Cell(method, self.name, party, "does not apply", why)
        if self.needs_client and party != _SECRET and method != UNDEFENDED:
            why = f"the aggregator cannot tell this lie without a client on its side: ask for {_SECRET}"
            return Cell(method, self.name, party, "does not apply", why)
        reads = opens or party == _SECRET
        figures = [told if reads else 0.0 for told, *_ in tries]
        low, high = bootstrap_interval(figures, self._config.seed)
        return Cell(
            method,
            self.name,
            party,
            "attacked",
            measured_by=self.measured_by,
            figure=float(np.mean(figures)),
            low=low,
            high=high,
            chance=float(np.mean([honestly for _, honestly, *_ in tries])),
            tries=len(tries),
            form=_NO_LIE if method == UNDEFENDED else _in_words(max(tries, key=lambda one: one[0]), reads),
        )


def _in_words(best: _Try, reads: bool) -> str:
    told, _, victim, refusal = best
    if refusal:
        return f"refused with {refusal}"
    if not reads:
        return "answered, and the answer is for clients to open: the aggregator alone reads nothing of it"
    if told < _ALL:
        return f"answered, and what that opens to tells {told:.0%} of the values of client {victim}"
    return f"obtained: single update of client {victim}, {told:.0%} of its encrypted values"
