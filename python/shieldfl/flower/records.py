"""Flower's records: what ShieldStrategy and shield_mod say to each other, and an app's arrays and training.

Most methods ask an app for nothing but the trained arrays, and it need not know of what else can be asked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from fnmatch import fnmatchcase
from logging import WARNING
from typing import Annotated, Any, Literal, get_args

import msgspec
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as ProtoRecordDict
from flwr.supercore import log

from shieldfl.array_view import FloatVector
from shieldfl.authority.message import Message as RoleMessage
from shieldfl.authority.round_key_check import digest_of_parts
from shieldfl.errors import DataError, ParameterError, PolicyError, WireFormatError
from shieldfl.learning.local_update import LocalUpdate, PrivateSteps, StartingPoint
from shieldfl.models.model_layout import ParameterLayout
from shieldfl.rounds.plan import GlobalModel

# Names of records: what a message asks for or a reply is of, and the role's message.
ASK = "shieldfl"
MESSAGE = "shieldfl.message"
TRAINING = "shieldfl.learning"  # what training a round asks for, and what was done

COUNTED_METRIC = "num-examples"
"""Name of the only metric that counts a node's samples: if the server chose it, it would learn any."""
HELD = "held model"
"""Name of the message part that stands for a model which the node has, by the model's digest."""

NO_SHIELD = (
    "no ShieldMod has handled the message: give the app ClientApp(mods=[ShieldMod(), ...]), for all of its "
    "functions and before every other mod"
)

Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Position = tuple[Number, Number]
"""How far a node's store has come: its epoch, and its number of rows."""

NamedEvents = list[tuple[str, dict[str, Any]]]
MOST_EVENTS = 256
"""Largest number of a client's events in a reply; the rest comes with the next one."""

_MISSING = object()
_STYPE = "shieldfl.message 1"
_VERSION = 4


Kind = Literal[
    "hello",  # who it is
    "count",  # to train from the first model, and to say on how many samples
    "set-up",  # to take a public set-up and to enrol
    "train",  # to begin a round, to train, and to make the first phase's message
    "phase",  # to make a further phase's
    "model",  # to have the app evaluate the client's model
    "finish",  # to take what is left, after the last round
]


def packed(message: RoleMessage) -> ArrayRecord:
    """Return a role's message as an array: Flower divides one that is too large for one of its messages."""
    data = message.to_bytes()
    return ArrayRecord({"message": Array("uint8", (len(data),), _STYPE, data)})


def bytes_in(content: RecordDict, name: str = MESSAGE) -> bytes | None:
    """Return the bytes of a role's message under a name; None where there is none. Raises WireFormatError."""
    record = content.array_records.get(name)
    if record is None:
        return None
    array = record.get("message")
    if len(record) != 1 or array is None or array.stype != _STYPE:
        raise WireFormatError(f"the record {name!r} holds no message of this version of shieldfl")
    return array.data


def message_in(content: RecordDict, name: str = MESSAGE) -> RoleMessage | None:
    found = bytes_in(content, name)
    return None if found is None else RoleMessage.from_bytes(found)


def ask(kind: Kind, **values: Any) -> ConfigRecord:
    """Return a record that asks for something. It has no empty value: message_size_mod counts none."""
    named = {name.replace("_", "-"): value for name, value in values.items() if value not in ("", b"", [])}
    return ConfigRecord({"version": _VERSION, "kind": kind, **named})


def said(record: Mapping[str, Any], name: str, kind: Any, default: Any = _MISSING) -> Any:
    try:
        return msgspec.convert(record.get(name, default), kind)
    except msgspec.ValidationError:
        raise WireFormatError(f"the message does not say {name.replace('-', ' ')} as it has to") from None


def asked_of(content: RecordDict) -> Mapping[str, Any]:
    """Return what a message asks for. Raises WireFormatError for nothing, or another version's."""
    record = content.config_records.get(ASK)
    if record is None:
        raise WireFormatError(NO_SHIELD)
    if record.get("version") != _VERSION or record.get("kind") not in get_args(Kind):
        raise WireFormatError(
            "the message comes from another version of shieldfl: install the same version on the server "
            "and on all nodes"
        )
    return record


