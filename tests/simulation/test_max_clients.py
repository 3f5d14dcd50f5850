"""Runs whose rounds are of some of the clients at most: sums have room for those."""

from __future__ import annotations

import pytest

from shieldfl.errors import ConvergenceError, ParameterError
from shieldfl.simulation import federation
from shieldfl.simulation.config import RunConfig
from simulation.small_runs import charged_draws, fewer_samples, run_methods

SAMPLED = {"clients": 12, "rounds": 6, "sample_rate": 0.35, "local_epochs": 1, "seed": 3, "threads": 1}


@pytest.fixture(scope="module", autouse=True)
def _small_and_quick():
    with fewer_samples(coarse=True):
        yield


@pytest.mark.parametrize("most", [2, 13])
def test_a_bound_that_no_round_could_keep_is_refused_by_its_name(most):
    with pytest.raises(ParameterError, match=f"max_clients is {most}: it must be from min_clients"):
        RunConfig(clients=12, max_clients=most)


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


def test_a_bound_below_what_is_drawn_on_average_is_refused_before_anything_is_made():
    """By default a round draws all."""
    for changes in ({"sample_rate": 1.0}, {"sample_rate": 0.5}):
        with pytest.raises(ParameterError, match=r"max_clients is 4, and a round draws .* on average"):
            RunConfig(**SAMPLED | changes, max_clients=4)
