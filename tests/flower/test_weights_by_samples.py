"""Clients count by their samples; what an app and a server may say of a model, its layout and a set-up."""

from __future__ import annotations

import copy
import hashlib
import itertools
import random
import struct
import time

import msgspec
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, MetricRecord, RecordDict
from flwr.common.serde import message_from_proto, message_to_proto, recorddict_from_proto
from flwr.serverapp.strategy import FedAvg

from flower.vector_app import ALL, ONE, VectorRun, moves, number_of
from shieldfl import errors
from shieldfl.authority.message import Message
from shieldfl.errors import ParameterError, PolicyError, WireFormatError
from shieldfl.flower.mod import ClientSession, ShieldMod, SimulatedMemory, shield_mod
from shieldfl.flower.records import (
    ASK,
    MESSAGE,
    SCORES,
    TRAINING,
    RecordLayout,
    asked_training,
    done_training,
    message_in,
    packed,
    update_of,
)
from shieldfl.flower.settings import NodeSettings
from shieldfl.learning.local_update import GradientNoise, PrivateSteps, StartingPoint
from shieldfl.methods.registry import method_class
from shieldfl.rounds.plan import FederationPlan, PublicSetup

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
    with pytest.raises(PolicyError, match="not one round ended"):  # the app does not train as it is asked
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
    with pytest.raises(PolicyError, match="not one round ended"):  # the metric is not the number of samples
        said.start()


@pytest.mark.parametrize("metric", ["num-examples", "samples"])
def test_a_server_says_by_no_setting_of_its_own_what_clients_count_by(metric):
    """Where one counts 400 times what the others do, who opens their sum has an update of the one alone."""
    refused, words = [], "has trained on 400" if metric == "num-examples" else "does not say how many"

    def said(message, context, call_next):
        reply, count = call_next(message, context), message.content["config"].get("samples")
        reply.content["metrics"] = MetricRecord({"num-examples": count} if count else {metric: 400})
        return reply

    def before(node, message):
        message.content[ASK].pop("weighted-by", None)
        if message.content[ASK]["kind"] == "count":
            message.content["config"]["samples"] = 400 if number_of(node) == 1 else 1

    run = sized([1, 1, 1, 1], form=[shield_mod, said], rounds=1)
    run.grid.before = before
    run.grid.after = lambda node, reply: refused.append(reply.error.reason) if reply.has_error() else None
    with pytest.raises(PolicyError, match="not one round ended"):
        run.start()
    assert [one.startswith("PolicyError") and words in one for one in refused] in ([True] * 3, [True] * 4)


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


PARAMETERS = np.arange(6, dtype=np.float32)
NO_BUFFERS = np.empty(0, np.float32)


def record(**arrays):
    return ArrayRecord({name: Array(array) for name, array in arrays.items()})


TRAINED = {"weight": np.ones((2, 2), np.float32), "bias": np.zeros(2, np.float32)}
LAYOUT = RecordLayout.of(record(**TRAINED))


def start_of(**asked):
    return StartingPoint(PARAMETERS, NO_BUFFERS, round=2, **asked)


def reply_of(start, *, synthetic=False, steps=None, **more):
    update = start.trained(PARAMETERS, NO_BUFFERS, None, steps)
    content = {"arrays": record(**TRAINED), TRAINING: done_training(update, synthetic=synthetic)}
    return RecordDict(content | more)


def test_a_round_on_synthetic_data_takes_no_reply_that_does_not_say_so():
    start = start_of(synthetic=True)
    assert asked_training(start, 0)["synthetic"] is True
    assert asked_training(start_of(synthetic_share=0.25), 0)["synthetic-share"] == 0.25
    update_of(reply_of(start, synthetic=True), start, LAYOUT)
    for reply in (reply_of(start), RecordDict({"arrays": record(**TRAINED)})):
        with pytest.raises(PolicyError, match="sends the result in the clear: the app must confirm"):
            update_of(reply, start, LAYOUT)