def model_parts(message: RoleMessage) -> RoleMessage | None:
    if not message.keys() >= GlobalModel.parts:
        return None
    return RoleMessage({name: message[name] for name in sorted(GlobalModel.parts)})


def with_held(message: RoleMessage, model: RoleMessage | None) -> RoleMessage | None:
    """Return a message with the model that its digest stands for, if that is this one; else None."""
    if model is None or digest_of_parts(model) != bytes(message[HELD]):
        return None
    return RoleMessage({**{name: part for name, part in message.items() if name != HELD}, **model})


BUFFERS = "*running_mean,*running_var"
"""Patterns of names of arrays that are statistics, not parameters: PyTorch's names in BatchNorm."""

_APART = "apart "


@dataclass(frozen=True)
class _Place:
    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class RecordLayout:
    """The arrays of an ``ArrayRecord``, in its order, with their shapes and types.

    Arrays of floats are parameters, or buffers; all others, such as BatchNorm's count of batches, stay apart:
    every client keeps those of the first round, and none sends its own.
    """

    order: tuple[str, ...]
    parameters: tuple[_Place, ...]
    buffers: tuple[_Place, ...]

    @classmethod
    def of(cls, record: ArrayRecord, buffers: str = BUFFERS) -> RecordLayout:
        patterns = [one.strip() for one in buffers.split(",")]
        places: tuple[list[_Place], list[_Place]] = [], []
        for name, array in record.items():
            try:
                kind = np.dtype(array.dtype)
            except TypeError:
                why = (
                    f"the array {name!r} is of type {array.dtype}, which NumPy does not know: convert it to "
                    "float32"
                )
                raise ParameterError(why) from None
            if kind.kind == "f":
                is_buffer = any(fnmatchcase(name, pattern) for pattern in patterns)
                places[is_buffer].append(_Place(name, tuple(array.shape), kind.name))
        layout = cls(tuple(record), *map(tuple, places))
        if not layout.layout.size:
            raise ParameterError("the model has no parameters: there is nothing to train or protect")
        return layout

    @property
    def layout(self) -> ParameterLayout:
        return _laid_out(self.parameters)

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of values in a model's vectors: parameters, and buffers."""
        return self.layout.size, _laid_out(self.buffers).size

    @property
    def of_updates(self) -> ParameterLayout:
        return _laid_out((*self.parameters, *self.buffers))

    @property
    def _names(self) -> list[str]:
        return [one.name for one in (*self.parameters, *self.buffers)]

    def digest(self, apart: RoleMessage) -> str:
        """Return 64 hexadecimal digits of what all clients share: this layout, and the arrays kept apart."""
        own = hashlib.sha256(b"shieldfl layout 1\0" + self.to_json().encode()).digest()
        return hashlib.sha256(own + apart.to_bytes()).hexdigest()

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str) -> RecordLayout:
        try:
            read = msgspec.json.decode(text, type=cls)
            for one in (*read.parameters, *read.buffers):
                # NumPy bounds dimensions and bytes, of empty arrays, too; this takes no memory.
                if np.broadcast_to(np.empty((), one.dtype), one.shape).dtype.kind != "f":
                    raise ValueError(one.dtype)
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise WireFormatError("this is no layout of a model that this version can read") from error
        return read

    def check(self, parameters: int, buffers: int, apart: Mapping[str, Array]) -> None:
        """Raise WireFormatError unless the sizes are these and each name is there once, also in the order."""
        names = sorted([*self._names, *apart])
        if (
            self.sizes != (parameters, buffers)
            or names != sorted({*self.order})
            or len(names) < len(self.order)
        ):
            raise WireFormatError(
                "the layout belongs to another model than the set-up: its sizes or names differ"
            )

    def model_of(self, record: ArrayRecord) -> GlobalModel:
        """Return a record's floats as vectors, float32 (P,) and (B,)."""
        if set(record) != set(self.order):
            other = sorted(set(record) ^ set(self.order))
            raise ParameterError(
                f"the arrays are not those of the model that the run began with: {other[0]!r} is in one of "
                "the two alone. Return the whole model, under the same names"
            )
        return GlobalModel(self._vector(self.parameters, record), self._vector(self.buffers, record))

    def scores_of(self, record: ArrayRecord) -> FloatVector:
        if set(record) != {one.name for one in self.parameters}:
            raise ParameterError("scores are arrays under the names, of the shapes, of parameters")
        return self._vector(self.parameters, record)

    def _vector(self, places: Iterable[_Place], record: ArrayRecord) -> FloatVector:
        parts = []
        for place in places:
            array = record[place.name].numpy()
            if array.shape != place.shape or array.dtype.kind != "f":
                raise ParameterError(
                    f"the array {place.name!r} has the shape {array.shape} and the type {array.dtype}: the "
                    f"model that the run began with has floats of the shape {place.shape}"
                )
            parts.append(np.ravel(array))
        with np.errstate(over="ignore"):  # the receiver of the vectors checks that they are finite
            return np.concatenate([np.empty(0, np.float32), *parts], dtype=np.float32, casting="same_kind")

    def record_of(self, model: GlobalModel | StartingPoint, apart: Mapping[str, Array]) -> ArrayRecord:
        found: dict[str, Array] = dict(apart)
        for places, vector in ((self.parameters, model.parameters), (self.buffers, model.buffers)):
            for place, (_, part) in zip(places, _laid_out(places).slices(), strict=True):
                found[place.name] = Array(vector[part].reshape(place.shape).astype(place.dtype))
        return ArrayRecord({name: found[name] for name in self.order})

    def apart_of(self, record: ArrayRecord) -> dict[str, Array]:
        known = set(self._names)
        return {name: array for name, array in record.items() if name not in known}

    @staticmethod
    def apart_to_message(apart: Mapping[str, Array]) -> RoleMessage:
        heads: dict[str, Any] = {name: (one.dtype, list(one.shape), one.stype) for name, one in apart.items()}
        parts = {f"{_APART}{number}": apart[name].data for number, name in enumerate(heads)}
        return RoleMessage({"apart": msgspec.json.encode(heads), **parts})

    @staticmethod
    def apart_from_message(message: RoleMessage) -> dict[str, Array]:
        try:
            heads = msgspec.json.decode(message["apart"], type=dict[str, tuple[str, tuple[int, ...], str]])
            has_floats = any(np.dtype(dtype).kind == "f" for dtype, _, _ in heads.values())
        except (ValueError, TypeError, RecursionError) as error:
            raise WireFormatError("this is no list of arrays that this version can read") from error
        if has_floats:
            raise WireFormatError("floats stay apart from what is protected in no layout")
        arrays = {}
        for number, (name, head) in enumerate(heads.items()):
            arrays[name] = Array(*head, bytes(message[f"{_APART}{number}"]))
            if not _is_readable(arrays[name]):
                raise WireFormatError(f"the bytes of the array {name!r} are not of its type and shape")
        return arrays


