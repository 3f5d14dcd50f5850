from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shieldfl.fleet.measure.cpu_cgroup import CgroupLimit
from shieldfl.fleet.measure.processor_quota import open_limit
from shieldfl.fleet.measure.processor_time import DutyCycleLimit, MachineLoad, processor_seconds


@pytest.fixture
def spinner() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    yield process
    process.kill()
    process.wait()


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def wait_for(condition) -> None:
    until = time.monotonic() + 30.0
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.002)


def proc_of(tmp_path: Path, mounts: str, groups: str) -> Path:
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "mountinfo").write_text(mounts)
    (proc / "cgroup").write_text(groups)
    return proc


class FakeCgroup(CgroupLimit):
    """On a plain folder, whose files stay when the kernel's would go."""

    def _probe(self) -> None:
        assert self._parent.is_dir()


def test_version_1_is_found_by_its_controller_and_gets_a_quota(tmp_path):
    root = tmp_path / "cpu"
    (root / "own").mkdir(parents=True)
    mounts = (
        f"30 23 0:26 / {tmp_path}/memory rw - cgroup cgroup rw,memory\n"
        f"31 23 0:27 /box {root} rw,nosuid shared:3 - cgroup cgroup rw,cpu,cpuacct\n"
    )
    proc = proc_of(tmp_path, mounts, "4:memory:/elsewhere\n3:cpu,cpuacct:/box/own\n0::/\n")
    limit = FakeCgroup.open(proc)
    assert limit is not None
    assert limit.description == "control groups, version 1"
    limit.limit(4711, 0.25)
    (group,) = (root / "own").iterdir()
    assert group.name == f"shieldfl-{os.getpid()}-4711"
    period, quota = (int((group / f"cpu.cfs_{name}_us").read_text()) for name in ("period", "quota"))
    assert quota == period / 4
    assert (group / "cgroup.procs").read_text() == "4711"
    assert int((group / "cpu.shares").read_text()) > 1024


def test_version_2_gets_a_quota_that_the_kernel_takes(tmp_path):
    root = tmp_path / "unified"
    (root / "user").mkdir(parents=True)
    proc = proc_of(tmp_path, f"31 23 0:27 / {root} rw - cgroup2 cgroup2 rw\n", "0::/user\n")
    limit = FakeCgroup.open(proc)
    assert limit is not None
    assert limit.description == "control groups, version 2"
    for pid, cores in ((1, 0.01), (2, 1.5)):
        limit.limit(pid, cores)
        quota, period = map(
            int, (root / "user" / f"shieldfl-{os.getpid()}-{pid}" / "cpu.max").read_text().split()
        )
        assert quota / period == pytest.approx(cores)
        assert quota >= 1000
        assert period <= 1_000_000


@pytest.mark.parametrize(
    ("mounts", "groups"),
    [
        ("31 23 0:27 / {root} rw - cgroup cgroup rw,cpu\n", "3:memory:/\n"),
        ("31 23 0:27 /other {root} rw - cgroup cgroup rw,cpu\n", "3:cpu:/own\n"),
        ("31 23 0:27 / {root}/none rw - cgroup cgroup rw,cpu\n", "3:cpu:/own\n"),
        ("", "0::/\n"),
    ],
    ids=["no-controller", "not-below-the-mount", "no-folder", "no-mount"],
)
def test_groups_that_cannot_be_had(tmp_path, mounts, groups):
    assert CgroupLimit.open(proc_of(tmp_path, mounts.format(root=tmp_path), groups)) is None
    assert CgroupLimit.open(tmp_path / "nowhere") is None


def test_the_kernels_limit_leaves_nothing_behind(spinner):
    limit = CgroupLimit.open()
    if limit is None:
        pytest.skip("this process may not make control groups")
    limit.limit(spinner.pid, 0.1)
    groups = Path(f"/proc/{spinner.pid}/cgroup").read_text()
    name = f"shieldfl-{os.getpid()}-{spinner.pid}"
    assert name in groups
    spinner.kill()
    spinner.wait()
    limit.release(spinner.pid)
    limit.release(spinner.pid)
    limit.close()
    assert not list(Path("/sys/fs/cgroup").glob(f"**/{name}"))


def test_a_duty_cycle_stops_whoever_is_ahead_and_lets_go_in_the_end(spinner):
    limit = DutyCycleLimit()
    try:
        limit.limit(spinner.pid, 0.05)
        wait_for(lambda: state_of(spinner.pid) == "T")
        wait_for(lambda: state_of(spinner.pid) != "T")
        wait_for(lambda: state_of(spinner.pid) == "T")
    finally:
        limit.close()
    wait_for(lambda: state_of(spinner.pid) == "R")


def test_a_duty_cycle_leaves_processes_alone_that_wait():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    limit = DutyCycleLimit()
    try:
        wait_for(lambda: state_of(process.pid) == "S")
        limit.limit(process.pid, 0.5)
        for _ in range(20):
            time.sleep(0.002)
            assert state_of(process.pid) == "S"
    finally:
        process.communicate(b"\n")
        # It has ended and was waited for: nothing to continue.
        time.sleep(0.01)
        limit.close()


def test_a_stopped_process_that_is_killed_is_forgotten(spinner):
    limit = DutyCycleLimit()
    limit.limit(spinner.pid, 0.01)
    wait_for(lambda: state_of(spinner.pid) == "T")
    spinner.kill()
    assert spinner.wait() == -signal.SIGKILL
    limit.release(spinner.pid)
    limit.close()
    with pytest.raises(OSError, match=r".+"):
        processor_seconds(spinner.pid)


def test_processor_time_is_that_of_the_process():
    before = processor_seconds(os.getpid())
    own = time.process_time()
    sum(range(10**6))
    spent = time.process_time() - own
    assert processor_seconds(os.getpid()) - before >= spent


def test_load_of_others(tmp_path):
    stat = tmp_path / "stat"
    ticks = os.sysconf("SC_CLK_TCK")

    def at(user: int, idle: int, steal: int) -> MachineLoad:
        stat.write_text(f"cpu {user * ticks} 0 0 {idle * ticks} 0 0 0 {steal * ticks} 5 5\ncpu0 1 2\n")
        return MachineLoad.now(stat)

    before, after = at(10, 10, 0), at(15, 13, 2)
    assert (after.busy, after.whole) == (17.0, 30.0)
    assert after.share_of_others(before, own_seconds=3.0) == pytest.approx(0.4)
    assert after.share_of_others(before, own_seconds=100.0) == 0.0
    assert before.share_of_others(before, own_seconds=0.0) == 0.0
    assert MachineLoad.now().busy > 0.0


def test_there_is_always_a_limit():
    limit = open_limit()
    limit.close()
    assert limit.description
