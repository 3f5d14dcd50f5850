"""Real client processes, few and small; what they take is not tested."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from fleet.measure.measured_methods import SCHEMES, measurable, measured_under
from shieldfl.errors import DataError, ParameterError, RangeError
from shieldfl.fleet.costs.calibration import CalibrationSettings, calibrate
from shieldfl.fleet.fleet_file import parse_fleet
from shieldfl.fleet.measure import client_processes, measured_fleet
from shieldfl.fleet.measure.client_processes import ClientProcesses, ClientTask
from shieldfl.fleet.measure.measured_comparison import compare
from shieldfl.fleet.measure.measured_fleet import MeasureSettings, measure_fleet
from shieldfl.fleet.measure.measured_method import MeasuredMethod
from shieldfl.fleet.measure.processor_time import DutyCycleLimit
from shieldfl.fleet.simulate.round_simulation import STAGES
from shieldfl.methods.discovery import method_class
from shieldfl.methods.masked_average.method import MaskedAverageAggregator
from shieldfl.methods.settings import MethodSettings
from shieldfl.roles.key_authority import KeyAuthority

FLEET = """
[model]
parameters = 3000
train_core_seconds_per_sample = 0.0005
[training]
min_clients = {least}
[[client]]
name = "near"
cores = 1
cpu_share = 0.5
bandwidth = "5 MB/s"
samples = 20
[[client]]
name = "far"
count = 2
cores = 1
cpu_share = 0.25
bandwidth = "2 MB/s"
latency = "5 ms"
samples = 10
dropout = 0.5
"""


@pytest.fixture(scope="module")
def profile():
    return calibrate(
        CalibrationSettings(
            schemes=SCHEMES,
            threads=(1,),
            values=5000,
            seconds=0.0,
            slow_ciphertexts=2,
            key_bits=2048,
            other_sets=False,
        )
    )


@pytest.fixture(autouse=True)
def _short_probes(monkeypatch):
    monkeypatch.setattr("shieldfl.fleet.measure.shared_machine._PROBE_SECONDS", 0.0)


def fleet_with(least: int = 2, far_samples: int = 10):
    return parse_fleet(FLEET.format(least=least).replace("samples = 10\n", f"samples = {far_samples}\n"))


def children() -> list[int]:
    """Processes that this one has started, those included that ended and were not waited for."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            found.append(int(path.parent.name))
    return found


@pytest.fixture(autouse=True)
def _nothing_is_left():
    before = set(children())
    threads = threading.active_count()
    yield
    assert set(children()) <= before
    assert threading.active_count() <= threads
    assert not list(Path("/sys/fs/cgroup").glob(f"*/shieldfl-{os.getpid()}-*"))


def asked(method, scheme="ckks", rounds=1):
    return MeasureSettings((method,), scheme, rounds)


@pytest.mark.parametrize(
    ("scheme", "methods"),
    [
        *(
            pytest.param(one, measured_under(one), id=one, marks=() if one == "kahe" else pytest.mark.slow)
            for one in SCHEMES
        ),
        *(pytest.param(one, measurable(one), id=f"{one}, all", marks=pytest.mark.slow) for one in SCHEMES),
    ],
)
def test_every_method_is_measured_and_compared(profile, scheme, methods):
    told = []
    runs = measure_fleet(
        fleet_with(), profile, MeasureSettings(methods, scheme, 2), on_round=lambda *what: told.append(what)
    )
    assert told == [(method, number) for method in methods for number in range(2)]
    for method, run in zip(methods, runs, strict=True):
        measured = run.measured
        assert measured.plan.method == run.simulated.plan.method == method
        assert not measured.dropped.any()
        assert not measured.failed.any()
        for name in STAGES:
            took = run.simulated.stages[name][0] > 0.0
            assert (measured.stages[name][:, took] > 0.0).all()
        whole = measured.client_seconds + measured.idle + measured.download
        np.testing.assert_allclose(whole, measured.cluster_seconds[:, measured.plan.groups])
        assert (measured.aggregation > 0.0).all()
        assert (measured.opening > 0.0).all() == bool(method_class(method).schemes)
        assert (run.processor_seconds["training"] > 0.0).all()
        assert (run.processor_seconds["steps"] > 0.0).all()
        compared = compare(run)
        assert compared.round is not None
        assert len(compared.client_errors) == 3
        assert abs(compared.largest_error) >= compared.mean_error
        if method in ("fedavg", "full-he"):
            encrypted = 0 if method == "fedavg" else 3000
            assert (measured.plan.values == encrypted).all()
            sent = run.simulated.bytes_up
            np.testing.assert_allclose(measured.bytes_up, np.broadcast_to(sent, (2, 3)), rtol=0.02, atol=500)
            # What the key authority answers, of N numbers of 10 bits, is left out of simulations.
            answer = 6_000 if scheme == "kahe" and method == "full-he" else 0
            np.testing.assert_allclose(
                measured.bytes_down, run.simulated.bytes_down, rtol=0.02, atol=500 + answer
            )