def test_a_round_of_dp_sgd_takes_no_reply_that_does_not_say_its_steps():
    start, steps = start_of(noise=GradientNoise(1.5, 1.0)), PrivateSteps(3, 0.25)
    asked = asked_training(start, 0)
    assert (asked["private"], asked["noise-multiplier"], asked["max-grad-norm"]) == (True, 1.5, 1.0)
    assert update_of(reply_of(start, steps=steps), start, LAYOUT).private_steps == steps
    for reply in (reply_of(start), RecordDict({"arrays": record(**TRAINED)})):
        with pytest.raises(PolicyError, match="trains by DP-SGD: the app has to say how many steps"):
            update_of(reply, start, LAYOUT)


def test_scores_are_of_every_parameter():
    start = start_of(scores="gradient")
    scores = {name: np.full_like(array, 2.0) for name, array in TRAINED.items()}
    found = update_of(reply_of(start, **{SCORES: record(**scores)}), start, LAYOUT)
    np.testing.assert_array_equal(found.scores, np.full(6, 2.0))
    with pytest.raises(ParameterError, match="needs scores of the kind 'gradient'"):
        update_of(reply_of(start), start, LAYOUT)
    with pytest.raises(ParameterError, match="scores are arrays under the names"):
        update_of(reply_of(start, **{SCORES: record(bias=scores["bias"])}), start, LAYOUT)


def test_a_reply_has_one_record_of_arrays():
    with pytest.raises(ParameterError, match="has 2 records of arrays: return the trained model in one"):
        update_of(reply_of(start_of(), more=record(**TRAINED)), start_of(), LAYOUT)
    with pytest.raises(ParameterError, match="has 0 records of arrays"):
        update_of(RecordDict(), start_of(), LAYOUT)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"bias": None}, "'bias' is in one of the two alone"),
        ({"more": np.zeros(1, np.float32)}, "'more' is in one of the two alone"),
        ({"bias": np.zeros(3, np.float32)}, r"'bias' has the shape \(3,\) .* has floats of the shape \(2,\)"),
        ({"bias": np.zeros(2, np.int64)}, "'bias' has the shape .* and the type int64"),
    ],
)
def test_other_arrays_than_the_models_are_named(changes, words):
    arrays = {name: array for name, array in (TRAINED | changes).items() if array is not None}
    with pytest.raises(ParameterError, match=words):
        LAYOUT.model_of(record(**arrays))


def test_a_model_that_cannot_be_protected_is_refused():
    with pytest.raises(ParameterError, match="has no parameters: there is nothing to train or protect"):
        RecordLayout.of(record(count=np.zeros(1, np.int64)))
    brain_float = Array("bfloat16", (1,), "numpy.ndarray", bytes(2))
    with pytest.raises(ParameterError, match="'half' is of type bfloat16, which NumPy does not know"):
        RecordLayout.of(ArrayRecord({"half": brain_float}))


def test_a_layout_and_what_stays_apart_come_back_from_their_text():
    arrays = {**TRAINED, "bn.running_mean": np.ones(3, np.float32), "bn.count": np.array(7)}
    layout = RecordLayout.of(record(**arrays))
    assert RecordLayout.from_json(layout.to_json()) == layout
    apart = layout.apart_from_message(layout.apart_to_message(layout.apart_of(record(**arrays))))
    model = layout.model_of(record(**arrays))
    found = layout.record_of(model, apart)
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name].numpy(), array)
    with pytest.raises(WireFormatError, match="no layout of a model"):
        RecordLayout.from_json('{"order": 1}')


ARRAYS = {
    "weight": np.zeros((3, 2), np.float32),
    "bias": np.zeros(3, np.float32),
    "bn.running_mean": np.zeros(3, np.float32),
    "bn.count": np.zeros(1, np.int64),
}
JUNK = [None, True, -1, 2**40, 10**30, 1.5, "x", "float99", "object", [], [-1], [2**40], {}, {"x": 1}]
RECORD_JUNK = [True, -1, 2**62, 1.5, "", "x", b"x", [1], [-1, 2], ["x"], [2**62, 2**62]]