def _laid_out(places: Iterable[_Place]) -> ParameterLayout:
    return ParameterLayout.of((one.name, one.shape) for one in places)


def _is_readable(array: Array) -> bool:
    """Say whether an array's bytes are what it says that they are."""
    try:
        found = array.numpy()
        is_said = found.dtype == np.dtype(array.dtype) and found.shape == tuple(array.shape)
    except Exception:  # NumPy has a tokenizer read the head, which raises errors of its own
        return False
    return is_said and found.itemsize > 0


PROTECTS = ContextVar("protects", default=False)
"""Whether a ShieldMod is calling the app: one of its functions may have a ShieldMod beside the app's."""
SCORES = "shieldfl.scores"
"""Name of the record with scores: arrays with the names and shapes of the model's parameters."""

_KEPT = "shieldfl.counted"


def asked_training(start: StartingPoint, client: int) -> ConfigRecord | MetricRecord:
    """Return what a round asks of training (scores, DP-SGD, synthetic data), with round and client.

    A round that asks for none of that brings the two numbers as metrics: Flower's mods that clip take no
    second ConfigRecord, and message_size_mod no empty value.
    """
    numbers: dict[str, Any] = {"round": start.round or 0, "client": client}
    noise = start.noise
    if start.scores is None and noise is None and not start.synthetic and not start.synthetic_share:
        return MetricRecord(numbers)
    if start.scores is not None:
        numbers["scores"] = start.scores
    multiplier, norm = (0.0, 0.0) if noise is None else (noise.noise_multiplier, noise.max_grad_norm)
    return ConfigRecord(
        {
            **numbers,
            "synthetic": start.synthetic,
            "synthetic-share": start.synthetic_share,
            "private": noise is not None,
            "noise-multiplier": multiplier,
            "max-grad-norm": norm,
        }
    )


