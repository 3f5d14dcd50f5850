"""Which clients a round is drawn from, and what a federation does that never has enough."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from methods.small_plan import small_plan
from shieldfl.errors import ConvergenceError
from shieldfl.methods.protocol.global_model import GlobalModel
from shieldfl.methods.protocol.public_setup import PublicSetup
from shieldfl.roles.message import Message
from shieldfl.simulation.federation import EmbeddedFederation

NO_MODEL = GlobalModel(np.zeros(0, dtype=np.float32), np.zeros(0, dtype=np.float32))


class _Draws:
    """Enough of a method to draw clients for."""

    name = "draws"

    needs_shared_secret = False
    clients_open = aggregator_opens = False
    aggregator_has_model = True

    def __init__(self, clients: int) -> None:
        self.plan = small_plan([1] * clients, clients=clients)
        self.charged: list[int] = []

    def authority_setup(self, initial, **others):
        return None, PublicSetup("fedavg", {}, self.plan, bytes(32), bytes(16))

    def client_steps(self, setup, index, weight, initial, **others):
        return SimpleNamespace(enrolment=Message)

    def aggregator_steps(self, setup, weights, **others):
        return self

    def newest_model(self):
        return None

    def enrolment(self):
        return Message()

    def account(self):
        return self

    def charge_draw(self, participants, drawn_from):
        self.charged.append(participants)


def test_each_client_is_drawn_independently_with_the_same_probability():
    federation = EmbeddedFederation(_Draws(10), NO_MODEL, [1] * 10, seed=3)
    drawn = [federation.draw(0.3, 1) for _ in range(4000)]
    sizes = np.array(federation.method.charged)
    # Poisson sampling: the size is binomial. Six standard deviations of the mean and the variance.
    assert abs(sizes.mean() - 3.0) < 6 * math.sqrt(2.1 / len(sizes))
    assert abs(sizes.var() - 2.1) < 6 * 2.1 * math.sqrt(2.0 / len(sizes))
    for client in range(10):
        share = sum(client in chosen for chosen in drawn) / len(sizes)
        assert abs(share - 0.3) < 6 * math.sqrt(0.21 / len(sizes))
    assert len(sizes) - len(drawn) == (sizes == 0).sum()


def test_everybody_is_drawn_at_rate_one():
    federation = EmbeddedFederation(_Draws(7), NO_MODEL, [1] * 7, seed=0)
    assert federation.draw(1.0, 7) == list(range(7))


def test_a_federation_that_would_never_start_says_so():
    federation = EmbeddedFederation(_Draws(3), NO_MODEL, [1] * 3, seed=0)
    with pytest.raises(ConvergenceError, match="sample_rate"):
        federation.draw(1e-9, 2)
