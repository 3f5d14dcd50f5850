"""The app's own strategy: which works with a mean alone, and what it makes of it."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import MetricRecord
from flwr.serverapp.strategy import (
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedMedian,
    FedProx,
    FedTrimmedAvg,
    FedYogi,
    Krum,
    QFedAvg,
)

from flower.vector_app import VectorRun
from shieldfl.errors import ParameterError
from shieldfl.flower.strategy import ShieldStrategy

ALL = [0, 1, 2, 3]
NODES = {"min_available_nodes": 1, "min_train_nodes": 1, "min_evaluate_nodes": 1}
STEPPING = {
    "FedAdam": lambda: FedAdam(**NODES, eta=0.05, tau=0.1),
    "FedYogi": lambda: FedYogi(**NODES, eta=0.05, tau=0.1),
    "FedAdagrad": lambda: FedAdagrad(**NODES, eta=0.05, tau=0.1),
    "FedAvgM": lambda: FedAvgM(**NODES, server_learning_rate=0.5, server_momentum=0.9),
}


@pytest.mark.every_run("full-he-FedAdam", "fedavg-FedAvgM")
@pytest.mark.parametrize("label", STEPPING)
@pytest.mark.parametrize("method", ["full-he", "fedavg"])
def test_a_servers_optimiser_makes_of_the_mean_what_it_makes_without_protection(label, method):
    opener = {"opener": "aggregator"} if method == "full-he" else {}
    run = VectorRun(strategy=STEPPING[label](), method=method, **opener)
    protected = run.start(
        evaluate_fn=lambda number, arrays: MetricRecord({"bias": float(arrays["bias"].numpy()[0])})
    )
    plain = VectorRun(strategy=STEPPING[label](), mods=[])
    expected = plain.own.start(plain.grid, plain.initial(), num_rounds=3, timeout=0.3)
    for name, array in expected.arrays.items():
        np.testing.assert_allclose(protected.arrays[name].numpy(), array.numpy(), atol=2e-5)
    assert set(protected.evaluate_metrics_serverapp) == {0, 1, 2, 3}
    assert protected.train_metrics_clientapp == expected.train_metrics_clientapp
    for client in ALL:
        np.testing.assert_array_equal(
            run.evaluated[client]["bias"], protected.arrays["bias"].numpy().astype(np.float32)
        )


@pytest.mark.parametrize("strategy", [FedMedian(), FedTrimmedAvg(), Krum(), QFedAvg(0.1)])
def test_a_strategy_that_compares_single_updates_is_refused(strategy):
    with pytest.raises(ParameterError, match="compares single clients' updates"):
        ShieldStrategy(strategy, VectorRun().config)


def test_a_method_that_no_server_steps_with_is_refused_before_anybody_trains():
    """It was refused after the first round, by settings that the refusal before had advised."""
    run = VectorRun(strategy=FedAdam(**NODES), method="selective-shield", opener="aggregator")
    with pytest.raises(ParameterError, match="take FedAvg, or a method such as full-he"):
        run.start()
    assert not run.trained


class _Own(FedAvg):
    def aggregate_train(self, server_round, replies):
        self.seen = [one.content["arrays"]["bias"].numpy() for one in replies]
        return super().aggregate_train(server_round, replies)


def test_a_strategy_of_an_apps_own_says_that_it_takes_a_mean():
    run = VectorRun(strategy=_Own(**NODES), opener="aggregator")
    with pytest.raises(ParameterError, match="takes_mean=True"):
        run.start()
    strategy = ShieldStrategy(run.own, run.config, takes_mean=True)
    strategy.start(run.grid, run.initial(), num_rounds=1, timeout=0.3)
    assert len(run.own.seen) == len(ALL)
    assert all(np.array_equal(one, run.own.seen[0]) for one in run.own.seen)


def test_fedprox_and_a_sample_of_the_nodes_work_as_ever():
    run = VectorRun(
        strategy=FedProx(fraction_train=0.75, fraction_evaluate=0.5, proximal_mu=0.5, **NODES), rounds=4
    )
    result = run.start()
    by_round = {number: sorted(c for c, n in run.trained if n == number) for number in (1, 2, 3, 4)}
    assert all(len(clients) == 3 for clients in by_round.values())
    assert set(result.evaluate_metrics_clientapp) == {1, 2, 3, 4}
    expected = run.expected(by_round)
    last = [
        arrays
        for arrays in run.evaluated.values()
        if np.allclose(arrays["bias"], expected["bias"], atol=1e-5)
    ]
    assert len(last) >= 2


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"clients": 0}, "clients must be"),
        ({"method": "no-such"}, "no-such"),
        ({"opener": "nobody"}, "opener must be"),
        ({"unknown": 1}, "there is no setting 'shieldfl.unknown'"),
        ({"settings.ratio": 2}, "full-he has no setting 'ratio'"),
        ({"authority": "https://127.0.0.1:1"}, "authority-key"),
        ({"resume": True}, "nothing to go on from"),
    ],
)
def test_settings_that_are_none_are_refused_with_what_they_may_be(settings, words):
    run = VectorRun()
    run.config |= {f"shieldfl.{name}": value for name, value in settings.items()}
    with pytest.raises(ParameterError, match=words):
        run.start()


def test_clients_is_the_one_setting_that_has_to_be_given():
    with pytest.raises(ParameterError, match=r"lacks shieldfl\.clients"):
        ShieldStrategy(None, {})
    strategy = ShieldStrategy(None, {"shieldfl.clients": 4, "shieldfl.method": "", "other": 3})
    assert (strategy.settings.clients, strategy.settings.method) == (4, "full-he")
