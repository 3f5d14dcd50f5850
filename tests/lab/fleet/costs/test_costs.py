"""What steps cost, by hand and as measured, and profiles of machines."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import shieldfl as sf
import shieldfl._core as _core
from encryption.paillier_keys import authority_for
from lab.fleet.fleets import COSTS, SCHEME, client, fleet_of, three_clients
from shieldfl.authority.key_authority import SumKeyAuthority
from shieldfl.encryption.registry import calibrations
from shieldfl.errors import DataError, ParameterError
from shieldfl.lab.fleet import calibration
from shieldfl.lab.fleet.calibration import CalibrationSettings, calibrate, measure_schemes, scheme_parameters
from shieldfl.lab.fleet.cost_source import (
    DeviceProfile,
    ModelProfile,
    SchemeProfile,
    load_profile,
    serial_share,
    speedup,
)
from shieldfl.lab.fleet.fleet import parse_fleet
from shieldfl.lab.fleet.round_simulation import simulate
from shieldfl.learning import local_update


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


TINY = {"values": 5000, "seconds": 0.0, "slow_ciphertexts": 2, "key_bits": 2048, "threads": (1, 2)}


def authority(parameters, **options):
    """Of Paillier with a key that is at hand: the search for one takes seconds, and is measured by nothing here."""
    if isinstance(parameters, sf.paillier.Parameters):
        assert options == {"min_clients": 2, "one_total_per_round": False, "threads": 1}
        return authority_for(parameters)
    return sf.KeyAuthority(parameters, **options)


def measured(*schemes):
    settings = CalibrationSettings(**(TINY | {"slow_ciphertexts": 1, "threads": (1,)}), schemes=schemes)
    return measure_schemes(np.full(100, 0.25, dtype=np.float32), settings)


@pytest.fixture(scope="module")
def profile():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibration, "KeyAuthority", authority)
        return calibrate(CalibrationSettings(**TINY))


def test_every_scheme_is_measured(profile, tmp_path):
    assert profile.scheme_names == calibrations()
    assert profile.model is None
    # What was measured, and not where.
    machine = "date processor cores instruction_set shieldfl numpy python"
    assert set(profile.machine) == set(machine.split())
    assert all("Parameters(" in scheme.setting for scheme in profile.schemes)
    assert all(set(scheme.encrypt_seconds) == {1, 2} for scheme in profile.schemes)
    by_name = {scheme.name: scheme for scheme in profile.schemes}
    assert by_name["paillier-single"].values_per_ciphertext == 1
    assert by_name["paillier-single"].ciphertext_bytes == 512
    assert by_name["paillier-dense"].values_per_ciphertext > 50
    assert by_name["ckks"].values_per_ciphertext >= 2048
    assert by_name["kahe"].ciphertext_bytes < by_name["ckks"].ciphertext_bytes
    assert [scheme.name for scheme in profile.schemes if not scheme.adds_clear_values] == [
        "ckks",
        "kahe",
        "pads",
    ]
    assert [one.name for one in profile.schemes if one.clients_open] == ["kahe", "pads"]
    answered = {one.name for one in profile.schemes if one.answer_seconds or one.answer_seconds_per_client}
    assert answered == {"kahe", "pads"}
    assert [one.name for one in profile.schemes if one.pool_seconds] == [
        name for name in calibrations() if name.endswith("-pooled")
    ]
    profile.save(tmp_path / "profile.json")
    assert load_profile(tmp_path / "profile.json") == profile


def test_a_measured_profile_drives_a_simulation(profile):
    fleet = parse_fleet(
        """
        [model]
        parameters = 10000
        train_core_seconds_per_sample = 0.001
        [[client]]
        count = 3
        cores = 2
        bandwidth = "10 MB/s"
        samples = 100
        """
    )
    for name in profile.scheme_names:
        rounds = simulate("sense-crypt", fleet, profile.cost_model(name))
        assert (rounds.stages["encrypt"] > 0.0).all()


def test_a_training_step_is_measured():
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    steps: list[str] = []
    settings = CalibrationSettings(
        **(TINY | {"threads": (1,)}), schemes=("ckks",), model="linear", sample_shape=(4, 4), batch_size=8
    )
    model = calibrate(settings, steps.append).model
    assert steps == ["score and select", "ckks", "training linear"]
    assert model is not None
    assert (model.name, model.sample_shape, model.parameters) == ("linear", (4, 4), 170)
    assert model.train_seconds_per_sample[1] > 0.0
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"sample_shape": (3, 3)}, "simple-cnn needs images"), ({"classes": 1}, "classes must be at least 2")],
)
def test_a_model_that_cannot_be_is_refused_before_anything_is_measured(changes, said):
    pytest.importorskip("torch")
    steps: list[str] = []
    settings = CalibrationSettings(**TINY, schemes=("ckks",), model="simple-cnn", **changes)
    with pytest.raises(sf.ParameterError, match=said):
        calibrate(settings, steps.append)
    assert steps == []


def test_what_differs_only_in_its_pool_is_measured_under_one_key(monkeypatch):
    asked = []

    def count(parameters, **options):
        asked.append(parameters)
        return authority(parameters, **options)

    monkeypatch.setattr(calibration, "KeyAuthority", count)
    names = ("paillier-dense", "paillier-dense-pooled")
    assert [one.name for one in measured(*names)] == list(names)
    assert asked == [scheme_parameters("paillier-dense", 2048)]


def test_each_repetition_of_an_answer_is_a_round_whose_list_was_not_answered(monkeypatch):
    """An authority gives a list that comes again the answer that it gave before, which takes no time."""
    asked: list[tuple[int, int]] = []
    answer = SumKeyAuthority.sum_key

    def noted(self, request):
        read = _core.KaheSumRequest.from_bytes(request)
        asked.append((read.round, len(read.participants)))
        return answer(self, request)

    monkeypatch.setattr(SumKeyAuthority, "sum_key", noted)
    (one,) = measured("kahe")
    rounds = [number for number, _ in asked]
    assert len(set(rounds)) == len(rounds) > 2 * 3
    assert len({clients for _, clients in asked}) == 2
    assert one.open_seconds > 0.0
    assert one.answer_seconds + one.answer_seconds_per_client > 0.0


def test_a_fast_machine_repeats_more_often_than_a_sum_has_room(monkeypatch):
    """As many repetitions as fill two sums, and so any smaller number of them."""
    monkeypatch.setattr(local_update, "_FEWEST", 2 * scheme_parameters("ckks", 2048).max_clients + 1)
    (one,) = measured("ckks")
    assert one.add_seconds > 0.0


def test_the_median_leaves_out_preparation_and_the_first_time(monkeypatch):
    now = [0.0]
    steps = iter([100.0, 3.0, 1.0, 2.0, 9.0, 9.0])
    for clock in ("perf_counter", "process_time"):
        monkeypatch.setattr(local_update.time, clock, lambda: now[0])

    def spend(seconds: float) -> None:
        now[0] += seconds

    assert local_update.median_seconds(lambda: spend(next(steps)), 0.0, lambda: spend(1000.0)) == 2.0
    assert next(steps) == 9.0  # four were enough


def test_the_median_is_of_as_many_times_as_there_is_time_for(monkeypatch):
    now = [0.0]
    for clock in ("perf_counter", "process_time"):
        monkeypatch.setattr(local_update.time, clock, lambda: now[0])
    count = [0]

    def step() -> None:
        count[0] += 1
        now[0] += 1.0

    assert local_update.median_seconds(step, 10.0) == 1.0
    assert count == [10]


def test_other_programs_do_not_slow_a_step_of_one_thread(monkeypatch):
    monkeypatch.setattr(local_update.time, "process_time", iter(range(100)).__next__)
    monkeypatch.setattr(local_update.time, "perf_counter", iter(range(0, 1000, 10)).__next__)
    assert local_update.median_seconds(lambda: None, 0.0) == 1.0
    assert local_update.median_seconds(lambda: None, 0.0, threads=2) == 10.0
