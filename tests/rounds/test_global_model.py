"""The model is read once a round, and joined without a copy where there are no buffers."""

from __future__ import annotations

import numpy as np
import pytest

from methods.method_conformance import SteppedRun
from methods.variants import variants
from shieldfl.rounds.global_model import GlobalModel, joined


@pytest.mark.parametrize("name", ["fedavg", "dp-fedavg", "full-he", "selective-shield"])
def test_a_client_reads_the_model_once_a_round(name, monkeypatch):
    run = SteppedRun(next(variant for variant in variants() if variant.method == name))
    read, reading = [], GlobalModel.from_message
    monkeypatch.setattr(
        GlobalModel, "from_message", lambda *arguments: read.append(arguments) or reading(*arguments)
    )
    first = run.begin_round(1)
    run.clients[0].begin_round(1, 4, run.method.message_for(0, first))
    assert len(read) == 1


def test_vectors_are_joined_and_nothing_is_copied_without_buffers():
    parameters, buffers = np.arange(3, dtype=np.float32), np.ones(2, dtype=np.float32)
    assert joined(parameters, buffers).tolist() == [0.0, 1.0, 2.0, 1.0, 1.0]
    assert joined(parameters, buffers[:0]) is parameters
