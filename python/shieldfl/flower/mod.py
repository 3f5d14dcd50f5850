"""A client mod that protects what an ordinary ClientApp returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from logging import WARNING
from pathlib import Path
from typing import Any

from flwr.app import Context, Error, Message, MessageType, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from flwr.common.constant import ErrorCode
from flwr.supercore import log

import shieldfl
from shieldfl.array_view import as_unsigned
from shieldfl.authority.message import Message as RoleMessage
from shieldfl.errors import KeyMismatchError, PolicyError, RangeError, ShieldError, WireFormatError
from shieldfl.flower.client_session import BEGUN, ClientSession
from shieldfl.flower.node_memory import DiskMemory, NodeMemory, SimulatedMemory, is_simulated
from shieldfl.flower.record_layout import RecordLayout
from shieldfl.flower.settings import NodeSettings
from shieldfl.flower.training_records import PROTECTS, App
from shieldfl.flower.wire import ASK, HELD, Number, Position, ask, asked_of, message_in, said, with_held
from shieldfl.rounds.plan import GlobalModel, PublicSetup

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
        self._samples, self._clear_metrics = samples, clear_metrics

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        if PROTECTS.get() or message.metadata.message_type.startswith(MessageType.QUERY):
            return call_next(message, context)
        try:
            answer = self._answered(message, context, call_next)
        except ShieldError as error:
            # In one process with a server this is all that tells it why a client is missing.
            reason = f"{type(error).__name__}: {error}"
            log(WARNING, "shieldfl: %s", reason)
            answer = Error(ErrorCode.MOD_FAILED_PRECONDITION, reason)
        return Message(answer, reply_to=message)

    def _answered(
        self, message: Message, context: Context, call_next: ClientAppCallable
    ) -> RecordDict | Error:
        if ASK not in message.content:
            raise PolicyError(
                "this client's updates are protected, and the server asks for one as it is: wrap the server's strategy "
                "in ShieldStrategy, and let it send no training of its own"
            )
        asked, kind = asked_of(message.content), message.metadata.message_type
        if kind.startswith(MessageType.EVALUATE) != (asked["kind"] == "model"):
            raise PolicyError("the message asks for one thing, and is of the type of another")
        settings, simulated = NodeSettings.of(context.node_config), is_simulated()
        app = App(message, asked, context, call_next)
        memory = _memory(settings, asked, context, simulated=simulated)
        session_id = said(asked, "session", bytes, b"")
        match asked["kind"]:
            case "hello":
                position, kept = memory.read(session_id)
                samples = self._own_samples(context)
                told = ask(
                    "hello",
                    partition_id=int(context.node_config.get("partition-id", -1)),
                    index=RoleMessage.from_bytes(kept[BEGUN]).number("index") if BEGUN in kept else -1,
                    samples=-1 if samples is None else samples,
                    shieldfl=shieldfl.__version__,
                    position=list(position),
                    writes_model=settings.store is not None,
                )
                return RecordDict({ASK: told})
            case "count":
                model = message_in(message.content) or RoleMessage()
                settings.check_planned(model["planned"], simulated=simulated)
                return RecordDict({ASK: ask("count", samples=app.count(model))})
            case "set-up":
                brought, (counted, model_of_count) = message_in(message.content), app.counted
                if brought is not None and HELD in brought:
                    brought = with_held(brought, model_of_count)
                if brought is None:
                    raise PolicyError("the server's message brings no set-up, or no model with it")
                setup = settings.checked_setup(brought, simulated=simulated)
                own = self._own_samples(context)
                begun = _begun(brought, asked, setup, counted if own is None else own)
                session = ClientSession(memory, setup.session, settings.threads, begun)
                return session.replied(settings.signed(setup, session.index, session.steps.enrolment()))
        session = ClientSession(memory, session_id, settings.threads)
        session.hear(message.content, asked)
        session.clear_metrics = self._clear_metrics
        try:
            answer = session.answered(app, settings.store)
        except Exception as error:
            if not session.method.states_epsilon:
                raise
            return _untold(f"{type(error).__name__}: {error}", error)
        if isinstance(answer, Error) and session.method.states_epsilon:
            return _untold(f"the app says: {answer.reason}")
        return answer

    def _own_samples(self, context: Context) -> int | None:
        if self._samples is None:
            return None
        try:
            return int(as_unsigned(self._samples(context), "samples"))
        except Exception as error:
            # Its text may be of the data, and the server reads what is raised here.
            log(WARNING, "shieldfl: the number of samples: %s", error, exc_info=error)
            raise PolicyError("the app cannot say how many samples it has: the node's log says why") from None


def _untold(reason: str, error: Exception | None = None) -> Error:
    """Return a failure of which the log alone has the text, which may depend on the data, and has no noise.

    That training gave what cannot be sent, which is charged, the server has to know.
    """
    log(WARNING, "shieldfl: %s", reason, exc_info=error)
    told = f"RangeError: {_UNTOLD}" if isinstance(error, RangeError) else _UNTOLD
    return Error(ErrorCode.MOD_FAILED_PRECONDITION, told)


def _memory(
    settings: NodeSettings, asked: Mapping[str, Any], context: Context, *, simulated: bool
) -> NodeMemory:
    at_least = said(asked, "position", Position, (0, 0))
    if settings.store is not None:
        return DiskMemory(Path(settings.store), at_least, repeats=settings.repeats)
    if simulated and asked.get("store"):  # so that a simulation can be gone on with
        partition = str(context.node_config["partition-id"])
        return DiskMemory(Path(said(asked, "store", str)) / partition, at_least)
    if not simulated:
        raise PolicyError(
            "outside of a simulation a node keeps its secrets on its own disk: set shieldfl-store in its configuration"
        )
    return SimulatedMemory(context)


def _begun(
    brought: RoleMessage, asked: Mapping[str, Any], setup: PublicSetup, samples: int | None
) -> RoleMessage:
    """Return what a client keeps of a set-up, which says or has counted that it has ``samples``."""
    plan, text = setup.plan, said(asked, "layout", str)
    # In a sum of one client that counts much and others that count little there is but the one's update.
    index, weight = said(asked, "index", Number), said(asked, "weight", Number)
    alike = weight == plan.most_weight == 1
    if not alike and (samples is None or weight != max(samples, 1)):
        raise PolicyError(
            "the server gives this client another weight than its number of samples, or has it count for itself alone: "
            "give the app ShieldMod(samples=...), or let its samples be counted"
        )
    model = {name: part for name, part in brought.items() if name not in ("setup", "signature")}
    apart = RoleMessage({name: part for name, part in model.items() if name.startswith("apart")})
    if not model.keys() <= GlobalModel.parts | apart.keys():
        raise WireFormatError("the server's message brings parts that no set-up has")
    layout = RecordLayout.from_json(text)
    if layout.digest(apart) != plan.layout_digest:
        raise KeyMismatchError(
            "the server places the model's arrays otherwise than the set-up says: nothing is trained"
        )
    layout.check(plan.parameters, plan.buffers, layout.apart_from_message(apart))
    numbers = {"index": RoleMessage.from_number(index), "weight": RoleMessage.from_number(weight)}
    return RoleMessage({**model, **numbers, "layout": text.encode(), "setup": setup.to_bytes()})


shield_mod = ShieldMod()
"""Protects, and counts samples by a training."""
