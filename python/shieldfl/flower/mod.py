"""A client mod that protects what an ordinary ClientApp returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from logging import WARNING
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, Context, Error, Message, MessageType, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from flwr.common.constant import ErrorCode
from flwr.supercore import log

from shieldfl.array_view import as_unsigned
from shieldfl.errors import PolicyError, RangeError, ShieldError
from shieldfl.flower.client_session import ClientSession
from shieldfl.flower.node_memory import DiskMemory, NodeMemory, SimulatedMemory, is_simulated, write_model
from shieldfl.flower.node_set_up import begun_session, told_who
from shieldfl.flower.node_settings import NodeSettings
from shieldfl.flower.sample_count import SampleCount
from shieldfl.flower.training_records import (
    PROTECTS,
    answered_by_app,
    asked_training,
    content_for_app,
    update_of,
)
from shieldfl.flower.wire import (
    ASK,
    MESSAGE,
    Kind,
    ask,
    asked_of,
    message_in,
    number_in,
    packed,
    position_in,
    session_in,
    text_in,
)
from shieldfl.roles.message import Message as RoleMessage

__all__ = ["ShieldMod", "shield_mod"]

_UNTOLD = "the client failed: the node's log says why"
"""In the place of an error's text where an epsilon is stated."""


class ShieldMod:
    """Stands between Flower and a ClientApp: ``ClientApp(mods=[shield_mod, ...])``, before every other mod.

    Mods after it see what the app sees, and those before it what leaves. The app is called as ever, with a model's
    arrays, and returns trained ones and metrics. The arrays do not leave the node: the message of the run's method
    does, once it was written down. Metrics leave as they are, but where the method states an epsilon, which none of
    them is charged to: there they stay. What a server sends without protection is refused, but for queries, which the
    app answers as ever.

    Parameters
    ----------
    samples : returns how many samples this client trains on, for runs in which clients count by their samples. Without
        it the app trains once more before a run's keys are made, and the metric ``num-examples`` says it.
    clear_metrics : whether metrics leave where the method states an epsilon, too. It is infinite then.
    """

    def __init__(
        self, samples: Callable[[Context], int] | None = None, *, clear_metrics: bool = False
    ) -> None:
        self._samples = samples
        self._clear_metrics = clear_metrics

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Handle a message in the app's place, and have the app train or evaluate where it asks for that."""
        if PROTECTS.get() or message.metadata.message_type.startswith(MessageType.QUERY):
            return call_next(message, context)
        try:
            return self._answered(message, context, call_next)
        except ShieldError as error:
            # In one process with a server this is all that tells it why a client is missing.
            reason = f"{type(error).__name__}: {error}"
            log(WARNING, "shieldfl: %s", reason)
            return Message(Error(ErrorCode.MOD_FAILED_PRECONDITION, reason), reply_to=message)

    def _answered(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        if ASK not in message.content:
            raise PolicyError(
                "this client's updates are protected, and the server asks for one as it is: wrap the server's strategy "
                "in ShieldStrategy, and let it send no training of its own"
            )
        asked = asked_of(message.content)
        evaluates = message.metadata.message_type.startswith(MessageType.EVALUATE)
        if evaluates != (asked["kind"] == Kind.MODEL):
            raise PolicyError("the message asks for one thing, and is of the type of another")
        settings, simulated = NodeSettings.of(context.node_config), is_simulated()
        count = SampleCount(context.state)

        def call_app() -> Message:
            return call_next(message, context)

        memory = _memory(settings, asked, context, simulated=simulated)
        match asked["kind"]:
            case Kind.HELLO:
                samples = self._own_samples(context)
                return told_who(
                    message, asked, context, memory, samples, writes_model=settings.store is not None
                )
            case Kind.COUNT:
                model = message_in(message.content) or RoleMessage()
                settings.check_planned(model["planned"], simulated=simulated)
                told = ask(Kind.COUNT, samples=count.train(message, model, asked, call_app))
                return Message(RecordDict({ASK: told}), reply_to=message)
            case Kind.SET_UP:
                samples = self._own_samples(context)
                begun = begun_session(message, asked, settings, memory, count, samples, simulated=simulated)
                return _reply(message, *begun)
        session = ClientSession.load(memory, session_in(asked), settings.threads)
        session.take_known_events(number_in(asked, "events-known"))
        session.take_grant(message_in(message.content, "shieldfl.grant"))
        session.clear_metrics = self._clear_metrics
        turn = _Turn(message, asked, session, call_app, count)
        try:
            reply = turn.answered(settings.store)
        except Exception as error:
            if not session.method.states_epsilon:
                raise
            return _untold(message, f"{type(error).__name__}: {error}", error)
        hides = reply.has_error() and session.method.states_epsilon
        return _untold(message, f"the app says: {reply.error.reason}") if hides else reply

    def _own_samples(self, context: Context) -> int | None:
        if self._samples is None:
            return None
        try:
            return int(as_unsigned(self._samples(context), "samples"))
        except Exception as error:
            # Its text may be of the data, and the server reads what is raised here.
            log(WARNING, "shieldfl: the number of samples: %s", error, exc_info=error)
            raise PolicyError("the app cannot say how many samples it has: the node's log says why") from None


def _untold(message: Message, reason: str, error: Exception | None = None) -> Message:
    """Return a failure of which the log alone has text and kind: they may depend on the data, and have no noise.

    That training gave what cannot be sent, which is charged, the server has to know.
    """
    log(WARNING, "shieldfl: %s", reason, exc_info=error)
    told = f"RangeError: {_UNTOLD}" if isinstance(error, RangeError) else _UNTOLD
    return Message(Error(ErrorCode.MOD_FAILED_PRECONDITION, told), reply_to=message)


def _memory(
    settings: NodeSettings, asked: Mapping[str, Any], context: Context, *, simulated: bool
) -> NodeMemory:
    epoch, rows = position_in(asked) if "position" in asked else (0, 0)
    if settings.store is not None:
        return DiskMemory(Path(settings.store), (epoch, rows), repeats=settings.repeats)
    if simulated and asked.get("store"):  # so that a simulation can be gone on with
        partition = str(context.node_config["partition-id"])
        return DiskMemory(Path(text_in(asked, "store")) / partition, (epoch, rows))
    if not simulated:
        raise PolicyError(
            "outside of a simulation a node keeps its secrets on its own disk: set shieldfl-store in its configuration"
        )
    return SimulatedMemory(context)


def _reply(
    message: Message,
    session: ClientSession,
    answer: RoleMessage | None,
    records: Mapping[str, Any] | None = None,
) -> Message:
    """Write everything down, then return what leaves the node."""
    position = session.keep()
    kind = Kind(asked_of(message.content)["kind"])
    content = {ASK: ask(kind, position=list(position), **session.events())} | dict(records or {})
    if answer is not None:
        content[MESSAGE] = packed(answer)
    return Message(RecordDict(content), reply_to=message)


class _Turn:
    """One message of a run that this client is in, and what is made of it.

    Parameters
    ----------
    message : of the server.
    asked : its record that says what it asks for.
    session : the client's, as it stood.
    call_app : has the app handle the message, with the content that it has by then.
    count : what came of the training that its samples were counted by.
    """

    def __init__(
        self,
        message: Message,
        asked: Mapping[str, Any],
        session: ClientSession,
        call_app: Callable[[], Message],
        count: SampleCount,
    ) -> None:
        self._count = count
        self._message = message
        self._asked = asked
        self._session = session
        self._call_app = call_app

    def answered(self, store: str | None) -> Message:
        """Do what the message asks for; ``store`` is the node's folder, where it has one."""
        does = {Kind.TRAIN: self.train, Kind.PHASE: self.go_on, Kind.MODEL: self.evaluate}
        kind = self._asked["kind"]
        return does[kind]() if kind in does else self.finish(store)

    def train(self) -> Message:
        """Begin a round, train unless that was done, and make the first phase's message."""
        session, number = self._session, number_in(self._asked, "round")
        model = session.brought(self._message.content)
        if model is None:
            raise PolicyError(f"round {number} came without its first message")
        self._take_ends()
        start = session.begin_round(number, number_in(self._asked, "participants"), model)
        if not session.steps.has_trained:
            content = content_for_app(
                self._message, self._asked, session.arrays(start), asked_training(start, session.index)
            )
            reply = self._count.reply(self._message, content) or self._called(content)
            if reply.has_error():
                return reply
            update = update_of(reply.content, start, session.layout)
            self._check_weight(reply.content)
            session.finish_training(start, update, reply.content.metric_records)
        self._count.forget_training()
        answer = session.step(text_in(self._asked, "phase"), None)
        return _reply(self._message, session, answer, session.metrics(number))

    def go_on(self) -> Message:
        """Make a further phase's message."""
        answer = self._session.step(text_in(self._asked, "phase"), message_in(self._message.content))
        return _reply(self._message, self._session, answer)

    def evaluate(self) -> Message:
        """Have the app evaluate the client's own model; what it returns leaves as it is, where it may."""
        reply = self._called(content_for_app(self._message, self._asked, self._model(), None))
        if reply.has_error():
            return reply
        session = self._session
        return _reply(self._message, session, None, session.leaving(reply.content.metric_records))

    def finish(self, store: str | None) -> Message:
        """Take what is left, and write the model beside the node's store, where it has one."""
        if store is None:
            self._take_ends()
        else:
            write_model(Path(store), self._model())
        return _reply(self._message, self._session, None)

    def _take_ends(self) -> None:
        end, missed = (message_in(self._message.content, f"shieldfl.{name}") for name in ("end", "missed"))
        self._session.take_ends(end, number_in(self._asked, "ended", 0), missed)

    def _model(self) -> ArrayRecord:
        """Return the client's own model, once it has the ends of all rounds that came."""
        self._take_ends()
        keeps = self._asked["kind"] == Kind.MODEL
        return self._session.model(self._session.brought(self._message.content, keeps=keeps) or RoleMessage())

    def _called(self, content: RecordDict) -> Message:
        return answered_by_app(self._message, content, self._call_app)

    def _check_weight(self, content: RecordDict) -> None:
        """Raise PolicyError where the app trained on another number of samples than the client counts by.

        Not where an epsilon is stated: the server says which metric the number is, and would learn about any of them.
        """
        if self._session.method.states_epsilon:
            return
        weighted_by, weight = str(self._asked.get("weighted-by", "")), self._session.weight
        for record in content.metric_records.values():
            if weighted_by and record.get(weighted_by, weight) != weight:
                raise PolicyError(
                    f"the client counts by {weight:,} samples, as it said when the run began, and has trained on "
                    f"{record[weighted_by]:,}: the number must stay the same in a run"
                )


shield_mod = ShieldMod()
"""Protects, and counts samples by a training."""
