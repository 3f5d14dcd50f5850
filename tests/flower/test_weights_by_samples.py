"""Clients count by their samples, as in plain Flower: what they say, or what a training before the keys is of."""

from __future__ import annotations

import random

import numpy as np
import pytest
from flwr.app import MetricRecord
from flwr.serverapp.strategy import FedAvg

from flower.vector_app import ALL, ONE, VectorRun, moves, number_of
from shieldfl.errors import ParameterError, PolicyError
from shieldfl.flower.mod import ShieldMod, shield_mod
from shieldfl.flower.records import ASK

SIZES = {
    "equal": [50, 50, 50, 50],
    "1:100": [100, 1, 1, 50],
    "as counted": [10, 400, 900, 100],
    "none": [0, 30, 20, 10],
}
FORMS = {"said": None, "counted": [shield_mod]}


def sized(sizes, *, form="counted", **settings):
    """A run of the defaults, whose clients have these samples."""

    def samples(context):
        return sizes[context.node_config["partition-id"]]

    mods = FORMS[form] if isinstance(form, str) else form
    return VectorRun(**{"opener": "", "weighting": "", **settings}, samples=samples, mods=mods)


def plain(sizes, **settings):
    """Run the same app without protection; return the run and its result."""
    run = sized(sizes, form=[], **settings)
    return run, run.own.start(run.grid, run.initial(), num_rounds=run.rounds, timeout=0.3)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sizes", SIZES)
def test_the_mean_is_that_of_plain_flower_and_nothing_is_trained_twice(sizes, form, caplog):
    other, expected = plain(SIZES[sizes])
    run = sized(SIZES[sizes], form=form)
    result = run.start()
    for name, array in expected.arrays.items():
        np.testing.assert_allclose(result.arrays[name].numpy(), array.numpy(), atol=3e-6)
    assert result.train_metrics_clientapp.keys() == expected.train_metrics_clientapp.keys()
    for number, metrics in expected.train_metrics_clientapp.items():
        assert dict(result.train_metrics_clientapp[number]) == pytest.approx(dict(metrics))
    idle = [one for one in other.trained if SIZES[sizes][one[0]] == 0]
    once = [(0, 1)] if idle and form == "counted" else []
    assert sorted(run.trained) == sorted([*(one for one in other.trained if one not in idle), *once])
    counted = [one for one in SIZES[sizes] if one]
    assert f"clients count by their samples, {min(counted)} to {max(counted)}" in caplog.text
    assert run.strategy.session.method.purposes["update"].value_bits == (24 if sizes == "equal" else 25)
    assert ("which count for nothing, are in no round: 0" in caplog.text) == bool(idle)


@pytest.mark.parametrize("form", FORMS)
def test_a_part_of_the_clients_in_a_round_counts_as_in_plain_flower(form):
    settings = {"clients": 6, "rounds": 4}
    results = []
    for make in (lambda own: plain([3, 1, 4, 1, 5, 9], strategy=own, **settings)[1], None):
        random.seed(2)
        own = FedAvg(**ONE, fraction_train=0.5)
        run = sized([3, 1, 4, 1, 5, 9], form=form, strategy=own, **settings)
        results.append(make(own) if make else run.start())
    for name, array in results[0].arrays.items():
        np.testing.assert_allclose(results[1].arrays[name].numpy(), array.numpy(), atol=3e-6)
    repeated = sorted(run.trained)
    assert len(set(repeated)) == len(repeated)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("who", [ALL, [1]])
def test_a_reply_of_another_number_is_in_no_sum(form, who):
    sizes = [10, 20, 30, 40]
    run = sized(sizes, form=form, rounds=2)
    reported = []

    def before(node, message):
        if message.metadata.group_id == "round 2" and number_of(node) in who:
            sizes[number_of(node)] += 1

    run.grid.before = before
    run.grid.after = lambda node, reply: reported.append(reply.error.reason) if reply.has_error() else None
    run.start()
    assert len(reported) == len(who)
    assert all(
        "has trained on 21: the number must stay the same in a run" in one or len(who) > 1 for one in reported
    )
    left = [client for client in ALL if client not in who]
    expected = np.average([moves(client, 1, (7,)) for client in ALL], axis=0, weights=[10, 20, 30, 40])
    if left:
        expected += np.average([moves(client, 2, (7,)) for client in left], axis=0, weights=[10, 30, 40])
    np.testing.assert_allclose(run.evaluated[0]["bias"], expected, atol=3e-6)


