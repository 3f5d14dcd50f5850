"""A client mod that protects what an ordinary ClientApp returns."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import io
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from logging import INFO, WARNING
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from flwr.common.constant import ErrorCode
from flwr.supercore import log

import shieldfl
from shieldfl.array_view import as_unsigned
from shieldfl.authority.message import Message as RoleMessage
from shieldfl.authority.private_file import disk_errors_as, drawn_key, write_private_file
from shieldfl.authority.role_state import SEALING_KEY_BYTES
from shieldfl.authority.step_store import UPDATE_OF_ANOTHER_ROUND, StepStore
from shieldfl.errors import DataError, KeyMismatchError, PolicyError, RangeError, ShieldError, WireFormatError
from shieldfl.flower.records import (
    ASK,
    HELD,
    MESSAGE,
    MOST_EVENTS,
    PROTECTS,
    App,
    Kind,
    NamedEvents,
    Number,
    Position,
    RecordLayout,
    ask,
    asked_of,
    asked_training,
    message_in,
    model_parts,
    packed,
    said,
    samples_in,
    update_of,
    with_held,
)
from shieldfl.flower.settings import NodeSettings
from shieldfl.learning.local_update import LocalUpdate, StartingPoint
from shieldfl.methods.registry import method_of
from shieldfl.privacy.events import ClearUpload, PrivacyEvent
from shieldfl.rounds.method import Method, naming_own_method
from shieldfl.rounds.opening_rule import missed_parts
from shieldfl.rounds.plan import GlobalModel, PublicSetup
from shieldfl.rounds.reports import named

_STATE_DOMAIN = b"shieldfl node state 1\0"
_WAITS_SECONDS = 30.0


def is_simulated() -> bool:
    """Say whether this process is a worker of Flower's simulation, where all clients are on one machine."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


class SimulatedMemory:
    """The state that Flower keeps for each simulated node: it protects nobody, and finds no old copies."""

    def __init__(self, context: Context) -> None:
        self._record: Any = context.state.setdefault("shieldfl.memory", ConfigRecord())

    def read(self, session: bytes) -> tuple[Position, dict[str, bytes]]:
        head = f"{session.hex()} "
        return (0, 0), {
            name.removeprefix(head): one
            for name, one in self._record.items()
            if name.startswith(head) and isinstance(one, bytes)
        }

    def keep(
        self,
        session: bytes,
        contents: Mapping[str, bytes],
        *,
        round_number: int,
        update: bytes | None,
        **_: Any,
    ) -> Position:
        if update is not None:
            at = f"{session.hex()} update {update.hex()}"
            if self._record.setdefault(at, round_number) != round_number:
                raise PolicyError(UPDATE_OF_ANOTHER_ROUND)
        self._record.update({f"{session.hex()} {name}": content for name, content in contents.items()})
        return 0, 0

    def state_key(self, session: bytes) -> bytes:
        """Return what seals a role's state, 32 bytes: nothing that is secret, in a simulation."""
        return hashlib.sha256(_STATE_DOMAIN + session).digest()


class DiskMemory:
    """A folder on the node's disk, of its owner alone: a store, and the key that it is sealed under.

    ``at_least`` is a position that the store is known to have reached: an old copy of it is refused.
    ``repeats`` lets one update be sent in several runs. Raises DataError where the folder cannot be made or
    read.
    """

    def __init__(self, folder: Path, at_least: Position = (0, 0), *, repeats: bool = False) -> None:
        self._path = folder / "store"
        self._repeats = repeats
        self._at_least = at_least
        with disk_errors_as(
            f"the node's folder {folder} cannot be made or read: look at its owner and its permissions"
        ):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._key = drawn_key(folder / "key", SEALING_KEY_BYTES)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[StepStore]:
        """Open the store. A second process of the node, for a repeated message, holds it for milliseconds."""
        until, found = time.monotonic() + _WAITS_SECONDS, None
        while found is None:
            try:
                found = (StepStore if self._path.exists() else StepStore.create)(self._path, self._key)
            except PolicyError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)
        with found as store:
            if store.position < self._at_least:
                raise PolicyError(
                    f"the store {self._path} is an old copy: it ends at {tuple(store.position)}, and has "
                    f"been at {self._at_least}. Put the newest one back, or, if that is lost, have the node "
                    "begin anew: `shieldfl flower restored`"
                )
            yield store

    def read(self, session: bytes) -> tuple[Position, dict[str, bytes]]:
        with self._opened() as store:
            return store.position, store.kept(session)

    def keep(self, session: bytes, contents: Mapping[str, bytes], **sent: Any) -> Position:
        """Keep as :meth:`StepStore.keep` does, which explains ``since``, ``round_number`` and ``update``."""
        with self._opened() as store:
            store.keep(session, contents, **sent, repeats=self._repeats)
            return store.position

    def state_key(self, session: bytes) -> bytes:
        return hmac.digest(self._key, _STATE_DOMAIN + session, "sha256")

    def begin_anew(self) -> None:
        """End all sessions of a store that is a backup: what was sent since can get no second frame."""
        with StepStore(self._path, self._key, at_least=self._at_least, restored=True):
            pass


