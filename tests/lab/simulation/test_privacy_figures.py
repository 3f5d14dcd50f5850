"""What a run says of its privacy agrees with what the methods declare and do."""

from __future__ import annotations

import json
import math
import re
from collections import Counter

import pytest
import torch

from lab.simulation.small_runs import fewer_samples, quick_synthetic_data, run_methods
from shieldfl.lab.report.run_summary import summarise
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.lab.simulation.federation import leaves_alone
from shieldfl.lab.simulation.results import RunResult
from shieldfl.learning.local_trainer import Objective
from shieldfl.methods.registry import BUILT_IN, MethodSettings, method_class
from shieldfl.privacy.accountant import epsilon_of
from shieldfl.privacy.events import NoiseOfDrawnSum
from shieldfl.privacy.sum_noise import planned_sum_noise
from shieldfl.quantities import epsilon_text

SLOW_KEYS = {"plain-he", "batch-crypt", "sense-crypt"}
HIDDEN = {
    "fedavg": "nothing",
    "full-he": "all",
    "top-2": "all",
    "dict-pfl": "all but count",
    "dp-sgd": "nothing",
    "dp-fedavg": "nothing",
    "ddp-fedavg": "all",
    "alt-fl-si-dp": "nothing",
    # One round of two encrypts.
    "alt-fl-pi": "50.00 %",
    "alt-fl-si-he": "50.00 %",
    "alt-fl-mp": "all",
}
EPSILON = {
    "fedavg": "∞",
    "fedml-he": "∞",
    "mask-crypt": "∞",
    "selective-shield": "∞",
    "full-he": "–",
    "top-2": "–",
    "dict-pfl": "∞",
}


@pytest.fixture(scope="module", autouse=True)
def _small_and_quick():
    with fewer_samples(), quick_synthetic_data():
        yield


@pytest.mark.every_run("alt-fl-pi", "ddp-fedavg", "dp-fedavg", "selective-shield", "full-he", "fedavg")
@pytest.mark.parametrize("name", [name for name in BUILT_IN if name not in SLOW_KEYS])
def test_a_run_says_what_is_hidden_and_how_to_read_its_epsilon(name):
    config = RunConfig(clients=2, rounds=2, local_epochs=1, model="mlp", threads=1, min_clients=2)
    settings = MethodSettings()
    if name == "selective-shield":
        settings = settings.changed(name, {"noise_multiplier": 0.01})
    result = run_methods(config, [name], settings)
    (method,) = result.methods
    reading = method_class(name).privacy_reading
    assert method.notes[0] == reading.meaning
    assert (method.privacy_unit, method.privacy_adversary) == (reading.unit, reading.adversary)
    assert method.privacy_neighbours == reading.neighbours
    assert method.aggregator_sees == method_class(name).aggregator_sees
    rows = {row.label: row.cells[0] for row in summarise(result)[-1].rows}
    assert rows["ε"] == EPSILON.get(name, rows["ε"])
    assert (rows["ε"] == "∞") == any(note.startswith("ε is ∞ because") for note in method.notes)
    if name in HIDDEN:
        assert rows["hidden from the aggregator"] == HIDDEN[name]
    stated = json.loads(json.dumps(result.to_json(), allow_nan=False))["methods"][0]
    assert stated["hidden_share"] == method.hidden_share
    assert stated["rounds"][-1]["epsilon"] == {"∞": "Infinity", "–": None}.get(rows["ε"], method.last.epsilon)
    # Noise is charged for where some is added, and only there.
    noised = reading.unit is not None
    assert math.isnan(method.last.epsilon_of_noise) != noised
    assert (rows["of the noise alone"] == "–") != noised
    has_second = name in ("selective-shield", "dp-fedavg")
    assert (method.last.epsilon_if_participants_true < method.last.epsilon_of_noise) == has_second
    assert ("noise of σ·√K, if K was true" in rows) == has_second


def drawn_run(model, sample_rate=0.2, opener=None):
    config = RunConfig(
        clients=40,
        rounds=2,
        local_epochs=1,
        model=model,
        threads=1,
        min_clients=6,
        sample_rate=sample_rate,
        opener=opener,
    )
    settings = MethodSettings().changed("ddp-fedavg", {"noise_multiplier": 4.0})
    return run_methods(config, ["ddp-fedavg", "full-he"], settings)


@pytest.mark.parametrize("opener", ["clients", "aggregator"])
def test_what_holds_where_nobody_sees_who_takes_part_stands_beside_what_holds_always(opener):
    result = drawn_run("linear", opener=opener)
    own, other = result.methods
    reading = method_class("ddp-fedavg").privacy_reading
    draws = Counter(NoiseOfDrawnSum(_charge(own), record.participants, 40) for record in own.rounds)
    hidden = own.last.epsilon_if_participation_hidden
    assert hidden == epsilon_of(draws, 1e-5) < own.last.epsilon
    assert reading.if_participation_hidden in own.notes
    assert math.isnan(other.last.epsilon_if_participation_hidden)
    cells = {row.label: row.cells for row in summarise(result)[-1].rows}
    assert cells["ε against outsiders alone"] == (epsilon_text(hidden), "–")
    stated = json.loads(json.dumps(result.to_json(), allow_nan=False))["methods"]
    assert [one["rounds"][-1]["epsilon_if_participation_hidden"] for one in stated] == [hidden, None]


def _charge(method):
    settings = method.settings
    parameters = 64 * 10 + 10  # of the linear model on digits
    return planned_sum_noise(
        settings["mechanism"],
        settings["noise_multiplier"],
        clip_norm=settings["clip_norm"],
        dimension=parameters,
        honest_clients=settings["honest_clients_charged"],
        clients=40,
    ).charge


