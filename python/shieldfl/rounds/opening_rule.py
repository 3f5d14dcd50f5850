"""A checked total makes the next model: what a method does with opened sums, whoever opens them and by which keys."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Protocol

from shieldfl.array_view import as_unsigned
from shieldfl.authority.message import Message
from shieldfl.authority.round_key_check import digest_of_parts
from shieldfl.authority.total_opener import TotalOpener
from shieldfl.encryption.encryption import SchemeTotal
from shieldfl.errors import ParameterError, PolicyError
from shieldfl.rounds.global_model import GlobalModel
from shieldfl.rounds.messages import Replies
from shieldfl.rounds.public_setup import RoleContext
from shieldfl.rounds.reports import Note, Tally
from shieldfl.stateful import changes_of, refuse_unless


class KeySource(Protocol):
    """What opens rounds' totals: an authority's keys, or, for those who were granted them, its answers."""

    @property
    def newest_round(self) -> int:
        """The round that was begun last; -1 before the first."""

    def begin_round(self, round_number: int, purposes: Iterable[str] = ...) -> dict[str, bytes]:
        """Begin a round; return what its first message brings of keys."""

    def opener(self, round_number: int, purpose: str = ...) -> TotalOpener[Any]:
        """Return what opens the round's total. Raises PolicyError for other rounds than the newest."""

    def wipe(self, round_number: int, purpose: str = ...) -> None:
        """Open no more for a purpose of the newest round."""


class KeyHolder(Protocol):
    """Who opens: the key authority, a client or the aggregator."""

    @property
    def keys(self) -> KeySource:
        """What opens totals."""

    def note(self, note: Note | Tally) -> None:
        """Tell a remark."""

    def check_list(self, round_number: int, clients: Iterable[int]) -> None:
        """Raise PolicyError for a total with clients that were not invited: they would take the room of others."""

    def tell_opened(self, round_number: int) -> None:
        """Tell that a sum was opened."""


class RoundSums:
    """The sums of one purpose in one round, as a rule asks for them: each is told of as it is opened."""

    def __init__(self, holder: KeyHolder, number: int, purpose: str | None) -> None:
        self._holder = holder
        self._number = number
        self._purpose = purpose

    @property
    def min_clients(self) -> int:
        return self._opener().min_clients

    def check_runs(self) -> None:
        if self._number != self._holder.keys.newest_round:
            raise PolicyError(f"round {self._number} does not run: have the key authority begin it")

    def note(self, text: str, subject: str | None = None) -> None:
        """Tell a remark; a later one on the same subject takes its place."""
        self._holder.note(Note(text) if subject is None else Note(text, subject, self._number))

    def _opener(self) -> TotalOpener[Any]:
        assert self._purpose is not None
        return self._holder.keys.opener(self._number, self._purpose)

    @contextmanager
    def opening(self, total: SchemeTotal) -> Iterator[TotalOpener[Any]]:
        """Yield what opens a total, of clients that were invited; whether it did is told afterwards."""
        opener = self._opener()
        if total.named_clients:
            self._holder.check_list(self._number, total.named_clients)
        try:
            yield opener
        finally:
            # Also where what comes of it is refused, and once more where it is opened again: rounds are counted.
            if self._purpose == "update" and total.count and opener.has_opened(total):
                self._holder.tell_opened(self._number)


class OpeningRule(metaclass=abc.ABCMeta):
    """How a method's opened sums move its model. It holds what they move, and no key."""

    changes: ClassVar[Mapping[str, Any]] = {}
    """What answers change of it, see :mod:`shieldfl.stateful`."""

    def __init__(self, context: RoleContext) -> None:
        self.context = context

    @abc.abstractmethod
    def first_model(self) -> Message:
        """Return what the first round starts from, while none was answered."""

    @abc.abstractmethod
    def keeps(self, model: Message) -> bool:
        """Say whether a newest model, as it is sent, is the one that the next answer moves."""

    @abc.abstractmethod
    def answer(self, phase: str, message: Message, sums: RoundSums) -> Message:
        """Return the answer to a phase, from the aggregator's result and what its totals open to.

        Where it raises, its attributes are what they were.
        """

    def round_of(self, phase: str, message: Message) -> int:
        return message.number("round")

    def purposes(self, round_number: int, model: Message) -> tuple[str, ...]:
        return ("update",)

    def digests(self, model: Message) -> Mapping[int | None, bytes]:
        """Return what is signed of a round's model: one digest by client, or, of one model for all, under None."""
        return {None: digest_of_parts(model)}

    def next_model(self, newest: Message | None) -> Message:
        """Return what the next round starts from, where this was the last answer; None before the first."""
        return self.first_model() if newest is None else newest

    def replace_model(self, model: GlobalModel, newest: Message) -> None:
        """Go on from another model than ``newest``.

        Raises ParameterError where a round starts from more than its numbers.
        """
        raise ParameterError(
            "rounds of this method start from more than a model's numbers, so that no server's optimiser can step in "
            "between: take FedAvg, or a method such as full-he"
        )


