"""bench/measured_fleet.py runs real client processes beside the simulation; what they take is not tested."""

from __future__ import annotations

import os
import signal

import pytest

pytest.importorskip("torch")

import measured_fleet as script
from shieldfl.encryption.registry import DEFAULT_ENCRYPTION
from shieldfl.lab.fleet.calibration import CalibrationSettings, calibrate
from shieldfl.lab.fleet.fleet import parse_fleet

FLEET = """
[model]
name = "linear"
parameters = 170
[training]
min_clients = 2
[[client]]
name = "near"
cores = 1
cpu_share = 0.5
bandwidth = "5 MB/s"
samples = 20
[[client]]
name = "far"
cores = 1
cpu_share = 0.25
bandwidth = "2 MB/s"
latency = "5 ms"
samples = 10
dropout = 0.5
"""


@pytest.fixture(scope="module")
def profile():
    shape = {"model": "linear", "sample_shape": (4, 4)}
    return calibrate(
        CalibrationSettings(schemes=(DEFAULT_ENCRYPTION,), threads=(1,), values=5000, seconds=0.0, **shape)
    )


@pytest.mark.parametrize(
    ("method", "encrypted"), [("full-he", 170), pytest.param("mask-crypt", None, marks=pytest.mark.slow)]
)
def test_rounds_are_measured_and_simulated(profile, method, encrypted):
    measured = script.measure_method(method, parse_fleet(FLEET), profile, DEFAULT_ENCRYPTION, 2, 0.0)
    if encrypted is not None:
        assert measured.simulated.plan.values.tolist() == [encrypted, encrypted]
    facts = measured.to_json()
    assert [one["client"] for one in facts["clients"]] == ["near", "far"]
    for one in (facts["round"], *(client["until_update"] for client in facts["clients"])):
        assert len(one["measured"]) == 2
        assert min(one["measured"]) > 0.0 < one["simulated"]
    far = facts["clients"][1]
    assert min(far["upload"]["measured"]) >= 0.005 <= far["upload"]["simulated"]
    script.print_measured(measured)


def test_a_process_gets_its_share():
    """A process that wants all of a core gets half of one."""
    pid = os.fork()
    if pid == 0:
        while True:
            pass
    try:
        begin = script._processor_seconds(pid)
        with script.limited([pid], [0.5]):
            script.time.sleep(1.0)
        assert script._processor_seconds(pid) - begin < 0.7
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_client_that_ends_ends_the_run_and_leaves_no_process(profile, monkeypatch):
    started = []

    class Killed(script.Clients):
        def end_round(self, *arguments):
            started.extend(self.pids)
            os.kill(self.pids[0], signal.SIGKILL)
            super().end_round(*arguments)

    monkeypatch.setattr(script, "Clients", Killed)
    with pytest.raises((RuntimeError, OSError)):
        script.measure_method("fedavg", parse_fleet(FLEET), profile, DEFAULT_ENCRYPTION, 1, 0.0)
    for pid in started:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
