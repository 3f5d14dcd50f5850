"""What steps cost, by hand, and profiles of machines."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from lab.fleet.fleets import COSTS, SCHEME, client, fleet_of, three_clients
from shieldfl.errors import DataError, ParameterError
from shieldfl.lab.fleet.cost_source import (
    DeviceProfile,
    ModelProfile,
    SchemeProfile,
    load_profile,
    serial_share,
    speedup,
)
from shieldfl.lab.fleet.round_simulation import simulate


def test_ciphertexts_are_whole():
    np.testing.assert_array_equal(SCHEME.ciphertexts([0, 1, 10, 11]), [0, 1, 1, 2])


def test_seconds_by_hand():
    fleet = three_clients()  # rates 2 x 1, 1 x 0.5, 1 x 1
    np.testing.assert_allclose(COSTS.train_seconds(fleet), [0.5, 2.0, 1.0])
    np.testing.assert_allclose(
        COSTS.selection_seconds(fleet), [[1.0, 2.0, 1.0], [2.0, 4.0, 2.0]]
    )  # on one core
    np.testing.assert_allclose(COSTS.encrypt_seconds(fleet, [25, 20, 0]), [1.5, 4.0, 0.0])


def test_bytes_by_hand():
    fleet = three_clients()
    sent = COSTS.upload_bytes(fleet, [25, 100, 0], [25, 100, 0], sends_mask=False)
    np.testing.assert_allclose(sent, [3 * 100 + 75 * 4, 10 * 100, 400])
    np.testing.assert_allclose(
        COSTS.upload_bytes(fleet, [25, 100, 0], [25, 100, 0], sends_mask=True), sent + 13
    )
    half_empty = COSTS.upload_bytes(fleet, [25, 90, 0], [50, 100, 0], sends_mask=False)
    np.testing.assert_allclose(half_empty - sent, [200, 40, 0])
    np.testing.assert_allclose(COSTS.download_bytes(fleet, 25), 400.0)
    opened = replace(COSTS, scheme=replace(COSTS.scheme, clients_open=True))
    np.testing.assert_allclose(opened.download_bytes(fleet, 25), 3 * 100 + 75 * 4)


def test_clients_that_open_take_their_own_time_for_it():
    fleet = fleet_of(client("one"), client("slow", cpu_share=0.5))
    opened = replace(COSTS, scheme=replace(COSTS.scheme, clients_open=True, answer_seconds=0.25))
    np.testing.assert_allclose(COSTS.client_open_seconds(fleet, 25), 0.0)
    np.testing.assert_allclose(opened.client_open_seconds(fleet, 25), [3 * 0.5, 3 * 1.0])
    assert opened.open_seconds(fleet, 25, 2) == pytest.approx(3 * 0.25)
    rounds = simulate("full-he", fleet, COSTS), simulate("full-he", fleet, opened)
    later = 10 * np.array([0.5, 1.0]) + (10 * 100.0 - 400.0) / fleet.download_bytes_per_second
    np.testing.assert_allclose(rounds[1].download[0] - rounds[0].download[0], later)


def test_the_aggregators_seconds():
    fleet = fleet_of(client("one"), cores=4.0)
    costs = replace(COSTS, add_clear_seconds_per_value=0.5)
    assert costs.add_seconds(fleet, 20) == pytest.approx((2 * 0.25 + 80 * 0.5) / 4)
    assert costs.open_seconds(fleet, 21, 6) == pytest.approx(3 * 0.5 / 4)
    lists = replace(costs, scheme=replace(costs.scheme, answer_seconds_per_client=0.125))
    assert lists.open_seconds(fleet, 21, 6) == pytest.approx(3 * (0.5 + 6 * 0.125) / 4)


def test_a_fleet_may_state_its_own_training():
    fleet = three_clients()
    stated = replace(fleet, model=replace(fleet.model, train_core_seconds_per_sample=1.0))
    np.testing.assert_allclose(COSTS.train_seconds(stated), [5.0, 20.0, 10.0])
    twice = replace(fleet, training=replace(fleet.training, local_epochs=2))
    np.testing.assert_allclose(COSTS.train_seconds(twice), [1.0, 4.0, 2.0])


def test_on_an_accelerator_the_processor_does_not_matter():
    costs = replace(COSTS, trains_on_accelerator=True)
    fleet = three_clients()
    for seconds in (costs.train_seconds(fleet), *costs.selection_seconds(fleet)):
        assert len(set(seconds.tolist())) == 1
    assert costs.encrypt_seconds(fleet, 20).tolist() == [1.0, 4.0, 2.0]


def test_speedup_is_amdahls():
    np.testing.assert_allclose(speedup([0.5, 1, 2, 4], 0.0), [0.5, 1, 2, 4])
    np.testing.assert_allclose(speedup([0.5, 1, 2, 4], 0.5), [0.5, 1, 1 / 0.75, 1 / 0.625])
    np.testing.assert_allclose(speedup([1, 64], 1.0), 1.0)


@pytest.mark.parametrize("serial", [0.0, 0.2, 1.0])
def test_the_serial_share_is_found_again(serial):
    times = {threads: 3.0 / float(speedup(threads, serial)) for threads in (1, 2, 4, 8)}
    assert serial_share(times) == pytest.approx(serial)


def test_the_serial_share_of_odd_measurements():
    assert serial_share({1: 2.0}) == 0.0
    assert serial_share({1: 2.0, 4: 0.1}) == 0.0  # faster than four times
    assert serial_share({1: 2.0, 4: 9.0}) == 1.0  # slower than with one


PACKED = SchemeProfile("ckks", "speed", 4096, 30_000.0, {1: 2e-4, 2: 1.2e-4}, 1e-5, 3e-4, False)
PROFILE = DeviceProfile(
    machine={"processor": "abacus", "cores": 2},
    schemes=(
        PACKED,
        replace(PACKED, name="paillier-dense", values_per_ciphertext=68, adds_clear_values=True),
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
        {"schemes": (PACKED, PACKED)},
        {"schemes": (replace(PACKED, encrypt_seconds={2: 1.0}),)},
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
