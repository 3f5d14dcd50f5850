from __future__ import annotations

import numpy as np
import pytest

import shieldfl as sf
import shieldfl._core as _core
from encryption.paillier_keys import authority_for
from shieldfl.authority.key_authority import SumKeyAuthority
from shieldfl.encryption.registry import calibrations
from shieldfl.lab.fleet import calibration
from shieldfl.lab.fleet.calibration import (
    CalibrationSettings,
    calibrate,
    measure_schemes,
    scheme_parameters,
)
from shieldfl.lab.fleet.cost_source import load_profile
from shieldfl.lab.fleet.fleet import parse_fleet
from shieldfl.lab.fleet.round_simulation import simulate
from shieldfl.learning import local_update

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
