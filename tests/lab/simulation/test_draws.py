"""How many clients a round has: draws that are made again, what is charged for them, and the most that may come."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from lab.simulation.small_runs import charged_draws, fewer_samples, run_methods
from methods.small_plan import small_plan
from shieldfl.authority.message import Message
from shieldfl.errors import ConvergenceError, ParameterError
from shieldfl.lab.simulation import federation
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.lab.simulation.federation import EmbeddedFederation
from shieldfl.rounds.global_model import GlobalModel
from shieldfl.rounds.public_setup import PublicSetup

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
        return SimpleNamespace(enrolment=Message, open_together=lambda together: None)

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
    assert federation.draw(1.0, 10) == list(range(10))


def test_a_federation_that_would_never_start_says_so():
    federation = EmbeddedFederation(_Draws(3), NO_MODEL, [1] * 3, seed=0)
    with pytest.raises(ConvergenceError, match="sample_rate"):
        federation.draw(1e-9, 2)


SAMPLED = {"clients": 12, "rounds": 6, "sample_rate": 0.35, "local_epochs": 1, "seed": 3, "threads": 1}


@pytest.fixture(scope="module", autouse=True)
def _small_and_quick():
    with fewer_samples(coarse=True):
        yield


def test_a_draw_of_too_many_clients_is_repeated_and_costs_nothing(monkeypatch):
    with monkeypatch.context() as patch:
        counts = charged_draws(patch)
        bounded = run_methods(RunConfig(**SAMPLED, max_clients=5), ["ddp-fedavg"]).methods[0]
    assert [record.participants for record in bounded.rounds] == [one for one in counts if one >= 3]
    assert max(counts) == 5
    free = run_methods(RunConfig(**SAMPLED), ["ddp-fedavg"]).methods[0]
    assert max(record.participants for record in free.rounds) > 5
    assert bounded.last.bytes_up < free.last.bytes_up


def test_draws_that_stay_too_large_end_the_run_with_what_to_change(monkeypatch):
    monkeypatch.setattr(federation, "_MOST_DRAWS", 1)  # the second round's first draw is of more
    with pytest.raises(ConvergenceError, match=r"gave no 3 clients, and no more than 5,.*raise max_clients"):
        run_methods(RunConfig(**SAMPLED, max_clients=5), ["fedavg"])


def test_a_bound_that_rounds_could_hardly_keep_is_refused_before_anything_is_made():
    """By default a round draws all."""
    for most in (2, 13):
        with pytest.raises(ParameterError, match=f"max_clients is {most}: it must be from min_clients"):
            RunConfig(clients=12, max_clients=most)
    for changes in ({"sample_rate": 1.0}, {"sample_rate": 0.5}):
        with pytest.raises(ParameterError, match=r"max_clients is 4, and a round draws .* on average"):
            RunConfig(**SAMPLED | changes, max_clients=4)
