"""Runs whose rounds are of some of the clients at most: sums have room for those."""

from __future__ import annotations

import pytest

from shieldfl.errors import ConvergenceError, ParameterError
from shieldfl.methods.settings import MethodSettings
from shieldfl.simulation.config import RunConfig
from shieldfl.simulation.driver import run_methods
from shieldfl.simulation.federation import EmbeddedFederation
from simulation.fewer_samples import fewer_samples

SAMPLED = {"clients": 12, "rounds": 6, "sample_rate": 0.35, "local_epochs": 1, "seed": 3, "threads": 1}


@pytest.fixture(scope="module", autouse=True)
def _small_and_quick():
    with fewer_samples(coarse=True):
        yield


@pytest.mark.parametrize("most", [2, 13])
def test_a_bound_that_no_round_could_keep_is_refused_by_its_name(most):
    with pytest.raises(ParameterError, match=f"max_clients is {most}: it must be from min_clients"):
        RunConfig(clients=12, max_clients=most)


def test_a_draw_of_too_many_clients_is_repeated_and_charged(monkeypatch):
    counts = []
    original = EmbeddedFederation.draw

    def counting(self, sample_rate, min_clients):
        charge = self.account.charge_draw
        self.account.charge_draw = lambda count, *of: (counts.append(count), charge(count, *of))
        try:
            return original(self, sample_rate, min_clients)
        finally:
            self.account.charge_draw = charge

    monkeypatch.setattr(EmbeddedFederation, "draw", counting)
    bounded = run_methods(RunConfig(**SAMPLED, max_clients=4), ["ddp-fedavg"]).methods[0]
    assert [record.participants for record in bounded.rounds] == [one for one in counts if 3 <= one <= 4]
    assert max(counts) > 4
    free = run_methods(RunConfig(**SAMPLED), ["ddp-fedavg"]).methods[0]
    assert max(record.participants for record in free.rounds) > 4
    assert bounded.last.bytes_up < free.last.bytes_up


def test_rounds_that_are_always_too_large_are_given_up():
    config = RunConfig(**SAMPLED | {"sample_rate": 1.0}, max_clients=4)
    with pytest.raises(ConvergenceError, match="gave no 3 to 4 clients"):
        run_methods(config, ["fedavg"], MethodSettings())
