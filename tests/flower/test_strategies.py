"""The app's own strategy: which works with a mean alone, what it makes of it, and what of it a server sees."""

from __future__ import annotations

import types
from collections import deque

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedProx,
    FedYogi,
    Krum,
    Result,
)

from flower.vector_app import ALL, ONE, VectorRun, as_arrays
from shieldfl.errors import ParameterError, PolicyError, ShieldError
from shieldfl.flower.strategy import ShieldStrategy

STEPPING = {
    "FedAdam": lambda: FedAdam(**ONE, eta=0.05, tau=0.1),
    "FedYogi": lambda: FedYogi(**ONE, eta=0.05, tau=0.1),
    "FedAdagrad": lambda: FedAdagrad(**ONE, eta=0.05, tau=0.1),
    "FedAvgM": lambda: FedAvgM(**ONE, server_learning_rate=0.5, server_momentum=0.9),
    "FedProx": lambda: FedProx(**ONE, proximal_mu=0.5),
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


def test_a_method_that_no_server_steps_with_is_refused_before_anybody_trains():
    run = VectorRun(strategy=FedAdam(**ONE), method="selective-shield", opener="aggregator")
    with pytest.raises(ParameterError, match="take FedAvg, or a method such as full-he"):
        run.start()
    assert not run.trained


class _Own(FedAvg):
    def aggregate_train(self, server_round, replies):
        self.seen = [one.content["arrays"]["bias"].numpy() for one in replies]
        return super().aggregate_train(server_round, replies)


def test_a_strategy_of_an_apps_own_says_that_it_takes_a_mean():
    run = VectorRun(strategy=_Own(**ONE), opener="aggregator")
    with pytest.raises(ParameterError, match="takes_mean=True"):
        run.start()
    strategy = ShieldStrategy(run.own, run.config, takes_mean=True)
    strategy.start(run.grid, run.initial(), num_rounds=1, timeout=0.3)
    assert len(run.own.seen) == len(ALL)
    assert all(np.array_equal(one, run.own.seen[0]) for one in run.own.seen)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"clients": 0}, r"^shieldfl\.clients must be"),
        ({"method": "no-such"}, "no-such"),
        ({"opener": "nobody"}, r"^shieldfl\.opener must be"),
        ({"unknown": 1}, r"has the unknown key 'shieldfl\.unknown': use shieldfl\.clients"),
        ({"settings.ratio": 2}, "full-he has no setting 'ratio'"),
        ({"authority": "https://127.0.0.1:1"}, "authority-key"),
        ({"resume": True}, "^there is no checkpoint to resume from"),
    ],
)
def test_settings_that_are_none_are_refused_with_what_they_may_be(settings, words):
    run = VectorRun()
    run.config |= {f"shieldfl.{name}": value for name, value in settings.items()}
    with pytest.raises(ParameterError, match=words):
        run.start()


def test_clients_is_the_one_setting_that_has_to_be_given():
    with pytest.raises(ParameterError, match=r"the app's configuration lacks shieldfl\.clients"):
        ShieldStrategy(None, {})
    strategy = ShieldStrategy(None, {"shieldfl.clients": 4, "shieldfl.method": "", "other": 3})
    assert (strategy.settings.clients, strategy.settings.method) == (4, "full-he")


WRAPPERS = (
    DifferentialPrivacyServerSideFixedClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyClientSideAdaptiveClipping,
)


def wrapped(kind, strategy):
    """Return a wrapper for differential privacy around a strategy."""
    clipping = {"clipping_norm": 1.0} if issubclass(kind, WRAPPERS[:2]) else {}
    return kind(strategy, noise_multiplier=1.0, num_sampled_clients=100, **clipping)


class _Wrapper(FedAvg):
    """Hands everything on to what it wraps, which it holds somewhere."""

    def __init__(self, strategy, parts):
        super().__init__(**ONE)
        self.inner, self.parts = strategy.aggregate_train, parts

    def aggregate_train(self, server_round, replies):
        return self.inner(server_round, replies)


@pytest.mark.parametrize(
    ("kind", "hold", "words"),
    [
        (WRAPPERS[0], lambda inner: {"strategies": [inner]}, "'ddp-fedavg'"),
        (
            WRAPPERS[0],
            lambda inner: types.SimpleNamespace(inner=frozenset([inner])),
            "ServerSideFixedClipping",
        ),
        (Krum, lambda inner: deque([_Wrapper(inner, [])]), "Krum compares single clients' updates"),
        (Krum, lambda inner: [inner.configure_train], "Krum compares single clients' updates"),
    ],
)
def test_what_a_strategy_holds_is_refused_as_the_strategy_is(kind, hold, words):
    inner = Krum(**ONE) if kind is Krum else wrapped(kind, FedAvg(**ONE))
    with pytest.raises(ParameterError, match=words):
        ShieldStrategy(_Wrapper(FedAvg(**ONE), hold(inner)), VectorRun().config, takes_mean=True)


