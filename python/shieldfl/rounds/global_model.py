"""The global model as roles keep and send it: parameters, and buffers where these are shared."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shieldfl.authority.message import Message
from shieldfl.errors import ParameterError, RangeError
from shieldfl.learning.local_update import FloatVector, StartingPoint

__all__ = ["GlobalModel", "joined"]


@dataclass(frozen=True)
class GlobalModel:
    """Float32 parameters (P,) and shared float buffers (B,); B is 0 where buffers stay local."""

    parts: ClassVar = frozenset(("parameters", "buffers"))
    """The names of its parts in a message."""

    parameters: FloatVector
    buffers: FloatVector

    def kept(self) -> GlobalModel:
        """Return a model of these numbers that whoever made them cannot change any more: itself, if it is one."""
        if type(_owner(self.parameters)) is type(_owner(self.buffers)) is bytes:
            return self
        vectors = (self.parameters, self.buffers)
        return GlobalModel(*(np.frombuffer(one.tobytes(), one.dtype).reshape(one.shape) for one in vectors))

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the numbers, 32 bytes; taken once, so it is for a model that is :meth:`kept`."""
        digest = hashlib.sha256(b"shieldfl initial model 1\0")
        for vector in (self.parameters, self.buffers):
            digest.update(vector.size.to_bytes(8, "little"))
            digest.update(vector.astype("<f4", copy=False).data)
        return digest.digest()

    def is_like(self, other: GlobalModel) -> bool:
        pairs = ((self.parameters, other.parameters), (self.buffers, other.buffers))
        return all(one.shape == two.shape and bool(np.isfinite(one).all()) for one, two in pairs)

    def kept_in_place_of(self, other: GlobalModel) -> GlobalModel:
        """Return it as roles keep it, to go on from in place of another. Raises ParameterError unless it is like it."""
        if not self.is_like(other):
            raise ParameterError("the model to go on from has other sizes than the plan's, or NaN in it")
        return self.kept()

    def to_message(self) -> Message:
        """Encode as message parts ``parameters`` and ``buffers``: no copies, where the model is :meth:`kept`."""
        return Message({"parameters": _bytes_of(self.parameters), "buffers": _bytes_of(self.buffers)})

    @classmethod
    def from_message(cls, message: Message, parameter_count: int, buffer_count: int) -> GlobalModel:
        return cls(
            message.vector("parameters", np.float32, parameter_count),
            message.vector("buffers", np.float32, buffer_count),
        )

    def moved_finite(self, mean: NDArray[np.float64], learning_rate: float) -> GlobalModel:
        """Take a server step along the mean update (P + B,): model + learning_rate * mean (eq. 26).

        Buffers are statistics, not parameters: they move by the whole mean. Raises RangeError.
        """
        count = self.parameters.size
        with np.errstate(over="ignore"):
            moved = GlobalModel(
                (self.parameters + learning_rate * mean[:count]).astype(np.float32),
                (self.buffers + mean[count:]).astype(np.float32),
            )
        if not (np.isfinite(moved.parameters).all() and np.isfinite(moved.buffers).all()):
            raise RangeError("the new global model is not finite: lower server_learning_rate or the noise")
        return moved

    def starting_point(self, local_buffers: FloatVector | None = None) -> StartingPoint:
        return StartingPoint(self.parameters, self.buffers if local_buffers is None else local_buffers)


def _owner(array: NDArray[Any]) -> object:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array.base


def _bytes_of(vector: FloatVector) -> bytes:
    """Return a vector's bytes: those that it was made of, where it is all of them."""
    owner = _owner(vector)
    if type(owner) is bytes and len(owner) == vector.nbytes and vector.flags.c_contiguous:
        return owner
    return vector.tobytes()


def joined(parameters: NDArray[Any], buffers: NDArray[Any]) -> NDArray[Any]:
    """Return one vector, (P,) and (B,) to (P + B,): the parameters themselves, not a copy, where B is 0."""
    return np.concatenate((parameters, buffers)) if buffers.size else parameters
