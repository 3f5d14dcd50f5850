"""A client's role in one run, which goes on from message to message: each may be a process of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from logging import INFO
from typing import Any

import msgspec
import numpy as np
from flwr.app import ArrayRecord, MetricRecord, RecordDict
from flwr.supercore import log

from shieldfl.errors import KeyMismatchError, PolicyError, RangeError, WireFormatError
from shieldfl.flower.held_models import HELD, model_parts, with_held
from shieldfl.flower.node_memory import NodeMemory, Position
from shieldfl.flower.record_layout import RecordLayout
from shieldfl.flower.told_events import UntoldEvents
from shieldfl.flower.wire import message_in
from shieldfl.methods.protocol.global_model import GlobalModel
from shieldfl.methods.protocol.messages import missed_parts
from shieldfl.methods.protocol.method import Method
from shieldfl.methods.protocol.named_method import naming_own_method
from shieldfl.methods.protocol.public_setup import PublicSetup
from shieldfl.methods.registry import method_of
from shieldfl.privacy.events import ClearUpload
from shieldfl.roles.message import Message
from shieldfl.training.local_update import LocalUpdate, StartingPoint

__all__ = ["ClientSession"]

_BEGUN, _STEPS, _SECRET, _TOLD, _MODEL = "begun", "steps", "secret", "told", "model"


@dataclass(frozen=True)
class _Told:
    """What was said or heard beside the role's messages."""

    round: int = 0
    metrics: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By record, what the app said of its training in that round."""
    ended: int = 0
    """The last round that this client went through, and whose end it has."""
    events: UntoldEvents = field(default_factory=UntoldEvents)
    clear_metrics: int = 0
    """The last round of which it was told that metrics have left."""


class ClientSession:
    """The client's steps, restored from what the node keeps, and kept again by :meth:`keep`.

    Parameters
    ----------
    memory : of the node.
    setup : public set-up of the run.
    begun : what does not change: index, weight, layout, the initial model, arrays that stay apart.
    threads : for the core.
    since : how far the memory had come when this was read from it.
    secret : what this client shares with the others, where it has been granted that.

    Attributes
    ----------
    clear_metrics : bool
        Whether an app's metrics leave where the method states an epsilon.
    """

    def __init__(
        self,
        memory: NodeMemory,
        setup: PublicSetup,
        begun: Message,
        threads: int | None,
        since: Position,
        secret: bytes | None = None,
    ) -> None:
        self._memory = memory
        self._since = since
        self._threads = threads
        self._begun = begun
        self._begun_is_kept = False
        self.setup = setup
        self.method: Method = method_of(setup)
        self.index = begun.number("index")
        self.weight = begun.number("weight")
        self.layout = RecordLayout.from_json(bytes(begun["layout"]).decode())
        self._initial = GlobalModel.from_message(begun, setup.plan.parameters, setup.plan.buffers)
        self._secret = secret
        self._update: bytes | None = None
        self._model: Message | None = None
        self._model_is_kept = True
        self._round = 0
        self._told = _Told()
        self.clear_metrics = False
        with naming_own_method(self.method.name, type(self.method)):
            self.steps = self.method.client_steps(
                setup, self.index, self.weight, self._initial, threads=threads, shared_secret=secret
            )

    @classmethod
    def begin(
        cls, memory: NodeMemory, setup: PublicSetup, begun: Message, threads: int | None
    ) -> ClientSession:
        """Begin a session, or go on with it where the same was begun.

        Raises PolicyError where it was begun as another client, or with another model; KeyMismatchError for another
        layout of the model's arrays than the set-up has.
        """
        since, kept = memory.read(setup.session)
        if _BEGUN not in kept:
            one = cls(memory, setup, begun, threads, since)
            one._check_layout()
            return one
        if Message.from_bytes(kept[_BEGUN]) != Message({**begun, "setup": setup.to_bytes()}):
            raise PolicyError(
                "this node takes part in the run already, as another client or from another model: begin a new run"
            )
        return cls._restored(memory, setup.session, kept, threads, since)

    @classmethod
    def load(cls, memory: NodeMemory, session: bytes, threads: int | None) -> ClientSession:
        """Go on with a session. Raises PolicyError where the node has none."""
        since, kept = memory.read(session)
        if _BEGUN not in kept:
            raise PolicyError(
                "this node has no part in the run: it was not set up, or its store was lost. It can take part in the "
                "next run"
            )
        return cls._restored(memory, session, kept, threads, since)

    @staticmethod
    def index_in(kept: Mapping[str, bytes]) -> int | None:
        """Return as which client a node takes part, by what it keeps of a session; None where it takes none."""
        return Message.from_bytes(kept[_BEGUN]).number("index") if _BEGUN in kept else None

    @classmethod
    def _restored(
        cls,
        memory: NodeMemory,
        session: bytes,
        kept: Mapping[str, bytes],
        threads: int | None,
        since: Position,
    ) -> ClientSession:
        begun = Message.from_bytes(kept[_BEGUN])
        setup = PublicSetup.trusted(bytes(begun["setup"]))
        one = cls(memory, setup, begun, threads, since, kept[_SECRET] or None)
        one._begun_is_kept = True
        one.steps.restore(kept[_STEPS], one._key)
        one._told = msgspec.msgpack.decode(kept[_TOLD], type=_Told)
        one._model = Message.from_bytes(kept[_MODEL]) if _MODEL in kept else None
        return one

    def _check_layout(self) -> None:
        arrays = Message({name: part for name, part in self._begun.items() if name.startswith("apart")})
        if self.layout.digest(arrays) != self.setup.plan.layout_digest:
            raise KeyMismatchError(
                "the server places the model's arrays otherwise than the set-up says: nothing is trained"
            )
        plan = self.setup.plan
        self.layout.check(plan.parameters, plan.buffers, self.layout.apart_from_message(arrays))

    @property
    def _key(self) -> bytes | None:
        return self._memory.state_key(self.setup.session) if self.steps.needs_sealing else None

    def keep(self) -> Position:
        """Write everything down: before anything that comes of it leaves the node."""
        report = self.steps.report()
        for note in report.notes:  # nobody else learns of them: some depend on the data
            log(INFO, "shieldfl: %s", note)
        if self.method.states_epsilon:
            self._told = replace(self._told, events=self._told.events.and_(report.events))
        contents = {
            _STEPS: self.steps.state(self._key),
            _SECRET: self._secret or b"",
            _TOLD: msgspec.msgpack.encode(self._told),
        }
        if self._model is not None and not self._model_is_kept:
            contents[_MODEL] = self._model.to_bytes()
        if not self._begun_is_kept:
            contents[_BEGUN] = Message({**self._begun, "setup": self.setup.to_bytes()}).to_bytes()
        self._since = self._memory.keep(
            self.setup.session, contents, since=self._since, round_number=self._round, update=self._update
        )
        self._begun_is_kept, self._model_is_kept, self._update = True, True, None
        return self._since

    def brought(self, content: RecordDict, *, keeps: bool = False) -> Message | None:
        """Return the role's message of a content, with the model that it stands for; ``keeps``: for later messages.

        Raises WireFormatError for a model that this node does not have.
        """
        message = message_in(content)
        if message is not None and HELD in message:
            found = with_held(message, self._model) or with_held(message, self._initial.to_message())
            if found is None:
                raise WireFormatError(
                    "this node does not have the model that the message stands for: send it whole"
                )
            message = found
        elif message is not None and keeps and not self.method.clients_open:
            self._model, self._model_is_kept = model_parts(message), False
        return message

    def take_known_events(self, known: int) -> None:
        """Give up the first events that the server has written down. Raises WireFormatError for more than there are."""
        self._told = replace(self._told, events=self._told.events.after(known))

    def events(self) -> dict[str, Any]:
        """Return what a reply says of what has left this client."""
        return self._told.events.values()

    def take_grant(self, grant: Message | None) -> None:
        """Take what lets this client open sums, where it comes along and was not taken before."""
        if grant is None or not grant:
            return
        self.steps.enrolled(grant)
        if self.steps.awaits_secret:
            self.steps, self._secret = self.method.granted_client_steps(
                self.setup, self.index, self.weight, self._initial, self.steps, threads=self._threads
            )

    def take_ends(self, end: Message | None, of_round: int, missed: Message | None) -> None:
        """Take the end of the last round that this client went through, once, and then of those that it was not in."""
        if end is not None and of_round > self._told.ended:
            self.steps.end_round(end)
            self._told = replace(self._told, ended=of_round)
        if missed is not None:
            rest, ends = missed_parts(missed, Message.from_bytes)
            if rest:
                raise WireFormatError("the ends of rounds came with parts that none has")
            self.steps.catch_up(ends)

    def begin_round(self, round_number: int, participants: int, model: Message) -> StartingPoint:
        """Begin a round."""
        start: StartingPoint = self.steps.begin_round(round_number, participants, model)
        self._round = round_number
        return start

    def finish_training(
        self, start: StartingPoint, update: LocalUpdate, metrics: Mapping[str, MetricRecord]
    ) -> None:
        """Take what training gave, and what the app says of it."""
        self.steps.finish_training(update)
        records = {name: dict(record) for name, record in self.leaving(metrics).items()}
        self._told = replace(self._told, round=self._round, metrics=records)
        if self.method.purposes:
            difference = hashlib.sha256()
            with np.errstate(over="ignore"):
                difference.update((update.parameters - start.parameters).data)
                if start.buffers.size == update.buffers.size:
                    difference.update((update.buffers - start.buffers).data)
            self._update = difference.digest()

    def leaving(self, metrics: Mapping[str, MetricRecord]) -> Mapping[str, MetricRecord]:
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
            event = ClearUpload(number, self.index, "metrics")
            self._told = replace(self._told, clear_metrics=number, events=self._told.events.and_([event]))
        return metrics

    def metrics(self, round_number: int) -> dict[str, MetricRecord]:
        """Return what the app said of its training in a round, to be said again with the same message."""
        if self._told.round != round_number:
            return {}
        return {name: MetricRecord(one) for name, one in self._told.metrics.items()}

    def step(self, phase: str, answer: Message | None) -> Message:
        """Make a phase's message; a value that cannot be encrypted is named by its tensor."""
        try:
            with (
                naming_own_method(self.method.name, type(self.method)),
                self.layout.of_updates.naming_tensors(),
            ):
                message: Message = self.steps.step(phase, answer)
        except RangeError:
            self.keep()  # a method may give up what it cannot encrypt
            raise
        return message

    def model(self, message: Message) -> ArrayRecord:
        """Return the client's own model as the app's arrays; ``message`` is the global one, where that travels."""
        return self.arrays(self.steps.merged_model(self.steps.global_model(message)))

    def arrays(self, start: StartingPoint) -> ArrayRecord:
        """Return a model as the app's arrays."""
        apart = self.layout.apart_from_message(self._begun)
        return self.layout.record_of(start.parameters, start.buffers, apart)
