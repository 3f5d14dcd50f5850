"""The key authority's steps: whom it invites, what it signs, and what it answers the role that opens."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

from shieldfl.array_view import Buffer, as_unsigned
from shieldfl.authority.message import Message
from shieldfl.authority.round_key_check import INVITED, RoundKeyCheck, digest_of_parts
from shieldfl.authority.round_keys import RoundSigner
from shieldfl.encryption.registry import scheme_of
from shieldfl.errors import DataError, ParameterError, PolicyError
from shieldfl.masks import Mask
from shieldfl.privacy.events import OpenedSum
from shieldfl.rounds.opening_rule import (
    ANSWER,
    ANSWERED_PHASE,
    ANSWERED_ROUND,
    HISTORY,
    HISTORY_BYTES,
    OpeningRule,
    Replies,
    RoundOpener,
    is_digest,
    newest_answer,
    next_history,
)
from shieldfl.rounds.plan import RoleContext
from shieldfl.rounds.reports import Reporter
from shieldfl.stateful import refuse_unless

if TYPE_CHECKING:
    from shieldfl.authority.authority_store import AuthorityStore

_First = tuple[Message, Mapping[int | None, bytes], dict[str, bytes]]
"""A first message's parts for clients, the digests to sign (by client; None: for all), the round's keys."""


class AuthoritySteps(Reporter, metaclass=abc.ABCMeta):
    """The key authority: it invites clients, makes and signs what rounds begin with, and answers."""

    changes: ClassVar = {
        "keys": RoundSigner,
        "_round": int,
        "_invited": Mask,
        "enrolled_names": dict[int, str],
    }
    needs_sealing = True

    def __init__(self, context: RoleContext, keys: RoundSigner, store: AuthorityStore | None = None) -> None:
        super().__init__()
        self.context = context
        self.keys = keys
        self.enrolled_names: dict[int, str] = {}
        """Names of clients that enrolled by one, by client."""
        self._store = store
        self._number = 0
        """Number of the newest state in the store that is known here."""
        self._is_current = False
        """Whether this is that state, which after an error nobody knows."""
        self._round = 0
        self._invited = Mask.full(context.plan.clients)

    def check_changed(self) -> None:
        plan, invited = self.context.plan, self._invited
        self._check_untold(plan.rounds, range(plan.clients))
        refuse_unless(-1 <= self.keys.newest_round <= plan.rounds)
        refuse_unless(0 <= self._round <= plan.rounds and invited.size == plan.clients)
        # Before the first round all are, however many may be asked in one.
        refuse_unless(plan.min_clients <= invited.count)
        refuse_unless(self._round == 0 or invited.count <= plan.most_participants)
        names = self.enrolled_names
        refuse_unless({*names} <= {*range(plan.clients)} and len({*names.values()}) == len(names))

    def _step(self, work: Callable[[], Message], *, opens: bool = False) -> Message:
        """Return the result of a step. If there is a store, what the step changes is on the disk by then.

        A step that fails changes nothing. If it ``opens`` sums, its changes are kept in spite of the failure,
        except after an error of the disk or an interrupt. The next step begins from what the store has.
        """
        with self._lock:
            store = self._store
            if store is None:
                return work()

            failures: list[Exception] = []

            def kept() -> tuple[int, Message]:
                self._load(store)
                self._is_current = False  # until all is on the disk
                try:
                    result = work()
                except Exception as failure:
                    if not opens or isinstance(failure, DataError):
                        raise
                    failures.append(failure)
                    return store.keep_state(self._packed(None)), Message()
                return store.keep_state(self._packed(None)), result

            self._number, result = store.together(kept)
            self._is_current = True
            if failures:
                raise failures.pop()  # in no variable: it refers to this frame, and so would keep the request
            return result

    def settle(self, check: RoundKeyCheck) -> None:
        """Take the check of a new public set-up, and keep the first state in the store, if there is one.

        Raises PolicyError for a store that is not new.
        """
        store = self._store
        if store is None:
            self.keys.settle(check)
            return

        def first() -> int:
            store.check_new()
            self.keys.settle(check)
            return store.keep_state(self._packed(None))

        self._number = store.together(first)
        self._is_current = True

    def load(self) -> None:
        """Continue from the state in the store, if there is a store and it may have another state."""
        store = self._store
        if store is not None:
            with self._lock:
                store.together(lambda: self._load(store))

    def _load(self, store: AuthorityStore) -> None:
        number = store.state_number
        if number != self._number or not self._is_current:
            super().restore(store.state())
            self._number, self._is_current = number, True

    def restore(self, state: Buffer, key: bytes | None = None) -> None:
        """See :class:`Reporter`. Raises PolicyError if the state is in a store, from which this continues."""
        if self._store is not None:
            raise PolicyError(
                "this authority's state is in its store: make the authority by authority_steps with it"
            )
        super().restore(state, key)

    def _asked(self, round_number: int, clients: Iterable[int] | None) -> Mask:
        """Return the clients that a round asks, all for None; nothing changes.

        Raises PolicyError, ParameterError.
        """
        plan = self.context.plan
        if clients is None:
            clients = range(plan.clients)
        if not isinstance(clients, Iterable):
            raise ParameterError(f"the invited clients must be numbers, not {type(clients).__name__}")
        numbers = [as_unsigned(client, "an invited client") for client in clients]
        if max(numbers, default=0) >= plan.clients:
            raise ParameterError(
                f"client {max(numbers)} is none of the plan's: invite 0 to {plan.clients - 1}"
            )
        invited = Mask.from_indices(numbers, plan.clients)
        if invited.count < plan.min_clients:
            raise PolicyError(
                f"round {round_number} would ask {invited.count} clients, fewer than min_clients = "
                f"{plan.min_clients}: its total would not be opened"
            )
        if invited.count > plan.most_participants:
            raise PolicyError(
                f"round {round_number} would ask {invited.count} clients, more than max_clients = "
                f"{plan.max_clients}: a sum has no room for so many. Name fewer, as begin_round's invited"
            )
        if round_number == self._round and invited != self._invited:
            raise PolicyError(
                f"round {round_number} was begun with other clients, who know how many they are: begin a "
                "later round"
            )
        return invited

    def check_list(self, round_number: int, clients: Iterable[int]) -> None:
        if round_number != self._round:
            raise PolicyError(f"round {round_number} does not run: have the authority begin it")
        if not set(clients) <= set(self._invited.to_indices().tolist()):
            raise PolicyError(
                f"the list names clients that were not invited to round {round_number}: they cannot be in "
                "its total"
            )

    def enrol(self, client: int, enrolment: Message, name: str | None = None) -> Message:
        """Take what :meth:`TrainingClient.enrolment` returned; return what its ``enrolled`` takes.

        The caller vouches that it is this client's. Enrolment ends once all clients are enrolled and, if the
        aggregator opens sums, it is granted the answers. ``name`` is the client's, if clients have names: one
        name is one client, and one client one name (PolicyError).
        """
        number = self.context.plan.client(client)

        def step() -> Message:
            names = self.enrolled_names
            if name is not None:
                others = {**names, number: None}.values()
                if names.get(number, name) != name or name in others:
                    raise PolicyError(
                        f"{name} has enrolled as another client of this session, or client {number} by "
                        "another name"
                    )
            grant = self.keys.enrol(number, enrolment["enrolment"])
            if name is not None:
                self.enrolled_names = {**names, number: name}
            return Message({"grant": grant}) if self.context.clients_open else Message()

        return self._step(step)

    def revoke(self, *clients: int) -> None:
        """Answer no further list that names one of these clients.

        Raises ParameterError if clients do not enrol.
        """

        def step() -> Message:
            for client in clients:
                self.keys.revoke(client)
            return Message()

        self._step(step)

    def grant(self, request: Message) -> Message:
        """Take what :meth:`CollectingAggregator.enrolment` returned; return what its ``enrolled`` takes.

        The caller vouches that it is the aggregator's. The same request gets the same again.
        """
        if not self.context.aggregator_opens:
            raise ParameterError("the aggregator of this federation opens nothing: it is granted no answers")
        return self._step(lambda: Message({"grant": self.keys.enrol(None, request["enrolment"])}))

    def close(self) -> None:
        """Close the store, so that another process can continue from it."""
        if self._store is not None:
            self._store.close()

    @abc.abstractmethod
    def newest_model(self) -> Message:
        """Return what the next round starts from: the model, and what travels with it."""

    def begin_round(
        self, round_number: int, invited: Iterable[int] | None = None, model: bytes = b""
    ) -> Message:
        """Begin a round; return its first message: the newest model, public keys and who is invited, signed.

        The aggregator gets only the keys. If it opens sums, it has the model, adds it, and gives its digest,
        ``model``. ``invited`` is None for all of the plan. Secrets of the round before are wiped. A round
        that is begun again has the same first message, except, if clients open sums, for what was answered
        since. Raises PolicyError.
        """
        number = as_unsigned(round_number, "round_number")

        def step() -> Message:
            asked = self._asked(number, invited)
            frame = asked.to_bytes()
            first, digests, keys = self._first(number, model)
            signatures: dict[str, bytes] = {}
            for client, digest in digests.items():
                signatures |= self.keys.sign_model(digest, frame, client)
            self._round, self._invited = number, asked
            return Message({**first, INVITED: frame, **keys, **signatures})

        return self._step(step)

    @abc.abstractmethod
    def _first(self, number: int, model: bytes) -> _First:
        """Begin a round."""

    @abc.abstractmethod
    def answer(self, phase: str, message: Message) -> Message:
        """Turn the aggregator's result into the clients' answer; the same message gets the same."""

    def sign_answer(self, phase: str, round_number: int, digest: bytes) -> Message:
        """Sign a phase's answer: for an aggregator that opens, or for clients of several authorities."""
        raise ParameterError("the aggregator of this federation opens nothing: it has no answers to sign")


