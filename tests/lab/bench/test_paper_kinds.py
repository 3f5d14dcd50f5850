"""bench/papers/kinds: what measures a row, on data that are always there."""

from __future__ import annotations

import importlib
import math

import numpy as np
import pytest

import shieldfl as sf
from documentation_pages import ROOT
from shieldfl.errors import ParameterError
from shieldfl.privacy.accountant import epsilon_of
from shieldfl.privacy.events import Noise

RUN = {"dataset": "digits", "model": "linear", "clients": 3, "rounds": 2, "local_epochs": 1}

SELECTION = {"dataset": "digits", "samples": 9, "epochs": 1, "bins": 8}


@pytest.fixture(scope="module")
def kind():
    """Return a kind by name."""
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(ROOT / "bench")
        yield importlib.import_module("papers.kinds").kind_named


def test_every_kind_has_figures_and_refuses_unknown_settings(kind):
    for name in importlib.import_module("papers.kinds").KINDS:
        assert kind(name).figures
        with pytest.raises(ParameterError, match="unknown key"):
            kind(name).check({"nonsense": 1})
        with pytest.raises(ParameterError):
            kind(name).check({})


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("accounting", {"noise_multiplier": 1.0, "sample_rate": 0.1}, "accounting lacks steps, delta"),
        (
            "ciphertexts",
            {"scheme": "ckks", "values": 3, "parameters": {"depth": 2}},
            "no such parameters of ckks: .*depth",
        ),
        ("label-attack", {"method": "top-2"}, "unknown method 'top-2'"),
        ("label-attack", {"method": "sense-crypt", "trials": 1}, "label-attack of sense-crypt lacks client"),
        ("label-distributions", {"clients": 3}, "lacks classes, samples_per_class, classes_per_client"),
        ("selection", SELECTION | {"order": "high"}, "selection in an order lacks share"),
        ("selection", SELECTION | {"limits": {"budget": 0.1}}, "limits lacks exposed_share, exposure_decay"),
    ],
)
def test_settings_that_a_row_cannot_be_measured_with_are_named(kind, name, settings, said):
    with pytest.raises(ParameterError, match=said):
        kind(name).check(settings)


def test_accounting_is_what_one_sample_is_charged(kind):
    settings = {"noise_multiplier": 1.0, "sample_rate": 0.1, "steps": 50, "delta": 1e-5}
    kind("accounting").check(settings)
    found = kind("accounting").measure(settings)["epsilon"]
    assert found == epsilon_of({Noise(1.0, "sample", 0.1): 50}, 1e-5)
    assert 1 < found < epsilon_of({Noise(1.0, "sample"): 50}, 1e-5)


def test_a_federation_s_figures_are_those_of_the_run(kind):
    settings = {"method": "full-he", "run": RUN, "seeds": [0, 1, 2]}
    kind("federation").check(settings)
    runs = sf.run("digits", "full-he", seeds=(0, 1, 2), **{k: v for k, v in RUN.items() if k != "dataset"})
    accuracies = runs.figure("full-he", "accuracy").values
    mean, middle = (
        kind("federation").measure(settings | {"without_extremes": drops}) for drops in (False, True)
    )
    assert mean["accuracy"] == pytest.approx(accuracies.mean())
    assert mean["accuracy deviation"] == pytest.approx(accuracies.std(ddof=1))
    assert middle["accuracy"] == np.median(accuracies)
    assert math.isnan(mean["converged_round"])


def test_a_federation_against_another_says_how_many_times_less(kind):
    settings = {"method": "fedavg", "run": RUN, "against": ["full-he"]}
    found = kind("federation").measure(settings)
    runs = sf.run("digits", ["fedavg", "full-he"], **{k: v for k, v in RUN.items() if k != "dataset"})
    more, less = (
        sum(one.bytes_up + one.bytes_down for one in run.rounds) for run in reversed(runs.runs[0].methods)
    )
    assert found["total_bytes"] == more / less > 1


def test_selection_leaves_more_to_read_where_less_is_encrypted(kind):
    common = {"dataset": "digits", "model": "linear", "samples": 200, "epochs": 1, "bins": 64}
    few, many = (
        kind("selection").measure(common | {"order": "random", "share": share}) for share in (0.1, 0.9)
    )
    assert (few["encrypted_share"], many["encrypted_share"]) == (0.1, 0.9)
    assert 1 > few["information_share"] > many["information_share"] > 0
    high, low = (
        kind("selection").measure(common | {"order": order, "share": 0.3}) for order in ("high", "low")
    )
    assert high["encrypted_share"] == pytest.approx(low["encrypted_share"], abs=0.01)
    limits = {"budget": 0.05, "exposed_share": 0.01, "exposure_decay": 0.1}
    assert kind("selection").measure(common | {"limits": limits})["feasible"] == 0.0
    assert kind("selection").measure(common | {"limits": limits | {"exposed_share": 1.0}})["feasible"] == 1.0


def test_bytes_of_ciphertexts_are_those_of_the_frame_less_its_head(kind):
    settings = {"scheme": "ckks", "values": 3, "parameters": {"packing": "slots"}}
    kind("ciphertexts").check(settings)
    found = kind("ciphertexts").measure(settings)
    assert 0 < found["frame_bytes"] - found["ciphertext_bytes"] < 1000
    assert (
        kind("ciphertexts").measure(settings | {"values": 1})["ciphertext_bytes"] == found["ciphertext_bytes"]
    )
    with pytest.raises(ParameterError, match="unknown scheme"):
        kind("ciphertexts").check(settings | {"scheme": "magic"})