@pytest.mark.slow
def test_a_real_model_is_trained():
    pytest.importorskip("torch")
    settings = CalibrationSettings(
        schemes=("ckks",),
        threads=(1,),
        values=5000,
        seconds=0.0,
        model="linear",
        sample_shape=(4, 4),
        other_sets=False,
    )
    profile = calibrate(settings)
    text = FLEET.format(least=2).replace(
        "parameters = 3000\ntrain_core_seconds_per_sample = 0.0005", 'name = "linear"\nparameters = 170'
    )
    # Two clients will do: each takes seconds to import torch.
    text = text.replace("count = 2", "count = 1")
    (run,) = measure_fleet(parse_fleet(text), profile, asked("mask-crypt"))
    assert (run.measured.stages["train"] > 0.0).all()
    assert set(run.slowdown) == {"train", "encrypt"}
    with pytest.raises(ParameterError, match="training step"):
        measure_fleet(parse_fleet(text.replace("170", "171")), profile, asked("fedavg"))


def kill_in(monkeypatch, stage: str, how_many: int) -> None:
    """Kill the last clients as soon as any has ended a stage: the near one, where the far ones have more to do."""
    entered = ClientProcesses.__enter__

    def enter(self):
        entered(self)
        victims = self.pids[-how_many:]
        next_letter = self.next_letter

        def watched(until):
            found = next_letter(until)
            if found and found.letter and found.letter.facts.get("name") == stage:
                for pid in victims:
                    if pid in children():
                        os.kill(pid, signal.SIGKILL)
            return found

        self.next_letter = watched
        return self

    monkeypatch.setattr(ClientProcesses, "__enter__", enter)


def test_a_client_that_is_killed_has_dropped_out_and_the_others_go_on(profile, monkeypatch):
    kill_in(monkeypatch, "training", 1)
    (run,) = measure_fleet(fleet_with(far_samples=1000), profile, asked("full-he", rounds=2))
    measured = run.measured
    assert measured.dropped.tolist() == [[False, False, True]] * 2
    assert not measured.failed.any()
    assert measured.download[0, 2] == measured.bytes_up[0, 2] == 0.0
    assert measured.client_seconds[1, 2] == 0.0
    compared = compare(run)
    assert compared.round is None
    assert [one.rounds for one in compared.clients] == [2, 2, 0]
    assert compared.clients[2].until_update is None


def test_too_few_clients_are_a_failed_round_and_no_error(profile, monkeypatch):
    kill_in(monkeypatch, "training", 2)
    (run,) = measure_fleet(fleet_with(2, 500), profile, asked("full-he", "paillier-dense", rounds=2))
    assert run.measured.failed.all()
    assert run.measured.dropped[:, 1:].all()
    assert (run.measured.opening == 0.0).all()
    assert (run.measured.bytes_down == 0.0).all()


def test_who_is_not_done_in_time_is_ended(profile, monkeypatch):
    monkeypatch.setattr(measured_fleet, "_LEAST_PATIENCE_SECONDS", 0.5)
    monkeypatch.setattr(measured_fleet, "_PATIENCE", 0.0)
    (run,) = measure_fleet(fleet_with(1, 100_000), profile, asked("fedavg"))
    assert run.measured.dropped.tolist() == [[False, True, True]]


@pytest.mark.every_run("KeyboardInterrupt")
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_whatever_happens_everything_ends(profile, error):
    def fail(method: str, number: int) -> None:
        if number:
            raise error

    with pytest.raises(error):
        measure_fleet(fleet_with(), profile, asked("fedavg", rounds=2), on_round=fail)


