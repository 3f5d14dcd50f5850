"""Vectors in memory that processes share: what is written where, and when it is not written again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shieldfl.simulation.training_processes import SharedVectors
from shieldfl.training.local_update import StartingPoint


def test_a_model_that_all_start_from_is_written_once_and_others_are_not_mixed_up():
    vectors = SharedVectors(3, 2, 1)

    def start(values, buffer, constant=True):
        made = np.array(values, np.float32), np.array([buffer], np.float32)
        return StartingPoint(*(np.frombuffer(one.tobytes(), np.float32) if constant else one for one in made))

    one = start([1, 2], 3)
    places = [vectors.place(one), vectors.place(replace(one, scores="batch"))]
    assert places[0].start == places[1].start
    assert places[0].result != places[1].result
    other = vectors.place(StartingPoint(one.parameters, start([0, 0], 4).buffers))
    assert not vectors.has_room
    assert [one.tolist() for one in vectors.start_of(places[1])] == [[1, 2], [3]]
    assert [one.tolist() for one in vectors.start_of(other)] == [[1, 2], [4]]
    for place in (*places, other):
        vectors.give_back(place)
    strided = np.frombuffer(np.arange(4, dtype=np.float32).tobytes(), np.float32)
    for values in (strided[:2], strided[::2]):
        place = vectors.place(StartingPoint(values, one.buffers))
        assert vectors.start_of(place)[0].tolist() == values.tolist()
        vectors.give_back(place)
    with pytest.raises(ValueError, match="broadcast"):
        vectors.place(StartingPoint(one.parameters, np.zeros(2, np.float32)))
    vectors = SharedVectors(3, 2, 1)
    changing = start([5, 6], 7, constant=False)
    first = vectors.place(changing)
    changing.parameters[:] = 8
    assert vectors.start_of(vectors.place(changing))[0].tolist() == [8, 8]
    assert vectors.start_of(first)[0].tolist() == [5, 6]
