"""A client's role in one run, which goes on from message to message: each may be a process of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from logging import INFO
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from flwr.app import ArrayRecord, Error, MetricRecord, RecordDict
from flwr.supercore import log

from shieldfl.authority.message import Message
from shieldfl.errors import PolicyError, RangeError, WireFormatError
from shieldfl.flower.node_memory import NodeMemory, write_model
from shieldfl.flower.record_layout import RecordLayout
from shieldfl.flower.told_events import Telling
from shieldfl.flower.training_records import App, asked_training, update_of
from shieldfl.flower.wire import (
    ASK,
    HELD,
    MESSAGE,
    Kind,
    Number,
    Position,
    ask,
    message_in,
    model_parts,
    packed,
    said,
    with_held,
)
from shieldfl.learning.local_update import LocalUpdate, StartingPoint
from shieldfl.methods.registry import method_of
from shieldfl.privacy.events import ClearUpload
from shieldfl.rounds.method import Method, naming_own_method
from shieldfl.rounds.opening_rule import missed_parts
from shieldfl.rounds.plan import GlobalModel, PublicSetup

BEGUN = "begun"
"""What is kept of how a client's part in a run began."""
_STEPS, _SECRET, _TOLD, _MODEL = "steps", "secret", "told", "model"


class ClientSession:
    """The client's steps, restored from what the node keeps, and kept again by :meth:`keep`: for one message.

    ``begun`` is for the first message of a session: public set-up, index, weight, layout, the initial model, arrays
    that stay apart. It does not change. Raises PolicyError where the node has no part in the session, or another one.
    """

    def __init__(
        self, memory: NodeMemory, session: bytes, threads: int | None, begun: Message | None = None
    ) -> None:
        self._memory, self._threads = memory, threads
        self._since, kept = memory.read(session)
        was = Message.from_bytes(kept[BEGUN]) if BEGUN in kept else None
        if was is not None and begun not in (None, was):
            raise PolicyError(
                "this node takes part in the run already, as another client or from another model: begin a new run"
            )
        found = was or begun
        if found is None:
            raise PolicyError(
                "this node has no part in the run: it was not set up, or its store was lost. It can take part in the "
                "next run"
            )
        self._begun, self._is_begun = found, was is not None
        self.setup = setup = PublicSetup.trusted(bytes(found["setup"]))
        self.method: Method = method_of(setup)
        self.index, self.weight = found.number("index"), found.number("weight")
        self.layout = RecordLayout.from_json(bytes(found["layout"]).decode())
        self._initial = GlobalModel.from_message(found, setup.plan.parameters, setup.plan.buffers)
        self._secret = kept.get(_SECRET) or None
        self._update: bytes | None = None
        self._model = Message.from_bytes(kept[_MODEL]) if _MODEL in kept else None
        self._model_is_kept = True
        self._round = 0
        self._told = msgspec.msgpack.decode(kept[_TOLD], type=Telling) if was else Telling()
        self.clear_metrics = False
        """Whether an app's metrics leave where the method states an epsilon."""
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
        """Write everything down: before anything that comes of it leaves the node."""
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

    def replied(self, answer: Message | None = None, records: Mapping[str, Any] | None = None) -> RecordDict:
        told = ask(self._kind, position=list(self.keep()), **self._told.values())
        own = {} if answer is None else {MESSAGE: packed(answer)}
        return RecordDict({ASK: told, **(records or {}), **own})

    def hear(self, content: RecordDict, asked: Mapping[str, Any]) -> None:
        """Take a server's message, and what comes with every one: which events it knows, and the grant to open sums."""
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
        """Do what the message asks for; return the reply, or the app's error. ``store`` is the node's folder."""
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
                message: Message = self.steps.step(phase, answer)
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

        Not where an epsilon is stated: the server says which metric the number is, and would learn about any of them.
        """
        weighted_by = str(self._asked.get("weighted-by", ""))
        if self.method.states_epsilon or not weighted_by:
            return
        for record in content.metric_records.values():
            if record.get(weighted_by, self.weight) != self.weight:
                raise PolicyError(
                    f"the client counts by {self.weight:,} samples, as it said when the run began, and has trained on "
                    f"{record[weighted_by]:,}: the number must stay the same in a run"
                )

    def _leaving(self, metrics: Mapping[str, MetricRecord]) -> Mapping[str, MetricRecord]:
        """Return which of an app's metrics leave: none where an epsilon holds, or all, and then it holds no longer."""
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

    def _brought(self) -> Message | None:
        """Return the role's message, with the model that it stands for; one that is evaluated is kept for later."""
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
        """Take the end of the last round that this client went through, once, and then of those that it was not in."""
        end, missed = (message_in(self._content, f"shieldfl.{name}") for name in ("end", "missed"))
        of_round = said(self._asked, "ended", Number, 0)
        if end is not None and of_round > self._told.ended:
            self.steps.end_round(end)
            self._told.ended = of_round
        if missed is not None:
            rest, ends = missed_parts(missed, Message.from_bytes)
            if rest:
                raise WireFormatError("the ends of rounds came with parts that none has")
            self.steps.catch_up(ends)

    def model(self) -> ArrayRecord:
        """Return the client's own model as the app's arrays, made of the global one, where that travels."""
        self._take_ends()
        return self._arrays(self.steps.merged_model(self.steps.global_model(self._brought() or Message())))

    def _arrays(self, start: StartingPoint) -> ArrayRecord:
        return self.layout.record_of(start, self.layout.apart_from_message(self._begun))


def _digest_of(start: StartingPoint, update: LocalUpdate) -> bytes:
    difference = hashlib.sha256()
    with np.errstate(over="ignore"):
        difference.update((update.parameters - start.parameters).data)
        if start.buffers.size == update.buffers.size:
            difference.update((update.buffers - start.buffers).data)
    return difference.digest()