@pytest.fixture
def _heeds_interrupts():
    # A shell starts what runs in the background with interrupts ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_heeds_interrupts")
def test_an_interrupt_in_the_middle_of_a_round(profile):
    def interrupt(method: str, number: int) -> None:
        threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()

    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        measure_fleet(fleet_with(1, 100_000), profile, asked("fedavg"), on_round=interrupt)
    assert time.monotonic() - begin < 60.0  # training alone would take 200 s


def test_without_control_groups_processes_are_stopped_and_continued(profile, monkeypatch):
    monkeypatch.setattr(client_processes, "open_limit", DutyCycleLimit)
    (run,) = measure_fleet(fleet_with(), profile, asked("fedavg"))
    assert run.limit == "stopping and continuing processes"
    assert not run.measured.dropped.any()


def test_a_client_that_cannot_start(profile, monkeypatch, tmp_path):
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho no such thing >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(client_processes.sys, "executable", str(program))
    with pytest.raises(DataError, match=r"client '.*' ended while it started: no such"):
        measure_fleet(fleet_with(), profile, asked("fedavg"))


def test_a_sum_that_was_opened_wrongly_is_an_error(profile, monkeypatch):
    opened = KeyAuthority.open_mean

    def open_wrongly(self, total, **named):
        mean = opened(self, total, **named)
        mean[7] += 2.0**-20
        return mean

    monkeypatch.setattr(KeyAuthority, "open_mean", open_wrongly)
    with pytest.raises(RangeError, match="opened wrongly"):
        measure_fleet(fleet_with(), profile, asked("full-he"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rounds": 0}, "rounds"),
        ({"scheme": "paillier-dense-pooled"}, "scheme must be one of ckks, kahe"),
        ({"scheme": "paillier-single"}, "was not measured"),
        ({"methods": ("magic",)}, "unknown method"),
        ({"methods": ("batch-crypt",)}, "encrypts by paillier-dense, not by ckks"),
        ({"methods": ("dp-sgd",)}, "name a model"),
        ({"methods": ("top-2",)}, "last layer"),
        ({"methods": ("alt-fl-si-he",)}, "synthetic data"),
    ],
)
def test_what_cannot_be_measured(profile, changes, said):
    given = {"methods": ("fedavg",), "scheme": "ckks", "rounds": 1} | changes
    with pytest.raises(ParameterError, match=said):
        measure_fleet(fleet_with(), profile, MeasureSettings(**given))


def test_a_foreign_setting(profile):
    text = profile.to_json()
    text["schemes"][[one["name"] for one in text["schemes"]].index("ckks")]["setting"] = "made up"
    with pytest.raises(ParameterError, match="other parameters"):
        measure_fleet(fleet_with(), type(profile).from_json(text), asked("fedavg"))


def test_a_client_whose_update_is_refused_has_dropped_out_of_the_round(profile, monkeypatch):
    receive = MaskedAverageAggregator.receive

    def refuse(self, phase, client, message):
        if client == 1:
            raise RangeError("too large")
        receive(self, phase, client, message)

    monkeypatch.setattr(MaskedAverageAggregator, "receive", refuse)
    (run,) = measure_fleet(fleet_with(), profile, asked("full-he", rounds=2))
    assert run.measured.dropped.tolist() == [[False, True, False]] * 2
    assert not run.measured.failed.any()
    assert (run.measured.bytes_down[:, 1] == 0.0).all()


def test_a_simulation_is_of_a_methods_own_ciphertexts(profile):
    task = ClientTask(0, "ckks", 1, 10, 1, 1e6, 0.0, seed=0, train_core_seconds=0.0)
    calibrated = profile.cost_model("ckks").scheme
    made = {
        name: MeasuredMethod(name, MethodSettings(), fleet_with(), task, 1)
        for name in ("fedavg", "mask-crypt")
    }
    assert made["fedavg"].costs(calibrated) == calibrated
    own = made["mask-crypt"].costs(calibrated)
    assert own.ciphertext_bytes != calibrated.ciphertext_bytes
    longer = own.ciphertext_bytes / calibrated.ciphertext_bytes
    for figure in ("encrypt_seconds", "add_seconds", "open_seconds"):
        assert getattr(own, figure) == pytest.approx(longer * getattr(calibrated, figure))