NodeMemory = SimulatedMemory | DiskMemory


def write_model(folder: Path, arrays: ArrayRecord) -> None:
    buffer = io.BytesIO()
    named: dict[str, Any] = {name: array.numpy() for name, array in arrays.items()}
    np.savez(buffer, **named)
    try:
        write_private_file(folder / "model.npz", buffer.getvalue())
    except OSError as error:
        raise DataError(f"the model cannot be written to {folder}: free some space there") from error


BEGUN = "begun"
"""Name under which a node keeps how its client's part in a run began."""
_STEPS, _SECRET, _TOLD, _MODEL = "steps", "secret", "told", "model"


@dataclass
class Telling:
    """A client's side, as kept: what it has told, and what left it that the server has not written down."""

    first: int = 0
    """Number of the client's events before these."""
    events: NamedEvents = field(default_factory=list)
    round: int = 0
    metrics: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Metrics that the app stated of its training in that round, by record."""
    ended: int = 0
    """Last round that this client went through, and whose end it has."""
    clear_metrics: int = 0
    """Last round whose metrics have left, by an event."""

    def add(self, *events: PrivacyEvent) -> None:
        self.events += named(events)

    def forget(self, known: int) -> None:
        """Drop the first ``known`` events of the run; a server that knows fewer gets those that are left."""
        if known > self.first + len(self.events):
            raise WireFormatError("the server knows of more than this client has sent")
        dropped = max(known - self.first, 0)
        self.first, self.events = self.first + dropped, self.events[dropped:]

    def values(self) -> dict[str, Any]:
        return {"events": msgspec.msgpack.encode(self.events[:MOST_EVENTS]), "events_from": self.first}


class ClientSession:
    """The client's steps, restored from what the node keeps, and kept again by :meth:`keep`: for one message.

    ``begun`` is for the first message of a session: public set-up, index, weight, layout, the initial model,
    arrays that stay apart. It does not change. Raises PolicyError where the node has no part in the session,
    or another one.
    """

    def __init__(
        self, memory: NodeMemory, session: bytes, threads: int | None, begun: RoleMessage | None = None
    ) -> None:
        self._memory, self._threads = memory, threads
        self._since, kept = memory.read(session)
        was = RoleMessage.from_bytes(kept[BEGUN]) if BEGUN in kept else None
        if was is not None and begun not in (None, was):
            raise PolicyError(
                "this node already takes part in the run, as another client or with another model: begin a "
                "new run"
            )
        found = was or begun
        if found is None:
            raise PolicyError(
                "this node has no part in the run: it was not set up, or its store was lost. It can take "
                "part in the next run"
            )
        self._begun, self._is_begun = found, was is not None
        self.setup = setup = PublicSetup.trusted(bytes(found["setup"]))
        self.method: Method = method_of(setup)
        self.index, self.weight = found.number("index"), found.number("weight")
        self.layout = RecordLayout.from_json(bytes(found["layout"]).decode())
        self._initial = GlobalModel.from_message(found, setup.plan.parameters, setup.plan.buffers)
        self._secret = kept.get(_SECRET) or None
        self._update: bytes | None = None
        self._model = RoleMessage.from_bytes(kept[_MODEL]) if _MODEL in kept else None
        self._model_is_kept = True
        self._round = 0
        self._told = msgspec.msgpack.decode(kept[_TOLD], type=Telling) if was else Telling()
        self.app_counts = True
        """Whether the number of samples comes from the app's training."""
        self.clear_metrics = False
        """Whether the app's metrics leave although the method states an epsilon."""
        self._kind: Kind = "set-up"
        self._content, self._asked = RecordDict(), dict[str, Any]()
        with naming_own_method(self.method.name, type(self.method)):
            self.steps = self.method.client_steps(
                setup, self.index, self.weight, self._initial, threads=threads, shared_secret=self._secret
            )
        if was is not None:
            self.steps.restore(kept[_STEPS], self._key)

    @property
    def _key(self) -> bytes | None:
        return self._memory.state_key(self.setup.session) if self.steps.needs_sealing else None

    def keep(self) -> Position:
        """Write everything down, before anything that follows from it leaves the node."""
        report = self.steps.report()
        for note in report.notes:  # nobody else learns of them: some depend on the data
            log(INFO, "shieldfl: %s", note)
        if self.method.states_epsilon:
            self._told.add(*report.events)
        contents = {
            _STEPS: self.steps.state(self._key),
            _SECRET: self._secret or b"",
            _TOLD: msgspec.msgpack.encode(self._told),
        }
        if self._model is not None and not self._model_is_kept:
            contents[_MODEL] = self._model.to_bytes()
        if not self._is_begun:
            contents[BEGUN] = self._begun.to_bytes()
        self._since = self._memory.keep(
            self.setup.session, contents, since=self._since, round_number=self._round, update=self._update
        )
        self._is_begun, self._model_is_kept, self._update = True, True, None
        return self._since

    def replied(
        self, answer: RoleMessage | None = None, records: Mapping[str, Any] | None = None
    ) -> RecordDict:
        told = ask(self._kind, position=list(self.keep()), **self._told.values())
        own = {} if answer is None else {MESSAGE: packed(answer)}
        return RecordDict({ASK: told, **(records or {}), **own})

    def hear(self, content: RecordDict, asked: Mapping[str, Any]) -> None:
        """Take a server's message: the events that the server knows, and a grant to open sums."""
        self._content, self._asked, self._kind = content, dict(asked), asked["kind"]
        self._told.forget(said(asked, "events-known", Number))
        grant = message_in(content, "shieldfl.grant")
        if grant:
            self.steps.enrolled(grant)
            if self.steps.awaits_secret:
                self.steps, self._secret = self.method.granted_client_steps(
                    self.setup, self.index, self.weight, self._initial, self.steps, threads=self._threads
                )

    def answered(self, app: App, store: str | None) -> RecordDict | Error:
        """Do what the message asks for; return the reply, or the app's error.

        ``store`` is the node's folder.
        """
        match self._kind:
            case "model":
                reply = app.handled(self.model())
                if reply.has_error():
                    return reply.error
                return self.replied(records=self._leaving(reply.content.metric_records))
            case "finish":
                if store is None:
                    self._take_ends()
                else:
                    write_model(Path(store), self.model())
                return self.replied()
            case "train" if error := self._train(app):
                return error
        phase = said(self._asked, "phase", str)
        answer = message_in(self._content) if self._kind == "phase" else None
        try:
            with (
                naming_own_method(self.method.name, type(self.method)),
                self.layout.of_updates.naming_tensors(),
            ):
                message: RoleMessage = self.steps.step(phase, answer)
        except RangeError:
            self.keep()  # a method may give up what it cannot encrypt
            raise
        metrics = self._told.metrics if self._told.round == self._round else {}
        return self.replied(message, {name: MetricRecord(one) for name, one in metrics.items()})

    def _train(self, app: App) -> Error | None:
        number, model = said(self._asked, "round", Number), self._brought()
        if model is None:
            raise PolicyError(f"round {number} came without its first message")
        self._take_ends()
        start = self.steps.begin_round(number, said(self._asked, "participants", Number), model)
        self._round = number
        if not self.steps.has_trained:
            reply = app.handled(self._arrays(start), asked_training(start, self.index))
            if reply.has_error():
                return reply.error
            update = update_of(reply.content, start, self.layout)
            self._check_weight(reply.content)
            self.steps.finish_training(update)
            metrics = self._leaving(reply.content.metric_records)
            records = {name: dict(record) for name, record in metrics.items()}
            self._told.round, self._told.metrics = self._round, records
            self._update = _digest_of(start, update) if self.method.purposes else None
        app.forget_training()
        return None

    def _check_weight(self, content: RecordDict) -> None:
        """Refuse another number of samples than the client counts by.

        A number that the app stated is checked whichever metric the server names. Nothing is checked if an
        epsilon is stated: the server would learn about any such number.
        """
        if self.method.states_epsilon:
            return
        metrics, name = content.metric_records, str(self._asked.get("weighted-by"))
        numbers = [record[name] for record in metrics.values() if name in record]
        if self.app_counts and not self.weight == self.setup.plan.most_weight == 1:
            numbers.append(samples_in(metrics))
        for number in numbers:
            if number != self.weight:
                raise PolicyError(
                    f"the client counts by {self.weight:,} samples, as it said when the run began, and has "
                    f"trained on {number}: the number must stay the same in a run"
                )

    def _leaving(self, metrics: Mapping[str, MetricRecord]) -> Mapping[str, MetricRecord]:
        """Return which app metrics leave: none while an epsilon holds, or all, which ends the epsilon."""
        if not self.method.states_epsilon or not metrics:
            return metrics
        if not self.clear_metrics:
            log(
                INFO,
                "shieldfl: metrics stay here: no noise is theirs. ShieldMod(clear_metrics=True) lets them go",
            )
            return {}
        # An evaluation is of the model that the last round ended with.
        number = self._round or max(self._told.ended, 1)
        if number > self._told.clear_metrics:
            self._told.clear_metrics = number
            self._told.add(ClearUpload(number, self.index, "metrics"))
        return metrics

    def _brought(self) -> RoleMessage | None:
        """Return the role's message, with the model that it stands for.

        One that is evaluated is kept for later.
        """
        message = message_in(self._content)
        if message is not None and HELD in message:
            found = with_held(message, self._model) or with_held(message, self._initial.to_message())
            if found is None:
                raise WireFormatError(
                    "this node does not have the model that the message stands for: send it whole"
                )
            message = found
        elif message is not None and self._kind == "model" and not self.method.clients_open:
            self._model, self._model_is_kept = model_parts(message), False
        return message

    def _take_ends(self) -> None:
        """Take, once, the end of this client's last round, and then the ends of those that it was not in."""
        end, missed = (message_in(self._content, f"shieldfl.{name}") for name in ("end", "missed"))
        of_round = said(self._asked, "ended", Number, 0)
        if end is not None and of_round > self._told.ended:
            self.steps.end_round(end)
            self._told.ended = of_round
        if missed is not None:
            rest, ends = missed_parts(missed, RoleMessage.from_bytes)
            if rest:
                raise WireFormatError("the ends of rounds came with parts that none has")
            self.steps.catch_up(ends)

    def model(self) -> ArrayRecord:
        """Return the client's own model as the app's arrays, made of the global one, where that travels."""
        self._take_ends()
        return self._arrays(
            self.steps.merged_model(self.steps.global_model(self._brought() or RoleMessage()))
        )

    def _arrays(self, start: StartingPoint) -> ArrayRecord:
        return self.layout.record_of(start, self.layout.apart_from_message(self._begun))


