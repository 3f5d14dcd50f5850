"""Which of an app's arrays lie where in the flat vectors that are protected."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import msgspec
import numpy as np
from flwr.app import Array, ArrayRecord

from shieldfl.authority.message import Message
from shieldfl.errors import ParameterError, WireFormatError
from shieldfl.learning.local_update import FloatVector, StartingPoint
from shieldfl.models.model_layout import ParameterLayout
from shieldfl.rounds.global_model import GlobalModel

BUFFERS = "*running_mean,*running_var"
"""The arrays that are statistics of the data and no parameters, by PyTorch's names for those of BatchNorm."""

_APART = "apart "


@dataclass(frozen=True)
class _Place:
    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class RecordLayout:
    """The arrays of an ``ArrayRecord``, in its order, with their shapes and types.

    Arrays of floats are parameters, or buffers; all others, such as BatchNorm's count of batches, stay apart: every
    client goes on with those of the first round, and none sends its own.
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
                why = f"the array {name!r} is of type {array.dtype}, which NumPy does not know: convert it to float32"
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
        """Of a model's vectors: parameters, and buffers."""
        return self.layout.size, _laid_out(self.buffers).size

    @property
    def of_updates(self) -> ParameterLayout:
        return _laid_out((*self.parameters, *self.buffers))

    @property
    def _names(self) -> list[str]:
        return [one.name for one in (*self.parameters, *self.buffers)]

    def digest(self, apart: Message) -> str:
        """Return what all clients have in common, 64 hexadecimal digits: this, and the arrays that stay apart."""
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
        """Raise WireFormatError unless the sizes are these, and each name is there once, in the order, too."""
        names = sorted([*self._names, *apart])
        if (
            self.sizes != (parameters, buffers)
            or names != sorted({*self.order})
            or len(names) < len(self.order)
        ):
            raise WireFormatError(
                "the layout is of another model than the set-up: its sizes or its names are not those that come along"
            )

    def model_of(self, record: ArrayRecord) -> GlobalModel:
        """Return a record's floats as vectors, float32 (P,) and (B,)."""
        if set(record) != set(self.order):
            other = sorted(set(record) ^ set(self.order))
            raise ParameterError(
                f"the arrays are not those of the model that the run began with: {other[0]!r} is in one of the two "
                "alone. Return the whole model, under the same names"
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
                    f"the array {place.name!r} has the shape {array.shape} and the type {array.dtype}: the model that "
                    f"the run began with has floats of the shape {place.shape}"
                )
            parts.append(np.ravel(array))
        with np.errstate(over="ignore"):  # whoever takes the vectors looks whether they are finite
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
    def apart_to_message(apart: Mapping[str, Array]) -> Message:
        heads: dict[str, Any] = {name: (one.dtype, list(one.shape), one.stype) for name, one in apart.items()}
        parts = {f"{_APART}{number}": apart[name].data for number, name in enumerate(heads)}
        return Message({"apart": msgspec.json.encode(heads), **parts})

    @staticmethod
    def apart_from_message(message: Message) -> dict[str, Array]:
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
