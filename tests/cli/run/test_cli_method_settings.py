"""``--set``: settings of methods that have no options of their own."""

from __future__ import annotations

import re
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("typer")
from typer.testing import CliRunner

from shieldfl.cli.app import app
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.methods.settings import MethodSettings


class StoppedError(Exception):
    """Ends a run before it starts."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the driver was asked for."""
    seen: dict[str, Any] = {}

    def run_seeds(
        config: RunConfig, methods: object, seeds: object, settings: MethodSettings, on_round: object
    ) -> None:
        seen["settings"] = settings
        raise StoppedError

    monkeypatch.setattr("shieldfl.lab.simulation.runner.run_seeds", run_seeds)
    return seen


def invoke(*arguments: str):
    return CliRunner().invoke(app, ["run", "--method", "fedavg,sense-crypt", *arguments])


def test_settings_of_other_methods_are_assigned(asked: dict[str, Any]) -> None:
    result = invoke("--set", "sense-crypt.encryption=ckks", "--set", "sense-crypt.bandwidths=[50, 45.5]")
    assert isinstance(result.exception, StoppedError)
    assert asked["settings"].of("sense-crypt").encryption == "ckks"
    assert asked["settings"].of("sense-crypt").bandwidths == (50.0, 45.5)


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("sense-crypt.encryption", "METHOD.NAME=VALUE"),
        ("encryption=ckks", "METHOD.NAME=VALUE"),
        ("sense-crypt.encrypt=ckks", "no setting"),
        ("sensecrypt.encryption=ckks", "choose from"),
        ("sense-crypt.key_bits=many", "sense-crypt.key_bits must be one of 2048, 3072, 4096, not 'many'"),
        ("sense-crypt.clustering_epsilon=no", "at most 1e+09, not 'no'"),
        ("sense-crypt.bandwidths=[0]", "above 0, not '[0]'"),
        ("dict-pfl.rank=8", "dict-pfl does not run"),
    ],
)
def test_a_wrong_assignment_is_wrong_usage(asked: dict[str, Any], assignment: str, words: str) -> None:
    result = invoke("--set", assignment)
    assert result.exit_code == 2
    assert not asked
    assert words in " ".join(re.sub(r"[│\n]", " ", result.output).split())


def test_one_scheme_for_all_methods_that_have_a_choice(asked: dict[str, Any]) -> None:
    methods = "fedavg,plain-he,sense-crypt,full-he,batch-crypt,selective-shield"
    result = invoke("--method", methods, "--scheme", "ckks", "--set", "full-he.encryption=kahe")
    assert isinstance(result.exception, StoppedError)
    chosen = {name: asked["settings"].of(name) for name in methods.split(",")}
    assert {name: getattr(entry, "encryption", None) for name, entry in chosen.items()} == {
        "fedavg": None,
        "plain-he": "paillier-single",  # which its name stands for
        "sense-crypt": "ckks",
        "full-he": "kahe",  # asked for by name
        "batch-crypt": None,
        "selective-shield": "ckks",
    }
    assert isinstance(invoke("--method", methods).exception, StoppedError)
    assert asked["settings"] == MethodSettings()


def test_a_scheme_that_a_method_does_not_take_is_wrong_usage(asked: dict[str, Any]) -> None:
    result = invoke("--method", "full-he,dict-pfl", "--scheme", "paillier-dense")
    assert result.exit_code == 2
    assert not asked
    assert "dict-pfl.encryption must be one of" in " ".join(re.sub(r"[│\n]", " ", result.output).split())


def test_noise_on_the_sums_of_all_methods(asked: dict[str, Any]) -> None:
    methods = ("full-he", "ddp-fedavg", "alt-fl-pi")
    given = "--set", "full-he.sum_clip_norm=3", "--sum-noise", "2.5"
    result = invoke("--method", ",".join(methods), *given)
    assert isinstance(result.exception, StoppedError)
    noises = {name: asked["settings"].of(name).asked_noise for name in methods}
    assert {name: (one.multiplier, one.clip_norm) for name, one in noises.items()} == {
        "full-he": (2.5, 3.0),
        "ddp-fedavg": (2.5, 1.0),
        "alt-fl-pi": (2.5, 1.0),
    }


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("full-he,selective-shield", "selective-shield has no noise on sums: who encrypts a position"),
        ("fedavg", "fedavg has no setting for noise on sums"),
        ("alt-fl-mp", "alt-fl-mp trains by DP-SGD in every round"),
        ("alt-fl-si-dp", "alt-fl-si-dp encrypts nothing"),
    ],
)
def test_noise_on_sums_that_bounds_nothing_is_wrong_usage(
    asked: dict[str, Any], method: str, words: str
) -> None:
    result = invoke("--method", method, "--sum-noise", "1")
    assert result.exit_code == 2
    assert not asked
    assert words in " ".join(re.sub(r"[│\n]", " ", result.output).split())


@pytest.mark.parametrize("given", ["ddp-fedavg.target_epsilon=8", "full-he.sum_noise_multiplier=0"])
def test_noise_on_sums_beside_other_noise_of_one_method_is_wrong_usage(
    asked: dict[str, Any], given: str
) -> None:
    result = invoke("--method", "ddp-fedavg,full-he", "--sum-noise", "1", "--set", given)
    assert result.exit_code == 2
    assert not asked
    assert "has other noise by --set" in " ".join(re.sub(r"[│\n]", " ", result.output).split())
