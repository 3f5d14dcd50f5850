"""What one client can do to a mean that is made in the clear: count for as much as the largest, and no more."""

from __future__ import annotations

import math

import numpy as np
import pytest

from methods.method_conformance import SteppedRun
from methods.variants import Variant
from shieldfl.authority.message import Message
from shieldfl.errors import RangeError
from shieldfl.methods.selective_shield.method import SelectiveShieldSettings

METHODS = ("fedavg", "dp-fedavg", "dp-sgd", "alt-fl-si-dp")
WEIGHTS = (1, 2, 3, 4)
every_method = pytest.mark.parametrize("method", METHODS)


def run_of(method: str, server_learning_rate: float = 1.0) -> SteppedRun:
    variant = Variant(method, SelectiveShieldSettings(), method).with_others(
        interleaving_ratio="0", delta=1e-5, noise_multiplier=0.0
    )
    return SteppedRun(variant, weights=WEIGHTS, server_learning_rate=server_learning_rate)


def altered(message: Message, name: str, part: np.ndarray) -> Message:
    return Message({**message, name: part.tobytes()})


@every_method
def test_the_clients_own_weight_is_taken_and_no_other(method):
    own = 1.0

    def claim(phase, aggregator, messages):
        # Among them those that other clients have.
        for other in (4.0, 1.5, 1e308, 5e-324, 0.0, -1.0, math.nan, math.inf):
            with pytest.raises(RangeError, match="weight"):
                aggregator.receive(phase, 0, altered(messages[0], "weight", np.array([other])))
        messages[0] = altered(messages[0], "weight", np.array([own]))

    run, honest = run_of(method), run_of(method)
    run.run_round(intrude=claim)
    honest.run_round()
    np.testing.assert_array_equal(run.parameters, honest.parameters)


@every_method
def test_a_model_that_is_not_finite_is_refused(method):
    """All clients send the largest float32s; the server's learning rate takes the mean beyond them."""

    def push(phase, aggregator, messages):
        for client, message in messages.items():
            size = len(message["update"]) // 4
            messages[client] = altered(message, "update", np.full(size, 3.4e38, np.float32))

    run = run_of(method, server_learning_rate=2.0)
    before = run.model
    with pytest.raises(RangeError, match="not finite"):
        run.run_round(intrude=push)
    assert run.model == before