@pytest.mark.parametrize("form", FORMS)
def test_clients_of_no_samples_at_all_have_nothing_to_train_on(form):
    with pytest.raises(ParameterError, match="no client has any samples"):
        sized([0, 0, 0, 0], form=form).start()


@pytest.mark.parametrize(
    ("method", "settings", "why"),
    [
        ("selective-shield", {}, "selective-shield knows no weights"),
        ("ddp-fedavg", {}, "ddp-fedavg knows no weights"),
        ("full-he", {"weighting": "uniform"}, "shieldfl.weighting is uniform"),
    ],
)
def test_where_all_count_alike_nothing_is_counted_and_the_log_says_so(method, settings, why, caplog):
    run = sized([10, 400, 900, 100], method=method, rounds=1, **settings)
    asked = set()
    run.grid.before = lambda node, message: asked.add(message.content[ASK]["kind"])
    run.start()
    assert "count" not in asked
    assert f"all clients count alike, since {why}" in caplog.text


def test_a_delta_of_the_number_of_samples_follows_from_the_count():
    run = sized([10, 400, 900, 100], method="alt-fl-pi", rounds=1)
    run.config["shieldfl.settings.noise_multiplier"] = 0.0
    with pytest.raises(
        PolicyError, match="not one round ended"
    ):  # this app does not train as the method asks
        run.start()
    assert run.strategy.session.method.delta == 1 / 1410


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        ({}, "does not say how many samples it has trained on"),
        ({"num-examples": 1.5}, "metric 'num-examples' is no whole number"),
        ({"num-examples": -1}, "metric 'num-examples' is no whole number"),
        ({"num-examples": float("nan")}, "metric 'num-examples' is no whole number"),
        ({"num-examples": 2**32}, "metric 'num-examples' is no whole number"),
        (ValueError("patient 7"), "the app's training failed, by which its samples are counted"),
    ],
)
def test_what_is_no_count_ends_the_run_before_any_key_is_made(metrics, words):
    def instead(message, context, call_next):
        if isinstance(metrics, Exception):
            raise metrics
        reply = call_next(message, context)
        reply.content["metrics"] = MetricRecord(metrics)
        return reply

    run = sized([1, 1, 1, 1], form=[ShieldMod(), instead])
    asked = set()
    run.grid.before = lambda node, message: asked.add(message.content[ASK]["kind"])
    with pytest.raises(PolicyError, match=words) as refused:
        run.start()
    assert "patient" not in str(refused.value)
    assert asked == {"hello", "count"}


def test_no_other_metric_is_read_than_the_one_that_counts_samples():
    run = sized([1, 1, 1, 1], strategy=FedAvg(**ONE, weighted_by_key="loss"))
    with pytest.raises(ParameterError, match=r"give the app ShieldMod\(samples=...\)"):
        run.start()
    said = sized([1, 2, 3, 4], form="said", strategy=FedAvg(**ONE, weighted_by_key="loss"), rounds=1)
    said.grid.before = lambda node, message: message.content[ASK]["kind"] != "count"
    with pytest.raises(
        PolicyError, match="not one round ended"
    ):  # the metric is not what the app says of its samples
        said.start()


def test_a_training_that_counted_serves_no_other_message_than_its_own():
    run = sized([1, 2, 3, 4], rounds=1)

    def before(node, message):
        if message.content[ASK]["kind"] == "train" and number_of(node) == 1:
            message.content["config"]["more"] = 1

    run.grid.before = before
    run.start()
    assert sorted(run.trained) == sorted([*((client, 1) for client in ALL), (1, 1)])


def test_nothing_of_the_training_that_counted_leaves_or_stays_but_the_count():
    run = sized([1, 2, 3, 4], rounds=1)
    told = []
    run.grid.before = lambda node, message: told.append(message.content[ASK]["kind"])
    run.grid.after = lambda node, reply: told.append(reply.content) if told[-1] == "count" else None
    run.start()
    assert [
        {name: dict(record) for name, record in one.items()} for one in told if not isinstance(one, str)
    ] == [{ASK: {"version": 4, "kind": "count", "samples": count}} for count in (1, 2, 3, 4)]
    for state in run.grid.states.values():
        kept = {item.key for item in state.items if item.key.startswith("shieldfl.counted")}
        assert kept == {"shieldfl.counted"}
        assert state.ByteSize() < 20_000