@pytest.mark.parametrize(("model", "sample_rate"), [("linear", 1.0), ("simple-cnn", 0.2)])
def test_no_second_figure_where_all_take_part_or_clients_keep_buffers(model, sample_rate):
    result = drawn_run(model, sample_rate)
    assert not result.methods[0].last.epsilon_if_participation_hidden < result.methods[0].last.epsilon
    assert "ε against outsiders alone" not in {row.label for row in summarise(result)[-1].rows}
    assert method_class("ddp-fedavg").privacy_reading.if_participation_hidden not in result.methods[0].notes


def test_noise_on_sums_of_other_methods_is_read_as_what_it_is_of():
    names = ["full-he", "top-2", "dict-pfl", "alt-fl-pi", "alt-fl-si-he"]
    config = RunConfig(clients=6, rounds=2, local_epochs=1, model="linear", threads=1, min_clients=5)
    settings = MethodSettings().with_sum_noise(8.0, names)
    result = run_methods(config, names, settings)
    for method in result.methods:
        entry = settings.of(method.method)
        assert method.notes[0] == method_class(method.method).reading_with(entry).meaning
        assert "opened sums, and with them the global model, tell" in method.notes[0]
        assert method.privacy_unit == ("sample" if method.method.startswith("alt-fl") else "client")
        assert method.privacy_adversary.endswith("not both, with at most the stated colluders")
        assert math.isfinite(method.last.epsilon)
        assert method.last.epsilon == method.last.epsilon_of_noise > 0.0
        assert not any(note.startswith("ε is ∞") for note in method.notes)
    rows = {row.label: row.cells for row in summarise(result)[-1].rows}
    assert rows["hidden from the aggregator"][:3] == ("all", "all", "all")
    assert "∞" not in rows["ε"]


def test_who_holds_values_back_has_no_figure_for_who_sees_no_participation():
    config = RunConfig(
        **{"clients": 40, "rounds": 2, "local_epochs": 1, "model": "linear", "threads": 1},
        min_clients=6,
        sample_rate=0.2,
    )
    names = ["ddp-fedavg", "full-he", "dict-pfl", "alt-fl-pi"]
    methods = run_methods(config, names, MethodSettings().with_sum_noise(4.0, names)).methods
    figures = {one.method: one.last.epsilon_if_participation_hidden for one in methods}
    assert figures["full-he"] == figures["ddp-fedavg"] < methods[1].last.epsilon
    assert math.isnan(figures["dict-pfl"])
    assert math.isnan(figures["alt-fl-pi"])


@pytest.mark.parametrize("name", BUILT_IN)
def test_who_reads_a_figure_is_told_what_it_says_of_opened_sums(name):
    """Nothing, or that they are what it is of."""
    kind = method_class(name)
    told = re.search(
        r"opened sums, and with them the (global )?model, tell is not (counted|bounded)",
        kind.privacy_reading.meaning,
    )
    of_sums = "ε is of what opened sums, and with them the global model, tell" in kind.privacy_reading.meaning
    assert of_sums == (name == "ddp-fedavg")
    assert told or of_sums or not kind.schemes


def test_what_is_readable_beside_values_is_named():
    config = RunConfig(clients=2, rounds=1, local_epochs=1, model="mlp", threads=1, min_clients=2)
    methods = run_methods(config, ["fedml-he", "mask-crypt", "selective-shield"]).methods
    assert [method.readable_parts for method in methods] == [["mask"], ["ranking"], ["mask"]]
    result = RunResult("data", "mlp", {}, {}, 10, methods)
    (hidden,) = [row for row in summarise(result)[-1].rows if row.label == "hidden from the aggregator"]
    assert hidden.cells[0].endswith(" %, mask readable")
    assert hidden.cells[1].endswith(" %, ranking readable")


class Counting:
    """A function of a user's, which a layer of torch's is made with."""

    def __call__(self, values):
        return values


def with_buffer():
    model = torch.nn.Linear(4, 2)
    model.register_buffer("mean", torch.zeros(2))
    return model


def hooked(hook):
    model = torch.nn.Sequential(torch.nn.Linear(4, 2))
    hook(model[0])
    return model


@pytest.mark.parametrize(
    ("model", "vectors", "parameters"),
    [
        (torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.ReLU()), True, True),
        (torch.nn.LSTM(4, 2), True, True),
        (torch.nn.TransformerEncoderLayer(4, 2, activation="gelu"), True, True),
        (torch.nn.TransformerEncoderLayer(4, 2, activation=torch.relu), True, True),
        (torch.nn.TransformerEncoderLayer(4, 2, activation=Counting()), False, False),
        (torch.nn.BatchNorm1d(4), False, False),
        (with_buffer(), True, False),
        (type("Own", (torch.nn.Linear,), {"__module__": "users"})(4, 2), False, False),
        (hooked(lambda layer: layer.register_forward_hook(lambda layer, came, went: went)), False, False),
        (hooked(lambda layer: layer.weight.register_hook(lambda gradient: gradient)), False, False),
        (hooked(lambda layer: layer.weight.register_post_accumulate_grad_hook(print)), False, False),
    ],
)
def test_a_model_that_may_keep_something_of_its_own_is_known(model, vectors, parameters):
    """Then there is no figure for who sees no participation, and clients train in one process."""
    assert leaves_alone(model, Objective()) == (vectors, parameters)
    assert not any(leaves_alone(model, Objective(loss=torch.nn.functional.cross_entropy)))