class App:
    """A ClientApp that handles a message as if an unprotected server had sent it.

    A node that does not state its number of samples counts them by a training before a run's keys are made.
    The other results of that training are kept in the app's state, and round 1 takes them if it asks for the
    same.
    """

    def __init__(
        self, message: Message, asked: Mapping[str, Any], context: Context, call_next: ClientAppCallable
    ) -> None:
        self._message, self._asked, self._context, self._call_next = message, asked, context, call_next
        self._state = context.state

    def handled(self, arrays: ArrayRecord, training: ConfigRecord | MetricRecord | None = None) -> Message:
        """Have the app train, or evaluate.

        If it has trained on exactly this to be counted, return that result.
        """
        content, kept = self._content(arrays, training), self._kept
        if kept.get("given") != content.object_id:
            return self._called(content)
        self._give_app(kept["state"])
        return Message(_records_in(kept["reply"]), reply_to=self._message)

    def _content(self, arrays: ArrayRecord, training: ConfigRecord | MetricRecord | None) -> RecordDict:
        """Return what an unprotected server would send the app: arrays, and the records of its own beside.

        Arrays of the server's own are refused: no signature says what they are, or that all clients get the
        same.
        """
        content = RecordDict({said(self._asked, "arrays", str): arrays})
        for name, record in self._message.content.items():
            if name.startswith(ASK):
                continue
            if name in content or isinstance(record, ArrayRecord):
                raise PolicyError(
                    f"the server sends {name!r} beside what is protected: a client trains from the run's "
                    "model and no other"
                )
            content[name] = record
        if training is not None:
            content[TRAINING] = training
        return content

    def _called(self, content: RecordDict) -> Message:
        protected, self._message.content = self._message.content, content
        inside = PROTECTS.set(True)
        try:
            return self._call_next(self._message, self._context)
        finally:
            PROTECTS.reset(inside)
            self._message.content = protected

    @property
    def _kept(self) -> Mapping[str, Any]:
        return self._state.config_records.get(_KEPT, ConfigRecord())

    @property
    def counted(self) -> tuple[int | None, RoleMessage | None]:
        """The app's counted number of samples, and the model that it trained from to count them."""
        model = self._kept.get("model")
        return self._kept.get("samples"), None if model is None else RoleMessage.from_bytes(model)

    def count(self, model: RoleMessage) -> int:
        """Have the app train as its server's first round asks for it; return how many samples that was."""
        layout = RecordLayout.from_json(said(self._asked, "layout", str))
        numbers = GlobalModel.from_message(model, *layout.sizes)
        start = StartingPoint(numbers.parameters, numbers.buffers, round=1)
        apart = layout.apart_from_message(model)
        layout.check(*layout.sizes, apart)
        training = asked_training(start, said(self._asked, "index", Number))
        content = self._content(layout.record_of(start, apart), training)
        given, before = content.object_id, self._state_of_app()
        try:
            reply = self._called(content)
            if reply.has_error():
                raise DataError(reply.error.reason)
        except Exception as error:
            log(WARNING, "shieldfl: the training that counts samples: %s", error, exc_info=error)
            why = "the app's training failed, by which its samples are counted: the node's log says why"
            raise PolicyError(why) from None
        finally:
            after = self._state_of_app()
            self._give_app(before)
        samples = samples_in(reply.content.metric_records)
        self._state[_KEPT] = ConfigRecord(
            {
                "samples": samples,
                "given": given,
                "model": numbers.to_message().to_bytes(),
                "state": after,
                "reply": _bytes_of(reply.content),
            }
        )
        return samples

    def _state_of_app(self) -> bytes:
        own = {name: one for name, one in self._state.items() if not name.startswith(ASK)}
        return _bytes_of(RecordDict(own))

    def _give_app(self, state: bytes) -> None:
        for name in [one for one in self._state if not one.startswith(ASK)]:
            del self._state[name]
        self._state.update(_records_in(state))

    def forget_training(self) -> None:
        """Drop all but the count: that training's result is on its way, or will not be asked for."""
        if _KEPT in self._state:
            self._state[_KEPT] = ConfigRecord({"samples": self._kept["samples"]})


