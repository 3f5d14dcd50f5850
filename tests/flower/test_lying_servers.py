"""A server that says to each client what it likes: it gets no single update, and no client another model."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord

from flower.loopback_grid import FIRST_NODE
from flower.test_messages_that_fail import ALL, number_of
from flower.vector_app import SHAPES, VectorRun, _as_arrays
from shieldfl.flower.wire import ASK


@pytest.mark.parametrize("kind", ["train", "model"])
@pytest.mark.parametrize("record", ["arrays", "more", "no arrays"])
def test_a_model_of_the_servers_own_is_not_trained_or_evaluated(kind, record):
    """Beside the signed one it would be another for each client: with one that does not move, a sum is one update."""
    run, sevens = VectorRun(), {name: np.full(shape, 7.0, np.float32) for name, shape in SHAPES.items()}

    def lie(node, message):
        if number_of(node) == 1 and message.content[ASK]["kind"] == kind:
            beside = ConfigRecord({"x": 1}) if record == "no arrays" else ArrayRecord(_as_arrays(sevens))
            message.content["more" if record == "more" else "arrays"] = beside

    run.grid.before = lie
    run.start()
    if kind == "train":
        assert all(client != 1 for client, _ in run.trained)
        run.check(dict.fromkeys((1, 2, 3), [0, 2, 3]))
    else:
        assert 1 not in run.evaluated
        run.check(dict.fromkeys((1, 2, 3), ALL))
