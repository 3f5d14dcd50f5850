"""Left open, the server opens sums: what an app's server did with its model, it does as ever."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import MetricRecord
from flwr.serverapp.strategy import FedAdam, FedAvg

from flower.test_attacks_on_runs import config_of
from flower.vector_app import VectorRun
from shieldfl.errors import ParameterError, PolicyError, ShieldError
from shieldfl.flower.wire import ASK

ALL = [0, 1, 2, 3]
ONE = {"min_available_nodes": 1, "min_train_nodes": 1, "min_evaluate_nodes": 1}
SERVER_CANNOT_OPEN = {
    "a method with a secret of its clients": ("dict-pfl", {}),
    "a method of models for clusters": ("sense-crypt", {"settings.encryption": "kahe"}),
    "a scheme in which nobody enrols": ("full-he", {"settings.encryption": "ckks"}),
}


def unset(**settings):
    """A run in which nothing says who opens."""
    return VectorRun(opener="", **settings)


@pytest.mark.parametrize("method", ["full-he", "top-2", "fedml-he"])
def test_left_open_the_server_opens_and_has_the_model(method, caplog):
    run = unset(method=method, rounds=2)
    seen = {}
    result = run.start(
        evaluate_fn=lambda number, arrays: seen.update({number: arrays["bias"].numpy().copy()})
    )
    assert run.strategy.session.method.opener == "aggregator"
    if method == "full-he":
        run.check({1: ALL, 2: ALL})
    assert seen[0].any() == 0
    for client in ALL:
        np.testing.assert_array_equal(run.evaluated[client]["bias"], result.arrays["bias"].numpy())
    np.testing.assert_array_equal(seen[2], result.arrays["bias"].numpy())
    assert f"shieldfl: {method}, opened by the aggregator, since shieldfl.opener is not set" in caplog.text


@pytest.mark.parametrize("case", SERVER_CANNOT_OPEN)
def test_left_open_methods_whose_sums_a_server_cannot_open_keep_their_own_rule(case):
    method, settings = SERVER_CANNOT_OPEN[case]
    run = unset(method=method, rounds=1)
    run.config |= {f"shieldfl.{name}": value for name, value in settings.items()}
    run.start()
    opener = run.strategy.session.method.opener
    assert opener == ("clients" if method == "dict-pfl" else "authority")


@pytest.mark.parametrize("case", [*SERVER_CANNOT_OPEN, "clients open"])
def test_what_needs_a_servers_model_is_refused_before_anything_is_sent(case):
    method, settings = SERVER_CANNOT_OPEN.get(case, ("full-he", {"opener": "clients"}))
    for strategy, evaluate_fn in (
        (FedAdam(**ONE), None),
        (FedAvg(**ONE), lambda number, arrays: MetricRecord({"a": 1.0})),
    ):
        run = unset(method=method, strategy=strategy)
        run.config |= {f"shieldfl.{name}": value for name, value in settings.items()}
        run.grid.before = lambda node, message: pytest.fail("a message was sent")
        if evaluate_fn is not None and method == "full-he" and "opener" not in settings:
            continue  # the authority's sums come to the server: it has the model, and none to step with
        with pytest.raises(ParameterError, match="which does not see it") as refused:
            run.start(evaluate_fn=evaluate_fn)
        if case == "clients open":
            assert str(refused.value).endswith('Set shieldfl.opener = "aggregator"')
            run.config["shieldfl.opener"] = "aggregator"
        else:
            run.config |= {"shieldfl.method": "full-he", "shieldfl.settings.encryption": ""}
        run.grid.before = None
        run.start(evaluate_fn=evaluate_fn)


@pytest.mark.parametrize("case", ["clients open", "a method with a secret of its clients", "clusters"])
def test_a_result_without_a_model_says_so_when_it_is_read(case):
    method = {"clients open": "full-he", "clusters": "sense-crypt"}.get(case, "dict-pfl")
    run = VectorRun(method=method, rounds=1)
    run.config |= {"shieldfl.settings.encryption": "kahe"} if case == "clusters" else {}
    result = run.start()
    assert set(result.train_metrics_clientapp) == (
        set() if case == "clusters" else {1}
    )  # it states an epsilon
    assert "Aggregated ClientApp-side Train Metrics" in repr(result)
    with pytest.raises(ShieldError, match=r'shieldfl\.opener = "aggregator"'):
        _ = result.arrays


def test_a_deployed_node_refuses_until_its_operator_lets_the_server_open(tmp_path):
    run = unset(rounds=1, node_config=config_of(tmp_path))
    with pytest.raises(PolicyError, match='set shieldfl-openers="aggregator" in its configuration'):
        run.start()
    assert run.trained == []
    run = unset(rounds=1, weighting="", node_config=config_of(tmp_path))
    with pytest.raises(PolicyError, match='set shieldfl-openers="aggregator" in its configuration'):
        run.start()
    assert run.trained == []
    run = unset(rounds=1, weighting="", node_config=config_of(tmp_path, openers="aggregator"))
    run.start()
    run.check({1: ALL})


def test_a_run_whose_opener_was_left_out_is_gone_on_with(tmp_path):
    run = unset(checkpoint=str(tmp_path / "run"))

    def cut(node, message):
        if message.content[ASK]["kind"] == "train" and message.metadata.group_id == "round 2":
            raise KeyboardInterrupt

    run.grid.before = cut
    with pytest.raises(KeyboardInterrupt):
        run.start()
    run.grid.before = None
    run.config["shieldfl.resume"] = True
    run.config["shieldfl.opener"] = "clients"
    with pytest.raises(PolicyError, match="differs in opener"):
        run.start()
    run.config["shieldfl.opener"] = ""
    result = run.start()
    run.check({1: ALL, 2: ALL, 3: ALL})
    np.testing.assert_array_equal(run.evaluated[0]["bias"], result.arrays["bias"].numpy())
