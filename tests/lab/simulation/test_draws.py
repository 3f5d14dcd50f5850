"""How many clients a round has: draws that are made again, what is charged for them, and the most that may come."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lab.simulation.small_runs import charged_draws, run_methods
from lab.simulation.test_federation import federation_of
from methods.variants import labelled
from shieldfl.errors import ConvergenceError, ParameterError
from shieldfl.lab.simulation import federation
from shieldfl.lab.simulation.config import RunConfig

pytestmark = pytest.mark.usefixtures("small_and_quick")


def test_each_client_is_drawn_independently_with_the_same_probability(monkeypatch):
    counts = charged_draws(monkeypatch)
    federation = federation_of(labelled("fedavg"), clients=10, seed=3)
    drawn = [federation.draw(0.3, 1) for _ in range(4000)]
    sizes = np.array(counts)
    # Poisson sampling: the size is binomial. Six standard deviations of the mean and the variance.
    assert abs(sizes.mean() - 3.0) < 6 * math.sqrt(2.1 / len(sizes))
    assert abs(sizes.var() - 2.1) < 6 * 2.1 * math.sqrt(2.0 / len(sizes))
    for client in range(10):
        share = sum(client in chosen for chosen in drawn) / len(sizes)
        assert abs(share - 0.3) < 6 * math.sqrt(0.21 / len(sizes))
    assert len(sizes) - len(drawn) == (sizes == 0).sum()
    assert federation.draw(1.0, 10) == list(range(10))


def test_a_federation_that_would_never_start_says_so():
    federation = federation_of(labelled("fedavg"))
    with pytest.raises(ConvergenceError, match="sample_rate"):
        federation.draw(1e-9, 2)


SAMPLED = {"clients": 12, "rounds": 6, "sample_rate": 0.35, "local_epochs": 1, "seed": 3, "threads": 1}


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