def test_what_is_no_strategy_of_messages_is_refused():
    from flwr.server.strategy import FedAvg as EarlierFedAvg

    with pytest.raises(ParameterError, match=r"FedAvg of flwr\.server\.strategy.*flwr\.serverapp\.strategy"):
        ShieldStrategy(EarlierFedAvg(), VectorRun().config)


def test_protection_stands_around_every_other_wrapper():
    run = VectorRun()
    shield = ShieldStrategy(run.own, run.config)
    with pytest.raises(ParameterError, match="ShieldStrategy is in a ShieldStrategy already"):
        ShieldStrategy(shield, run.config, takes_mean=True)
    around = wrapped(WRAPPERS[0], shield)
    with pytest.raises(PolicyError, match=r"start of ShieldStrategy.*no other strategy stands around it"):
        around.start(run.grid, run.initial(), num_rounds=1, timeout=0.3)


class _Tracking(FedAvg):
    """Has a ``start`` of its own, as an app has that writes down each round and keeps the best model."""

    def __init__(self, **named):
        super().__init__(**ONE, **named)
        self.rows, self.best = [], None

    def configure_train(self, server_round, arrays, config, grid):
        if server_round == 2:
            config["lr"] = config["lr"] / 2
        return super().configure_train(server_round, arrays, config, grid)

    def start(
        self, grid, initial_arrays, num_rounds=3, timeout=3600, train_config=None, evaluate_config=None,
        evaluate_fn=None, project="none",
    ):  # fmt: skip
        self.rows.append(("begin", project))
        train_config, result, arrays = train_config or ConfigRecord(), Result(), initial_arrays
        for number in range(1, num_rounds + 1):
            replies = grid.send_and_receive(
                messages=self.configure_train(number, arrays, train_config, grid), timeout=timeout
            )
            mean, metrics = self.aggregate_train(number, replies)
            if mean is not None:
                arrays = self.changed(mean)
                self.best = result.arrays = arrays
            result.train_metrics_clientapp[number] = metrics
            replies = grid.send_and_receive(
                messages=self.configure_evaluate(number, arrays, ConfigRecord(), grid), timeout=timeout
            )
            self.rows.append((number, dict(self.aggregate_evaluate(number, replies))))
            if evaluate_fn is not None:
                result.evaluate_metrics_serverapp[number] = evaluate_fn(number, arrays)
        return result

    def changed(self, arrays):
        return arrays


class _Beginning(_Tracking):
    """Begins with another model."""

    def configure_train(self, server_round, arrays, config, grid):
        return FedAvg.configure_train(self, server_round, arrays, config, grid)

    def start(self, grid, initial_arrays, **named):
        other = ArrayRecord({name: Array(1 + one.numpy()) for name, one in initial_arrays.items()})
        return super().start(grid, other, **named)


class _Decaying(_Tracking):
    """Changes the model between rounds."""

    def changed(self, arrays):
        return ArrayRecord({name: Array(0.5 * one.numpy()) for name, one in arrays.items()})