class RoundAuthority(AuthoritySteps):
    """Opens totals itself, by a method's rule, and keeps the model: clients get it signed."""

    changes: ClassVar = {"opener": RoundOpener}
    opened_event = OpenedSum

    def __init__(self, rule: OpeningRule, keys: RoundSigner, store: AuthorityStore | None = None) -> None:
        super().__init__(rule.context, keys, store)
        self.opener = RoundOpener(rule)

    def newest_model(self) -> Message:
        with self._lock:
            self.load()
            return self.opener.newest_model()

    def _first(self, number: int, model: bytes) -> _First:
        with self.clock.stage("open"):
            first, rule = self.opener.model_of(number), self.opener.rule
            keys = self.keys.begin_round(number, rule.purposes(number, first))
        return first, rule.digests(first), keys

    def answer(self, phase: str, message: Message) -> Message:
        self.context.check_answered(phase)

        def finish(answer: Message) -> Message:
            if phase not in self.context.signed:
                return answer
            return Message({**answer, **self.keys.sign_answer(phase, digest_of_parts(answer))})

        def step() -> Message:
            with self.clock.stage(self.context.stage_of(phase)):
                return self.opener.answer(phase, message, self, self.keys, finish)

        return self._step(step, opens=True)


class ListAuthority(AuthoritySteps):
    """Answers lists of participants, for every method alike: it sees lists and digests, no total or model.

    If clients open sums, it signs the number of the round, the digest of all its answers so far, and the last
    round that it answered in each phase. By the digest clients know that they have, and agree on, every
    opened sum.

    If the aggregator opens sums, it signs digests of what that sends: one model between two answers, for all
    clients, and before the first of them the model that the set-up pins, whose digest is ``first_model``. It
    cannot tell a model that follows from a sum from one that the aggregator has made up, but there is only
    one. The same holds for answers in between, which say what is encrypted.
    """

    changes: ClassVar = {
        "_replies": Replies,
        "_signed_answers": Replies,
        "_history": bytes,
        "_model": bytes,
        "_model_after": int,
        "_for_the_run": dict[str, bytes],
    }

    def __init__(
        self,
        context: RoleContext,
        keys: RoundSigner,
        store: AuthorityStore | None = None,
        first_model: bytes = b"",
    ) -> None:
        super().__init__(context, keys, store)
        self._replies = Replies()
        self._signed_answers = Replies()
        self._history = bytes(HISTORY_BYTES)
        self._model = self._first_model = first_model
        self._model_after = -1
        """Last answered round when the model was first signed; -1 before the first."""
        self._for_the_run: dict[str, bytes] = {}
        """Digest that was signed for the aggregator, by phase that is answered once in a run."""

    def check_changed(self) -> None:
        context = self.context
        refuse_unless(len(self._history) == HISTORY_BYTES and len(self._model) == len(self._first_model))
        self._replies.check(dict.fromkeys(context.answered, context.plan.rounds))
        refuse_unless(-1 <= self._model_after <= self._last_round)
        refuse_unless(self._model_after >= 0 or self._model == self._first_model)
        signed = context.signed if context.aggregator_opens else tuple(context.answered)
        once = set(context.answered_once) & set(context.signed) if context.aggregator_opens else set()
        begun = self.keys.newest_round
        self._signed_answers.check(
            {phase: begun if phase in once else self._replies.newest(phase)[0] for phase in signed}
        )
        refuse_unless(self._for_the_run.keys() <= once and all(map(is_digest, self._for_the_run.values())))

    def newest_model(self) -> Message:
        with self._lock:
            self.load()
            return self._newest()

    def _newest(self) -> Message:
        last = {phase: max(self._replies.newest(phase)[0], 0) for phase in self.context.answered}
        rounds = {newest_answer(phase): Message.from_number(number) for phase, number in last.items()}
        return Message({HISTORY: self._history, **rounds})

    @property
    def _last_round(self) -> int:
        """The last round that was answered to its end; -1 before the first."""
        return self._replies.newest(self.context.phases[-1])[0]

    def _first(self, number: int, model: bytes) -> _First:
        after, has_model = self._last_round, self.context.aggregator_opens
        if has_model and not is_digest(model):
            raise ParameterError("the aggregator begins rounds with a model: give its digest, 32 bytes")
        if has_model and after == self._model_after and model != self._model:
            raise PolicyError(
                "no round was answered since another model was signed, or none at all: begin with that "
                "model, or with the initial one"
            )
        self.context.check_round(number, after)
        keys = self.keys.begin_round(number, tuple(self.context.keys.parameters))
        if has_model:
            self._model, self._model_after = bytes(model), after
            return Message(), {None: model}, keys
        first = Message({"round": Message.from_number(number), **self._newest()})
        return first, {None: digest_of_parts(first)}, keys

    def answer(self, phase: str, message: Message) -> Message:
        self.context.check_answered(phase)

        def step() -> Message:
            number = message.number("round")
            before = self._replies.newest(phase)[0]
            if phase in self.context.answered_once and 0 <= before < number:
                raise PolicyError(
                    f"a total of phase {phase!r} was answered in round {before}, and another one would tell "
                    "of single clients: what was opened then is good for the whole run"
                )
            given = self._replies.given(phase, number, message)
            if given is not None:
                return given
            with self._replies.undone_unless_kept(phase, number, self):
                reply = self._answered(phase, number, message)
                self.record(OpenedSum(number))
                return self._replies.keep(phase, number, message, reply)

        with self.clock.stage("open"):
            return self._step(step)

    def _answered(self, phase: str, number: int, message: Message) -> Message:
        request = bytes(message["request"])
        purpose = self.context.answered[phase]
        if purpose is None:
            raise ParameterError(f"phase {phase!r} opens nothing: there is nothing to ask for")
        # One aggregator alone has all answers: it need not agree with others on what they were.
        if self.context.clients_open and message[HISTORY] != self._history:
            raise PolicyError(f"the request follows other answers than these: begin round {number} again")
        asked = scheme_of(self.context.keys.parameters[purpose]).PublicKey.read_request(request)
        self.check_list(number, [client for client, _ in asked.participants])
        answer = self.keys.sum_key(number, purpose, request)
        self._history = next_history(self._history, request)
        return Message(
            {ANSWER: answer, ANSWERED_ROUND: Message.from_number(number), ANSWERED_PHASE: phase.encode()}
        )

    def sign_answer(self, phase: str, round_number: int, digest: bytes) -> Message:
        """Sign the answer of a phase, once, since clients continue from it.

        A phase that is answered once in the whole run has the same answer in every round. One of several
        authorities, if dishonest, could tell one client something else. That client would then continue from
        another model or mask, and be alone with it in the next sum.
        """
        context = self.context
        if context.clients_open and len(context.keys.identity.members) == 1:
            return super().sign_answer(phase, round_number, digest)
        context.check_answered(phase)
        number = as_unsigned(round_number, "round_number")
        if not is_digest(digest) or (context.aggregator_opens and phase not in context.signed):
            raise ParameterError(f"of phase {phase!r} no answer of this length is signed")
        once = context.aggregator_opens and phase in context.answered_once

        def step() -> Message:
            answered, newest = self._replies.newest(phase)[0], self.keys.newest_round
            if number != newest or not (answered == number or (once and 0 <= answered < number)):
                raise PolicyError(
                    f"phase {phase!r} of round {number} does not run, or its list was not answered: nothing "
                    "is signed"
                )
            if self._for_the_run.get(phase, digest) != digest:
                raise PolicyError(f"another answer of phase {phase!r} was signed, for the whole run")
            asked = Message({"digest": bytes(digest)})
            signed = self._signed_answers.given(phase, number, asked)
            if signed is None:
                signature = Message(self.keys.sign_answer(phase, digest))
                signed = self._signed_answers.keep(phase, number, asked, signature)
            if once:
                self._for_the_run = {**self._for_the_run, phase: bytes(digest)}
            return signed

        return self._step(step)
