"""The key authority's steps: whom it invites, what it signs, and what it answers the role that opens."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping
from typing import ClassVar

from shieldfl.array_view import as_unsigned
from shieldfl.authority.message import Message
from shieldfl.authority.round_key_check import INVITED, digest_of_parts
from shieldfl.authority.round_keys import RoundSigner
from shieldfl.encryption.registry import scheme_of
from shieldfl.errors import ParameterError, PolicyError
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

_First = tuple[Message, Mapping[int | None, bytes], dict[str, bytes]]
"""A first message's parts for clients, the digests to sign (by client; None: for all), the round's keys."""


class AuthoritySteps(Reporter, metaclass=abc.ABCMeta):
    """The key authority: it invites clients, makes and signs what rounds begin with, and answers."""

    changes: ClassVar = {"keys": RoundSigner, "_round": int, "_invited": Mask}
    needs_sealing = True

    def __init__(self, context: RoleContext, keys: RoundSigner) -> None:
        super().__init__()
        self.context = context
        self.keys = keys
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

    def enrol(self, client: int, enrolment: Message) -> Message:
        """Take what :meth:`TrainingClient.enrolment` returned; return what its ``enrolled`` takes.

        The caller vouches that it is this client's. Enrolment ends once all clients are enrolled and, if the
        aggregator opens sums, it is granted the answers.
        """
        number = self.context.plan.client(client)
        with self._lock:
            grant = self.keys.enrol(number, enrolment["enrolment"])
        return Message({"grant": grant}) if self.context.clients_open else Message()

    def revoke(self, client: int) -> None:
        """Answer no further list that names this client. Raises ParameterError if clients do not enrol."""
        with self._lock:
            self.keys.revoke(client)

    def grant(self, request: Message) -> Message:
        """Take what :meth:`CollectingAggregator.enrolment` returned; return what its ``enrolled`` takes.

        The caller vouches that it is the aggregator's. The same request gets the same again.
        """
        if not self.context.aggregator_opens:
            raise ParameterError("the aggregator of this federation opens nothing: it is granted no answers")
        with self._lock:
            return Message({"grant": self.keys.grant_opener(request["enrolment"])})

    def close(self) -> None:
        self.keys.close()

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
        with self._lock:
            asked = self._asked(number, invited)
            frame = asked.to_bytes()
            first, digests, keys = self._first(number, model)
            signatures: dict[str, bytes] = {}
            for client, digest in digests.items():
                signatures |= self.keys.sign_model(digest, frame, client)
            self.keys.keep_first_message(number, self._kept(model, frame, signatures))
            self._round, self._invited = number, asked
            return Message({**first, INVITED: frame, **keys, **signatures})

    @abc.abstractmethod
    def _first(self, number: int, model: bytes) -> _First:
        """Begin a round."""

    @abc.abstractmethod
    def _kept(self, model: bytes, invited: bytes, signatures: dict[str, bytes]) -> bytes:
        """Return the digest of what stays the same if a round is begun again."""

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

    def __init__(self, rule: OpeningRule, keys: RoundSigner) -> None:
        super().__init__(rule.context, keys)
        self.opener = RoundOpener(rule)

    def newest_model(self) -> Message:
        with self._lock:
            return self.opener.newest_model()

    def _first(self, number: int, model: bytes) -> _First:
        with self.clock.stage("open"):
            first, rule = self.opener.model_of(number), self.opener.rule
            keys = self.keys.begin_round(number, rule.purposes(number, first))
        return first, rule.digests(first), keys

    def _kept(self, model: bytes, invited: bytes, signatures: dict[str, bytes]) -> bytes:
        # What is signed is all that may differ, and to sign the same again gives the same bytes.
        return digest_of_parts(Message(signatures))

    def answer(self, phase: str, message: Message) -> Message:
        self.context.check_answered(phase)
        with self._lock, self.clock.stage(self.context.stage_of(phase)):
            number = self.opener.rule.round_of(phase, message)
            with self.keys.replying(phase, number) as keep:

                def finish(answer: Message) -> Message:
                    digest = digest_of_parts(answer)
                    if phase in self.context.signed:
                        answer = Message({**answer, **self.keys.sign_answer(phase, digest)})
                    keep(digest)
                    return answer

                return self.opener.answer(phase, message, self, self.keys, finish)


class ListAuthority(AuthoritySteps):
    """Answers lists of participants, for every method alike: it sees lists and digests, no total or model.

    If clients open sums, it signs the number of the round, the digest of all its answers so far, and the last
    round that it answered in each phase. By the digest clients know that they have, and agree on, every
    opened sum.

    If the aggregator opens sums, it signs digests of what that sends: one model between two answers, for all
    clients, and before the first of them the model that the set-up pins, whose digest is ``first_model``. It
    cannot tell a model that follows from a sum from one that the aggregator has made up, but there is only
    one. The same holds for answers in between, which say what is encrypted. An authority that was restored
    from a state before a round begins it with that model again; or the next one, also with another model:
    then nothing of the one before is answered.
    """

    changes: ClassVar = {
        "_replies": Replies,
        "_signed_answers": Replies,
        "_history": bytes,
        "_model": bytes,
        "_model_after": int,
        "_for_the_run": dict[str, bytes],
    }

    def __init__(self, context: RoleContext, keys: RoundSigner, first_model: bytes = b"") -> None:
        super().__init__(context, keys)
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
            last = {phase: max(self._replies.newest(phase)[0], 0) for phase in self.context.answered}
            rounds = {newest_answer(phase): Message.from_number(number) for phase, number in last.items()}
            return Message({HISTORY: self._history, **rounds})

    @property
    def _last_round(self) -> int:
        """The last round that was answered to its end; -1 before the first."""
        return self._replies.newest(self.context.phases[-1])[0]

    def begin_round(
        self, round_number: int, invited: Iterable[int] | None = None, model: bytes = b""
    ) -> Message:
        with self._lock:
            after = self._last_round
            first = super().begin_round(round_number, invited, model)
            if self.context.aggregator_opens:
                self._model, self._model_after = bytes(model), after
            return first

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
            return Message(), {None: model}, keys
        first = Message({"round": Message.from_number(number), **self.newest_model()})
        return first, {None: digest_of_parts(first)}, keys

    def _kept(self, model: bytes, invited: bytes, signatures: dict[str, bytes]) -> bytes:
        # What was answered before moves on in the round itself; that is kept reply by reply.
        return digest_of_parts(Message({INVITED: invited, "model": model}))

    def answer(self, phase: str, message: Message) -> Message:
        self.context.check_answered(phase)
        with self._lock, self.clock.stage("open"):
            number = message.number("round")
            before = self._replies.newest(phase)[0]
            if phase in self.context.answered_once and 0 <= before < number:
                raise PolicyError(
                    f"a total of phase {phase!r} was answered in round {before}, and another one would tell "
                    "of single clients: what was opened then is good for the whole run"
                )
            with self.keys.replying(phase, number) as keep:
                given = self._replies.given(phase, number, message)
                if given is not None:
                    return given
                with self._replies.undone_unless_kept(phase, number, self):
                    reply = self._answered(phase, number, message)
                    keep(digest_of_parts(reply))
                    self.record(OpenedSum(number))
                    return self._replies.keep(phase, number, message, reply)

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
        with self._lock:
            answered, newest = self._replies.newest(phase)[0], self.keys.newest_round
            if number != newest or not (answered == number or (once and 0 <= answered < number)):
                raise PolicyError(
                    f"phase {phase!r} of round {number} does not run, or its list was not answered: nothing "
                    "is signed"
                )
            if self._for_the_run.get(phase, digest) != digest:
                raise PolicyError(f"another answer of phase {phase!r} was signed, for the whole run")
            with self.keys.replying(f"signature of {phase}", number) as keep:
                asked = Message({"digest": bytes(digest)})
                signed = self._signed_answers.given(phase, number, asked)
                if signed is None:
                    signature = Message(self.keys.sign_answer(phase, digest))
                    keep(digest)
                    signed = self._signed_answers.keep(phase, number, asked, signature)
            if once:
                self._for_the_run = {**self._for_the_run, phase: bytes(digest)}
            return signed