class Probed:
    """The messages of a run's kinds to one node, each of which can be delivered, altered, to a node as it was then."""

    def __init__(self):
        run = VectorRun(clients=3, rounds=1, weighting="samples")  # nodes count theirs first
        run.train = lambda client, number, shape: 0
        run.initial = lambda: ArrayRecord({name: Array(one) for name, one in ARRAYS.items()})
        self.messages, self.run = {}, run

        def keep(node, message):
            kind = message.content[ASK]["kind"]
            if node == min(run.grid.configs) and kind not in self.messages:
                self.messages[kind] = message_to_proto(message), run.grid.states[node]
                self.node = node

        run.grid.before = keep
        run.start()

    def message(self, kind):
        return message_from_proto(self.messages[kind][0])

    def delivered(self, kind, message):
        """Return what the node answers, and what it keeps."""
        state = recorddict_from_proto(self.messages[kind][1])
        context = Context(1, self.node, self.run.grid.configs[self.node], state, {})
        reply = self.run.app()(message, context)
        if reply.has_error():
            name = reply.error.reason.partition(":")[0]
            assert issubclass(getattr(errors, name), errors.ShieldError), reply.error.reason
            assert "\n" not in reply.error.reason
        return reply, context


@pytest.fixture(scope="module")
def probed():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shieldfl.flower.mod.is_simulated", lambda: True)
        yield Probed()


def altered(tree):
    """Yield a JSON document with one value of it replaced or left out, for each value."""
    places = [(tree, key) for key in (tree if isinstance(tree, dict) else range(len(tree)))]
    for where, key in places:
        kept = where[key]
        for junk in JUNK:
            where[key] = junk
            yield copy.deepcopy(tree)
        if isinstance(where, dict):
            del where[key]
            yield copy.deepcopy(tree)
        where[key] = kept
        if isinstance(kept, dict | list):
            for inner in altered(kept):
                where[key] = inner
                yield copy.deepcopy(tree)
            where[key] = kept


@pytest.mark.parametrize("kind", ["hello", "count", "set-up", "train", "model", "finish"])
def test_every_field_of_a_message_may_be_missing_or_of_another_kind(probed, kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where a simulation's server says that nodes have their folders
    for name in probed.message(kind).content[ASK]:
        for junk in (None, *RECORD_JUNK):
            if name == "arrays" and isinstance(junk, str):
                continue  # the app's own record, which the server's strategy may call what it likes
            message = probed.message(kind)
            if junk is None:
                del message.content[ASK][name]
            else:
                message.content[ASK][name] = junk
            probed.delivered(kind, message)
    parts = message_in(probed.message(kind).content) or {}
    for name in parts:
        for junk in (None, b"", b"x" * 7, bytes(8), b"\xff" * 64, b"[]", b"{}"):
            message, other = probed.message(kind), {**parts, name: junk or b""}
            if junk is None:
                del other[name]
            message.content[MESSAGE] = packed(Message(other))
            probed.delivered(kind, message)


def with_layout(probed, layout):
    """A set-up's message with this layout, which the set-up has agreed to."""
    message = probed.message("set-up")
    brought = dict(message_in(message.content))
    kept = Message({name: part for name, part in brought.items() if name.startswith("apart")})
    text = msgspec.json.encode(layout)
    own = hashlib.sha256(b"shieldfl layout 1\0" + text).digest()
    setup = msgspec.json.decode(bytes(brought["setup"]))
    setup["plan"] |= {"layout_digest": hashlib.sha256(own + kept.to_bytes()).hexdigest()}
    brought["setup"] = msgspec.json.encode(setup, order="sorted")
    message.content[ASK]["layout"] = text.decode()
    message.content[MESSAGE] = packed(Message(brought))
    return message


def check_usable(probed, message):
    """Deliver a set-up; where it is taken, the app gets arrays that it can read."""
    reply, context = probed.delivered("set-up", message)
    if reply.has_error():
        return False
    session_id = PublicSetup.trusted(bytes(message_in(message.content)["setup"])).session
    session = ClientSession(SimulatedMemory(context), session_id, 1)
    for array in session._arrays(session._initial.starting_point()).values():
        array.numpy()
    return True


# Of all alterations each seventh is enough to see that a value is looked at at all.
@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_every_value_of_a_layout_may_be_anything(probed, step):
    layout = msgspec.json.decode(probed.message("set-up").content[ASK]["layout"])
    assert check_usable(probed, with_layout(probed, layout))
    tried = itertools.islice(altered(layout), 0, None, step)
    taken = [check_usable(probed, with_layout(probed, other)) for other in tried]
    assert len(taken) > 200 / step
    assert not all(taken)


def with_empty(layout, shape):
    """Add an array that changes no size."""
    layout["parameters"].append({"name": "empty", "shape": shape, "dtype": "float32"})
    layout["order"].append("empty")


@pytest.mark.parametrize(
    ("kind", "shape", "head"),
    [
        ("<i8", [0, 2**70], None),
        ("<i8", [0] * 65, None),
        ("|V0", [2**40], None),
        ("<i8", [0], "(" * 9000),
        ("|b1", [1], "{'descr': '|b1', 'fortran_order': False, 'shape': (True,)}"),
    ],
)
def test_bytes_apart_that_numpy_fails_on_are_refused(kind, shape, head):
    head = head or str({"descr": kind, "fortran_order": False, "shape": tuple(shape)})
    content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head) + 1) + head.encode() + b"\n"
    listed = msgspec.json.encode({"one": (kind, shape, "numpy.ndarray")})
    with pytest.raises(WireFormatError, match="not of its type and shape"):
        RecordLayout.apart_from_message(Message({"apart": listed, "apart 0": content}))


