"""A client mod that protects what an ordinary ClientApp returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from logging import WARNING
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from flwr.common.constant import ErrorCode
from flwr.supercore import log

import shieldfl
from shieldfl.errors import PolicyError, RangeError, ShieldError, WireFormatError
from shieldfl.flower.client_session import ClientSession
from shieldfl.flower.node_memory import DiskMemory, NodeMemory, SimulatedMemory, is_simulated, write_model
from shieldfl.flower.node_settings import NodeSettings
from shieldfl.flower.training_records import asked_training, update_of
from shieldfl.flower.wire import (
    ASK,
    MESSAGE,
    TRAINING,
    Kind,
    ask,
    asked_of,
    message_in,
    number_in,
    packed,
    position_in,
)
from shieldfl.methods.protocol.global_model import GlobalModel
from shieldfl.roles.message import Message as RoleMessage

__all__ = ["ShieldMod", "shield_mod"]

_PROTECTS = ContextVar("protects", default=False)
"""Whether another one, before this, protects: an app may have one for all functions, and a function its own."""
_UNTOLD = "the client failed: the node's log says why"
"""In the place of an error's text where an epsilon is stated."""


class ShieldMod:
    """Stands between Flower and a ClientApp: ``ClientApp(mods=[ShieldMod(), ...])``, before every other mod.

    Mods after it see what the app sees, and those before it what leaves. The app is called as ever, with a model's
    arrays, and returns trained ones and metrics. The arrays do not leave the node: the message of the run's method
    does, once it was written down. Metrics leave as they are, but where the method states an epsilon, which none of
    them is charged to: there they stay. What a server sends without protection is refused, but for queries, which the
    app answers as ever.

    Parameters
    ----------
    samples : returns how many samples this client trains on, for runs in which clients count by their samples.
    clear_metrics : whether metrics leave where the method states an epsilon, too. It is infinite then.
    """

    def __init__(
        self, samples: Callable[[Context], int] | None = None, *, clear_metrics: bool = False
    ) -> None:
        self._samples = samples
        self._clear_metrics = clear_metrics

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Handle a message in the app's place, and have the app train or evaluate where it asks for that."""
        if _PROTECTS.get() or message.metadata.message_type.startswith(MessageType.QUERY):
            return call_next(message, context)
        try:
            return self._answered(message, context, call_next)
        except ShieldError as error:
            reason = f"{type(error).__name__}: {error}"
            log(WARNING, "shieldfl: %s", reason)
            return Message(Error(ErrorCode.MOD_FAILED_PRECONDITION, reason), reply_to=message)

    def _answered(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        if ASK not in message.content:
            raise PolicyError(
                "this client's updates are protected, and the server asks for one as it is: wrap the server's strategy "
                "in ShieldStrategy"
            )
        asked = asked_of(message.content)
        evaluates = message.metadata.message_type.startswith(MessageType.EVALUATE)
        if evaluates != (asked["kind"] == Kind.MODEL):
            raise PolicyError("the message asks for one thing, and is of the type of another")
        settings, simulated = NodeSettings.of(context.node_config), is_simulated()
        memory = _memory(settings, asked, context, simulated=simulated)
        if asked["kind"] == Kind.HELLO:
            return self._told_who(message, asked, context, memory, settings)
        if asked["kind"] == Kind.SET_UP:
            return _set_up(message, asked, settings, memory, self._own_samples(context), simulated=simulated)
        session = ClientSession.load(memory, asked["session"], settings.threads)
        session.take_known_events(number_in(asked, "events-known"))
        session.take_grant(message_in(message.content, "shieldfl.grant"))
        session.clear_metrics = self._clear_metrics
        try:
            turn = _Turn(message, asked, session, lambda: call_next(message, context))
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
            return int(self._samples(context))
        except Exception as error:
            # Its text may be of the data, and the server reads what is raised here.
            log(WARNING, "shieldfl: the number of samples: %s", error, exc_info=error)
            raise PolicyError("the app cannot say how many samples it has: the node's log says why") from None

    def _told_who(
        self,
        message: Message,
        asked: Mapping[str, Any],
        context: Context,
        memory: NodeMemory,
        settings: NodeSettings,
    ) -> Message:
        """Say which client this is, and, where the server goes on with a session, as which one it took part."""
        session = bytes(asked.get("session", b""))
        position, kept = memory.read(session)
        index = ClientSession.index_in(kept)
        told = ask(
            Kind.HELLO,
            partition_id=int(context.node_config.get("partition-id", -1)),
            index=-1 if index is None else index,
            samples=self._own_samples(context) or 0,
            shieldfl=shieldfl.__version__,
            position=list(position),
            writes_model=settings.store is not None,
        )
        return Message(RecordDict({ASK: told}), reply_to=message)


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
        return DiskMemory(Path(asked["store"]) / str(context.node_config["partition-id"]), (epoch, rows))
    if not simulated:
        raise PolicyError(
            "outside of a simulation a node keeps its secrets on its own disk: set shieldfl-store in its configuration"
        )
    return SimulatedMemory(context)


def _set_up(
    message: Message,
    asked: Mapping[str, Any],
    settings: NodeSettings,
    memory: NodeMemory,
    samples: int | None,
    *,
    simulated: bool,
) -> Message:
    """Take a run's public set-up, and return what enrols this client."""
    brought = message_in(message.content)
    if brought is None:
        raise PolicyError("the server's message brings no set-up")
    setup = settings.checked_setup(brought, simulated=simulated)
    # In a sum of one client that counts much and others that count little there is but the one's update.
    index, weight = number_in(asked, "index"), number_in(asked, "weight")
    alike = weight == setup.plan.most_weight == 1
    if not alike and weight != samples:
        raise PolicyError(
            "the server gives this client another weight than its number of samples, or has it count for itself alone: "
            "give the app ShieldMod(samples=...) where clients count by their samples"
        )
    model = {name: part for name, part in brought.items() if name not in ("setup", "signature")}
    if not all(name in GlobalModel.parts or name.startswith("apart") for name in model):
        # One called "weight" would take the place of that which was looked at.
        raise WireFormatError("the server's message brings parts that no set-up has")
    begun = RoleMessage(
        {
            "index": RoleMessage.from_number(index),
            "weight": RoleMessage.from_number(weight),
            "layout": str(asked["layout"]).encode(),
            **model,
        }
    )
    session = ClientSession.begin(memory, setup, begun, settings.threads)
    enrolment = settings.signed(setup, session.index, session.steps.enrolment())
    return _reply(message, session, enrolment)


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
    """

    def __init__(
        self,
        message: Message,
        asked: Mapping[str, Any],
        session: ClientSession,
        call_app: Callable[[], Message],
    ) -> None:
        self._message = message
        self._asked = asked
        self._session = session
        self._call_app = call_app

    def answered(self, store: str | None) -> Message:
        """Do what the message asks for; ``store`` is the node's folder, where it has one."""
        match self._asked["kind"]:
            case Kind.TRAIN:
                return self.train()
            case Kind.PHASE:
                return self.go_on()
            case Kind.MODEL:
                return self.evaluate()
            case _:
                return self.finish(store)

    def train(self) -> Message:
        """Begin a round, train unless that was done, and make the first phase's message."""
        session, number = self._session, number_in(self._asked, "round")
        model = session.brought(self._message.content)
        if model is None:
            raise PolicyError(f"round {number} came without its first message")
        self._take_ends()
        start = session.begin_round(number, number_in(self._asked, "participants"), model)
        if not session.steps.has_trained:
            reply = self._called(session.arrays(start), asked_training(start, session.index))
            if reply.has_error():
                return reply
            update = update_of(reply.content, start, session.layout)
            self._check_weight(reply.content)
            session.finish_training(start, update, reply.content.metric_records)
        answer = session.step(str(self._asked["phase"]), None)
        return _reply(self._message, session, answer, session.metrics(number))

    def go_on(self) -> Message:
        """Make a further phase's message."""
        answer = self._session.step(str(self._asked["phase"]), message_in(self._message.content))
        return _reply(self._message, self._session, answer)

    def evaluate(self) -> Message:
        """Have the app evaluate the client's own model; what it returns leaves as it is, where it may."""
        reply = self._called(self._model())
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

    def _called(self, arrays: ArrayRecord, training: ConfigRecord | MetricRecord | None = None) -> Message:
        """Have the app handle the message as an unprotected server would send it.

        Raises PolicyError for a message that brings arrays of the server's own, or puts a record in the model's place:
        no signature says what they are, and training would begin from them, by another model for each client.
        """
        content = RecordDict({str(self._asked["arrays"]): arrays})
        for name, record in self._message.content.items():
            if name.startswith(ASK):
                continue
            if name in content or isinstance(record, ArrayRecord):
                raise PolicyError(
                    f"the server sends {name!r} beside what is protected: a client trains from the run's model and no "
                    "other"
                )
            content[name] = record
        if training is not None:
            content[TRAINING] = training
        protected, self._message.content = self._message.content, content
        inside = _PROTECTS.set(True)
        try:
            return self._call_app()
        finally:
            _PROTECTS.reset(inside)
            self._message.content = protected

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
"""Protects in runs in which all clients count alike."""