def _digest_of(start: StartingPoint, update: LocalUpdate) -> bytes:
    difference = hashlib.sha256()
    with np.errstate(over="ignore"):
        difference.update((update.parameters - start.parameters).data)
        if start.buffers.size == update.buffers.size:
            difference.update((update.buffers - start.buffers).data)
    return difference.digest()


_UNTOLD = "the client failed: the node's log says why"
"""Text of every error if an epsilon is stated."""


class ShieldMod:
    """Stands between Flower and a ClientApp: ``ClientApp(mods=[shield_mod, ...])``, before every other mod.

    Mods after it see what the app sees, and those before it what leaves. The app is called as ever, with a
    model's arrays, and returns trained ones and metrics. The arrays do not leave the node: the message of the
    run's method does, once it was written down. Metrics leave as they are. If the method states an epsilon,
    which does not cover them, they stay. What a server sends without protection is refused, except queries,
    which the app answers as ever.

    Parameters
    ----------
    samples : returns how many samples this client trains on, for runs in which clients count by their
        samples. Without it the app trains once more before a run's keys are made, and the metric
        ``num-examples`` says it.
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
                "the server asks for an unprotected update, and this client protects its updates: wrap the "
                "server's strategy in ShieldStrategy, which alone may send training requests"
            )
        asked, kind = asked_of(message.content), message.metadata.message_type
        if kind.startswith(MessageType.EVALUATE) != (asked["kind"] == "model"):
            raise PolicyError("the message's type does not fit its request")
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
        session.app_counts, session.clear_metrics = self._samples is None, self._clear_metrics
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
    """Return a failure whose text is in the log alone: it may depend on the data, and has no noise.

    The server has to know that training gave what cannot be sent, since that is charged.
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
    if simulated and asked.get("store"):  # so that a simulation can be resumed
        partition = str(context.node_config["partition-id"])
        return DiskMemory(Path(said(asked, "store", str)) / partition, at_least)
    if not simulated:
        raise PolicyError(
            "outside of a simulation a node keeps its secrets on its own disk: set shieldfl-store in its "
            "configuration"
        )
    return SimulatedMemory(context)


def _begun(
    brought: RoleMessage, asked: Mapping[str, Any], setup: PublicSetup, samples: int | None
) -> RoleMessage:
    """Return what a client with ``samples``, stated or counted, keeps of a set-up."""
    plan, text = setup.plan, said(asked, "layout", str)
    # In a sum of one client that counts much and others that count little there is but the one's update.
    index, weight = said(asked, "index", Number), said(asked, "weight", Number)
    alike = weight == plan.most_weight == 1
    if not alike and (samples is None or weight != max(samples, 1)):
        raise PolicyError(
            "the server gives this client another weight than its number of samples, or has it count for "
            "itself alone: give the app ShieldMod(samples=...), or let its samples be counted"
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
"""The mod for apps that do not state their number of samples: it counts them by a training."""
