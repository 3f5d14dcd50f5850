"""What a run says of its privacy agrees with what the methods declare and do."""

from __future__ import annotations

import json
import math
import re

import pytest

from shieldfl.methods.discovery import BUILT_IN, method_class
from shieldfl.methods.settings import MethodSettings
from shieldfl.simulation.config import RunConfig
from shieldfl.simulation.driver import run_methods
from shieldfl.simulation.report.summary import summarise
from shieldfl.simulation.run_result import RunResult
from simulation.fewer_samples import fewer_samples
from simulation.quick_synthetic_data import quick_synthetic_data

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