def test_layouts_of_other_sizes_and_names_are_refused(probed):
    layout = msgspec.json.decode(probed.message("set-up").content[ASK]["layout"])
    for number, change in enumerate(
        (
            lambda one: one["order"].reverse(),  # is the one that is no fault
            lambda one: one["order"].pop(),
            lambda one: one["order"].append("weight"),
            lambda one: one["order"].append("other"),
            lambda one: one["parameters"].append(one["parameters"][0]),
            lambda one: one["parameters"].extend(one["buffers"]),
            lambda one: one["parameters"][0].update(shape=[6, 10**9]),
            lambda one: one["parameters"][0].update(shape=[-3, -2]),
            lambda one: one["parameters"][0].update(name="bn.count"),
            lambda one: with_empty(one, [0, 2**70]),
            lambda one: with_empty(one, [0, 2**40, 2**40]),
            lambda one: with_empty(one, [0] * 65),
            lambda one: one["buffers"].clear(),
        )
    ):
        other = copy.deepcopy(layout)
        change(other)
        assert check_usable(probed, with_layout(probed, other)) == (number == 0)


def unsigned(method, **plan):
    of = {"clients": 4, "rounds": 2**31 - 1, "min_clients": 3, "server_learning_rate": 1.0, "parameters": 9}
    setup = PublicSetup(method, {"delta": 1e-5}, FederationPlan(**of | plan), bytes(32), bytes(16))
    return Message({"setup": setup.to_bytes()})


def test_an_unsigned_set_up_is_refused_before_anything_is_made_of_its_numbers(monkeypatch):
    def made(*arguments):
        raise AssertionError("a method was made of a set-up that nobody has signed")

    monkeypatch.setattr("shieldfl.flower.settings.method_of", made)
    with pytest.raises(PolicyError, match="under a key authority that it pins"):
        NodeSettings(authority_key="11" * 32).checked_setup(unsigned("alt-fl-pi"), simulated=False)
    with pytest.raises(PolicyError, match="and not in dp-sgd"):
        NodeSettings(methods="fedavg").checked_setup(unsigned("dp-sgd"), simulated=False)


@pytest.mark.parametrize("settings", [{}, {"authority_key": "11" * 32}])
def test_a_class_that_encrypts_and_names_no_schemes_takes_no_set_up_that_nobody_signed(monkeypatch, settings):
    node = NodeSettings(methods="selective-shield", openers="authority,clients", **settings)
    monkeypatch.setattr(method_class("selective-shield"), "schemes", ())
    with pytest.raises(ParameterError, match="names no schemes"):
        node.checked_setup(unsigned("selective-shield"), simulated=False)


def test_a_set_up_of_two_thousand_million_rounds_takes_no_time():
    begun = time.process_time()
    assert NodeSettings(methods="alt-fl-si-dp").checked_setup(unsigned("alt-fl-si-dp"), simulated=False)
    assert time.process_time() - begun < 2.0


@pytest.mark.parametrize("simulated", [True, False])
def test_samples_are_not_counted_for_a_run_in_which_all_count_alike(simulated):
    """Their number has no noise, and the epsilon of such runs is of clients as a whole."""
    planned = unsigned("ddp-fedavg", rounds=2, parameters=100)["setup"]
    with pytest.raises(PolicyError, match="all clients of ddp-fedavg count alike"):
        NodeSettings(methods="ddp-fedavg").check_planned(planned, simulated=simulated)