class RoundOpener:
    """Answers the phases of rounds by a rule, each once: the last with the new model.

    It takes no model from anybody: the aggregator, which passes its messages on, could bring one that it has chosen. So
    all clients of a round train from one model, or find out.
    """

    changes: ClassVar = {"rule": OpeningRule, "_replies": Replies}

    def __init__(self, rule: OpeningRule) -> None:
        self.rule = rule
        self._context = rule.context
        self._replies = Replies()

    def check_changed(self) -> None:
        answered = self._context.answered
        refuse_unless(self._replies.phases <= set(answered))
        refuse_unless(all(self._replies.newest(phase)[0] <= self._context.plan.rounds for phase in answered))
        refuse_unless(self.rule.keeps(self.newest_model()))

    def newest_model(self) -> Message:
        return self.rule.next_model(self.last_answer(self._context.phases[-1]))

    def replace_model(self, model: GlobalModel) -> None:
        self.rule.replace_model(model, self.newest_model())

    def newest_answer(self, phase: str) -> int:
        return self._replies.newest(phase)[0]

    def last_answer(self, phase: str) -> Message | None:
        return self._replies.newest(phase)[1]

    def enter_round(self, round_number: int, keys: KeySource) -> tuple[Message, dict[str, bytes]]:
        """Begin a round; return its model, and what ``keys`` says that its first message brings.

        Raises PolicyError.
        """
        number = as_unsigned(round_number, "round_number")
        self._context.check_new_round(number, self.newest_answer(self._context.phases[-1]))
        model = self.newest_model()
        return model, keys.begin_round(number, self.rule.purposes(number, model))

    def answer(
        self,
        phase: str,
        message: Message,
        holder: KeyHolder,
        finish: Callable[[Message], Message] = lambda answer: answer,
    ) -> Message:
        """Turn the aggregator's result into the answer to the clients; a repeated message gets its answer again.

        ``finish`` makes of the rule's answer what is given. Raises ParameterError for a phase that is not
        answered, PolicyError for another message of a round that was answered and for what would reveal too
        much, WireFormatError, RangeError. Then nothing has changed, but for what was opened.
        """
        # Under another name an answer would not count as the round's: another could follow, and so could another model.
        self._context.check_answered(phase)
        number, purpose = self.rule.round_of(phase, message), self._context.answered[phase]
        sums = RoundSums(holder, number, purpose)
        if purpose is None:
            # What opens nothing is asked for in its own round alone, also where it is asked again.
            sums.check_runs()
        reply = self._replies.given(phase, number, message)
        if reply is None:
            with self._replies.undone_unless_kept(phase, number, self.rule):
                reply = finish(self.rule.answer(phase, message, sums))
                self._replies.keep(phase, number, message, reply)
        if purpose is not None:
            # No other total of this purpose will be opened.
            holder.keys.wipe(number, purpose)
        return reply

    def standing(self) -> dict[str, Any]:
        """Return what decides, beside keys, what a message is answered with: values, which no step changes."""
        return {name: getattr(self.rule, name) for name in changes_of(type(self.rule))}

    def repeat(
        self, phase: str, round_number: int, message: Message, answer: Message, standing: Mapping[str, Any]
    ) -> None:
        """Take what another object has answered that stood where this one stands, and where it came to thereby."""
        if self._replies.given(phase, round_number, message) is None:
            with self._replies.undone_unless_kept(phase, round_number, self.rule):
                for name, value in standing.items():
                    setattr(self.rule, name, value)
                self._replies.keep(phase, round_number, message, answer)