@pytest.mark.parametrize("kind", [_Tracking, _Decaying])
def test_a_start_of_a_strategys_own_does_what_it_does_without_protection(kind):
    found = []
    for mods in (None, []):
        own = kind()
        run = VectorRun(strategy=own, mods=mods, opener="aggregator")
        strategy = own if mods == [] else ShieldStrategy(own, run.config)
        result = strategy.start(
            run.grid,
            run.initial(),
            3,
            timeout=0.3,
            train_config=ConfigRecord({"lr": 0.1}),
            evaluate_fn=lambda number, arrays: MetricRecord({"bias": float(arrays["bias"].numpy()[0])}),
            project="digits",
        )
        found.append((own, result))
    (shielded, protected), (own, plain) = found
    assert [row[0] for row in shielded.rows] == ["begin", 1, 2, 3]
    assert shielded.rows[0] == ("begin", "digits")
    for (_, one), (_, other) in zip(shielded.rows[1:], own.rows[1:], strict=True):
        assert one == pytest.approx(other, abs=1e-5)
    for name, array in plain.arrays.items():
        np.testing.assert_allclose(protected.arrays[name].numpy(), array.numpy(), atol=1e-5)
    assert protected.train_metrics_clientapp == plain.train_metrics_clientapp
    assert set(protected.evaluate_metrics_serverapp) == {1, 2, 3}
    # What stood in for its own while it ran is gone.
    assert not {"configure_train", "aggregate_train", "summary"} & set(vars(shielded))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"opener": "clients"}, r'another model.*the server sees none.*opener = "aggregator"'),
        ({"opener": "aggregator", "checkpoint": "run"}, r"changes the model.*leave shieldfl\.checkpoint out"),
    ],
)
def test_a_start_that_changes_the_model_is_refused_where_it_cannot_be(settings, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = VectorRun(strategy=_Beginning(), **settings)
    with pytest.raises(ParameterError, match=words):
        run.start()


def test_arguments_that_its_start_does_not_take_are_named_before_set_up():
    run = VectorRun(strategy=_Tracking())
    asked = []
    run.grid.before = lambda node, message: asked.append(node)
    with pytest.raises(ParameterError, match=r"_Tracking\.start .*'colour'"):
        ShieldStrategy(run.own, run.config).start(run.grid, run.initial(), colour="red")
    assert not asked


def _further(message, arrays):
    message.content["control"] = ArrayRecord(as_arrays({"c": np.zeros(1, np.float32)}))


def _other(message, arrays):
    message.content["arrays"] = ArrayRecord({name: Array(1 + one.numpy()) for name, one in arrays.items()})


def _action(message, arrays):
    message.metadata.message_type = f"{message.metadata.message_type}.warm"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_further, "'control' beside the model"),
        (_other, "other arrays than the model"),
        (_action, r"'train\.warm'"),
    ],
)
def test_what_a_strategys_messages_bring_is_not_dropped_without_a_word(change, words):
    class Changing(FedAvg):
        def configure_train(self, server_round, arrays, config, grid):
            messages = []
            for one in super().configure_train(server_round, arrays, config, grid):
                message = Message(RecordDict(dict(one.content)), one.metadata.dst_node_id, "train")
                change(message, arrays)
                messages.append(message)
            return messages

    with pytest.raises(ParameterError, match=words):
        VectorRun(strategy=Changing(**ONE)).start()


def test_a_record_of_arrays_is_called_as_the_strategy_calls_it():
    own = FedAvg(**ONE, arrayrecord_key="model")
    run = VectorRun(strategy=own, opener="aggregator", arrays_key="model", rounds=1)
    result = run.start()
    expected = run.expected({1: [0, 1, 2, 3]})
    np.testing.assert_allclose(result.arrays["bias"].numpy(), expected["bias"], atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "fraction", "words"),
    [
        ({"min_clients": 3}, 0.5, r"2 nodes are chosen for a round.*min_clients is 3.*min_train_nodes=3"),
        ({"max_clients": 3}, 1.0, r"4 nodes are chosen for a round.*max_clients is 3.*shieldfl\.max-clients"),
    ],
)
def test_a_sample_of_another_size_than_rounds_have_ends_the_run_before_anybody_trains(
    settings, fraction, words
):
    """It ended after the last of all rounds, each of which was given up."""
    run = VectorRun(strategy=FedProx(**ONE, fraction_train=fraction, proximal_mu=0.1), rounds=25, **settings)
    kinds = []
    run.grid.before = lambda node, message: kinds.append(message.metadata.group_id)
    with pytest.raises(PolicyError, match=words):
        run.start()
    assert not run.trained
    assert set(kinds) == {"set-up"}


def test_a_start_that_hands_on_its_arguments_has_the_rounds_that_it_hands_on():
    class HandsOn(FedAvg):
        def start(self, *arguments, **named):
            return super().start(*arguments, **named)

    for given, named in (((2, 0.3), {}), ((), {"num_rounds": 2, "timeout": 0.3})):
        run = VectorRun(strategy=HandsOn(**ONE))
        ShieldStrategy(run.own, run.config).start(run.grid, run.initial(), *given, **named)
        run.check({1: ALL, 2: ALL})


def test_a_start_of_its_own_number_of_rounds_is_asked_for_it():
    class Fixed(FedAvg):
        def start(self, grid, initial_arrays):
            return super().start(grid, initial_arrays, 5)

    run = VectorRun(strategy=Fixed(**ONE))
    with pytest.raises(ParameterError, match=r"Fixed\.start has to take num_rounds"):
        ShieldStrategy(run.own, run.config).start(run.grid, run.initial())


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
    run = unset(method=method, rounds=1, **settings)
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
