"""Memory that processes share, for the vectors that clients train from and come to."""

from __future__ import annotations

import mmap
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shieldfl.array_view import address_of
from shieldfl.training.local_update import FloatVector, StartingPoint

__all__ = ["Place", "SharedVectors"]


class Place(NamedTuple):
    """Where a training's vectors are."""

    start: int
    result: int


class SharedVectors:
    """Vectors of so many trainings at a time, in memory that copies of this process made later share with it.

    Clients that start from one and the same model read one copy of it.

    Parameters
    ----------
    count : trainings at a time.
    parameters, buffers : how many of each a model has.
    """

    def __init__(self, count: int, parameters: int, buffers: int) -> None:
        self._sizes = parameters, buffers
        self._starts = _shared(count, parameters + buffers)
        self._results = _shared(count, 2 * parameters + buffers)
        self._free = list(range(count))
        self._users = [0] * count
        """Of each start, the trainings under way from it."""
        self._newest: tuple[int, StartingPoint] | None = None
        """Which start was written last, and what was: held, so that its memory is no other vector's."""

    @property
    def has_room(self) -> bool:
        """Whether another training's vectors find a place."""
        return bool(self._free)

    def place(self, start: StartingPoint) -> Place:
        """Write what a training starts from, where it is not there already, and return where its vectors are."""
        result = self._free.pop()
        if self._newest is not None and _are_same(self._newest[1], start):
            number = self._newest[0]
        else:
            number = self._users.index(0)
            self._newest = None  # until all of it is written
            parameters, buffers = self.start_of(Place(number, 0))
            parameters[:], buffers[:] = start.parameters, start.buffers
            self._newest = number, start
        self._users[number] += 1
        return Place(number, result)

    def give_back(self, place: Place) -> None:
        """Let other trainings have a place."""
        self._users[place.start] -= 1
        self._free.append(place.result)

    def start_of(self, place: Place) -> list[FloatVector]:
        """Return parameters and buffers that a training starts from."""
        return np.split(self._starts[place.start], [self._sizes[0]])

    def result_of(self, place: Place) -> list[FloatVector]:
        """Return the parameters, buffers and scores that a training comes to, to be written or read."""
        parameters, buffers = self._sizes
        return np.split(self._results[place.result], [parameters, parameters + buffers])


def _shared(count: int, width: int) -> npt.NDArray[np.float32]:
    # Of no file: nothing of it is left behind, and its pages are there when they are written to.
    return np.frombuffer(mmap.mmap(-1, max(1, 4 * count * width)), np.float32, count * width).reshape(
        count, width
    )


def _are_same(one: StartingPoint, other: StartingPoint) -> bool:
    pairs = (one.parameters, other.parameters), (one.buffers, other.buffers)
    return all(
        ours.size == theirs.size == 0
        or (
            (address_of(ours), ours.size) == (address_of(theirs), theirs.size)
            and _is_constant(ours)
            and _is_constant(theirs)
        )
        for ours, theirs in pairs
    )


def _is_constant(vector: FloatVector) -> bool:
    """Whether it is of bytes, which nobody can write to, one after the other."""
    if not vector.flags.c_contiguous:
        return False
    under: object = vector
    while isinstance(under, np.ndarray | memoryview):
        under = under.base if isinstance(under, np.ndarray) else under.obj
    return isinstance(under, bytes)
