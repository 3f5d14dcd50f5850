from __future__ import annotations

import json
from dataclasses import replace

import pytest

from shieldfl.errors import DataError, ParameterError
from shieldfl.lab.fleet.cost_model import DeviceProfile, ModelProfile, SchemeProfile, load_profile

SCHEME = SchemeProfile("ckks", "speed", 4096, 30_000.0, {1: 2e-4, 2: 1.2e-4}, 1e-5, 3e-4, False)
PROFILE = DeviceProfile(
    machine={"processor": "abacus", "cores": 2},
    schemes=(
        SCHEME,
        replace(SCHEME, name="paillier-dense", values_per_ciphertext=68, adds_clear_values=True),
    ),
    score_seconds_per_value=2e-10,
    select_seconds_per_value=3e-9,
    add_clear_seconds_per_value=4e-10,
    model=ModelProfile("mlp", (1, 28, 28), 235_146, {1: 6e-5, 2: 4e-5}),
)


@pytest.mark.parametrize("profile", [PROFILE, replace(PROFILE, model=None)])
def test_a_file_gives_the_profile_back(profile, tmp_path):
    path = tmp_path / "profile.json"
    profile.save(path)
    assert load_profile(path) == profile
    assert json.loads(path.read_text())["version"] == 4
    assert path.stat().st_size < 4000


def test_costs():
    costs = PROFILE.cost_model("paillier-dense")
    assert costs.scheme.encrypt_seconds[1] == 2e-4
    assert costs.scheme.serial_share == pytest.approx(0.2)  # 0.6 = s + (1 - s) / 2
    assert costs.scheme.adds_clear_values
    assert costs.train_seconds_per_sample == 6e-5
    assert costs.train_serial_share == pytest.approx(1 / 3)
    assert costs.select_seconds_per_value == 3e-9
    assert costs.add_clear_seconds_per_value == 4e-10
    assert not PROFILE.cost_model("ckks").scheme.adds_clear_values


def test_without_a_model_training_has_no_cost():
    assert replace(PROFILE, model=None).cost_model("ckks").train_seconds_per_sample == 0.0


def test_a_scheme_that_was_not_measured():
    with pytest.raises(ParameterError, match="choose one of ckks, paillier-dense"):
        PROFILE.cost_model("rsa")


@pytest.mark.parametrize(
    "change",
    [
        {"schemes": ()},
        {"schemes": (SCHEME, SCHEME)},
        {"schemes": (replace(SCHEME, encrypt_seconds={2: 1.0}),)},
        {"model": ModelProfile("mlp", (1,), 1, {})},
    ],
)
def test_no_profile(change):
    with pytest.raises(ParameterError):
        replace(PROFILE, **change)


def changed(path, value):
    document = json.loads(json.dumps(PROFILE.to_json()))
    *parents, last = path
    place = document
    for key in parents:
        place = place[key]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return document


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("format",), "other", "no device profile"),
        (("version",), 1, "another version"),
        (("machine",), None, "machine"),
        (("colour",), "red", "unknown"),
        (("schemes", 0, "pool_seconds"), None, "lacks keys"),
        (("schemes",), [], "needs schemes"),
        (("schemes", 0, "add_seconds"), -1.0, "Expected `float` > 0.0"),
        (("schemes", 0, "add_seconds"), float("inf"), "Expected `float` <= 1.79"),
        (("schemes", 0, "answer_seconds"), -1.0, "Expected `float` >= 0.0"),
        (("select_seconds_per_value",), float("nan"), "Expected `float` > 0.0"),
        (("schemes", 0, "values_per_ciphertext"), 0, "Expected `int` >= 1"),
        (("schemes", 0, "encrypt_seconds"), {"0": 1.0}, "Expected `int` >= 1"),
        (("schemes", 0, "encrypt_seconds"), {"2": 1.0}, "with one thread"),
    ],
)
def test_a_damaged_document(path, value, said):
    with pytest.raises(DataError, match=said):
        DeviceProfile.from_json(changed(path, value))


@pytest.mark.parametrize("document", [None, [], "profile", {}])
def test_no_document(document):
    with pytest.raises(DataError, match="no device profile"):
        DeviceProfile.from_json(document)


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "bytes.json").write_bytes(b"\xff")
    for name, words in (("none", "cannot be read"), ("broken", "is no JSON"), ("bytes", "is not UTF-8")):
        with pytest.raises(DataError, match=words):
            load_profile(tmp_path / f"{name}.json")