def _bytes_of(records: RecordDict) -> bytes:
    return bytes(recorddict_to_proto(records).SerializeToString())


def _records_in(data: bytes) -> RecordDict:
    return recorddict_from_proto(ProtoRecordDict.FromString(data))


def samples_in(metrics: Mapping[str, MetricRecord]) -> int:
    said_so = [record[COUNTED_METRIC] for record in metrics.values() if COUNTED_METRIC in record]
    if not said_so:
        raise PolicyError(
            "the app does not say how many samples it has trained on: return them as the metric "
            f"{COUNTED_METRIC!r}, a whole number, or give it ShieldMod(samples=...)"
        )
    found = said_so[0]
    if not isinstance(found, int | float) or not 0 <= found < 2**32 or found != int(found):
        raise PolicyError(
            f"the app's metric {COUNTED_METRIC!r} is no whole number, at least 0 and below 2^32: return how "
            "many samples it has trained on, or give it ShieldMod(samples=...)"
        )
    return int(found)


def done_training(update: LocalUpdate, *, synthetic: bool) -> ConfigRecord:
    private = update.private_steps
    steps, rate = (0, 0.0) if private is None else (private.steps, private.sample_rate)
    return ConfigRecord({"synthetic": synthetic, "steps": steps, "sample-rate": rate})


def update_of(content: RecordDict, start: StartingPoint, layout: RecordLayout) -> LocalUpdate:
    """Return the update that an app's reply has.

    Raises PolicyError if a round asks for synthetic data or private training, and the reply does not say that
    it was so; ParameterError for missing scores, for other arrays than the model's, or several records of
    them.
    """
    models = dict(content.array_records)
    scores = models.pop(SCORES, None)
    if len(models) != 1:
        raise ParameterError(
            f"the app's reply has {len(models)} records of arrays: return the trained model in one, and "
            "nothing else"
        )
    told: dict[str, Any] = dict(content.config_records.get(TRAINING, {}))
    model = layout.model_of(*models.values())
    if start.synthetic and told.get("synthetic") is not True:
        raise PolicyError(
            "this round trains on synthetic data and sends the result in the clear: the app must confirm "
            f"that it did, in the record {TRAINING!r}"
        )
    steps, rate = told.get("steps"), told.get("sample-rate", 0.0)
    private = PrivateSteps(int(steps), float(rate)) if steps else None
    if start.noise is not None and private is None:
        raise PolicyError(
            "this round trains by DP-SGD: the app has to say how many steps it made, at which sample rate, "
            f"in the record {TRAINING!r}"
        )
    found = None
    if start.scores is not None:
        if scores is None:
            raise ParameterError(
                f"the method needs scores of the kind {start.scores!r}: return them as the record "
                f"{SCORES!r}, arrays under the names of the model's parameters"
            )
        found = layout.scores_of(scores)
    return start.trained(model.parameters, model.buffers, found, private)
