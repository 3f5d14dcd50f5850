"""Processor limits by the kernel: control groups, of either version."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["CgroupLimit"]

_PERIOD_SECONDS = 0.02
# The kernel refuses less; twice that leaves room for rounding.
_LEAST_QUOTA_SECONDS = 0.002
_MICROSECONDS = 1_000_000
# What a client is given it shall get: of a busy core its group gets sixteen times as much as another program does.
_SHARES, _WEIGHT = 16 * 1024, 16 * 100
_AFTER_OPTIONAL_FIELDS = " - "


class CgroupLimit:
    """Puts each process into a control group of its own, below that of this process.

    Periods are short, so that what is left of one does not show in a stage of a fraction of a second.
    """

    def __init__(self, parent: Path, version: int) -> None:
        self._parent = parent
        self._version = version
        self._groups: dict[int, Path] = {}

    @classmethod
    def open(cls, proc: Path = Path("/proc/self")) -> CgroupLimit | None:
        """Find this process's group and try it; None where no group can be made below it or be given a quota."""
        for parent, version in _own_groups(proc):
            limit = cls(parent, version)
            try:
                limit._probe()
            except OSError:
                continue
            return limit
        return None

    @property
    def description(self) -> str:
        """What limits the clients."""
        return f"control groups, version {self._version}"

    def limit(self, pid: int, cores: float) -> None:
        """Let a process use so many cores from now on. Raises OSError."""
        group = self._parent / f"shieldfl-{os.getpid()}-{pid}"
        group.mkdir()
        self._groups[pid] = group
        self._write_quota(group, cores)
        (group / "cgroup.procs").write_text(str(pid))

    def release(self, pid: int) -> None:
        """Forget a process that has ended and been waited for."""
        group = self._groups.pop(pid, None)
        if group is not None:
            group.rmdir()

    def close(self) -> None:
        """Nothing is left once every process was released."""

    def _probe(self) -> None:
        group = self._parent / f"shieldfl-{os.getpid()}-probe"
        group.mkdir()
        try:
            self._write_quota(group, 1.0)
        finally:
            group.rmdir()

    def _write_quota(self, group: Path, cores: float) -> None:
        period = max(_PERIOD_SECONDS, _LEAST_QUOTA_SECONDS / cores)
        microseconds = round(period * cores * _MICROSECONDS)
        whole = round(period * _MICROSECONDS)
        if self._version == 1:
            (group / "cpu.cfs_period_us").write_text(str(whole))
            (group / "cpu.cfs_quota_us").write_text(str(microseconds))
            (group / "cpu.shares").write_text(str(_SHARES))
        else:
            (group / "cpu.max").write_text(f"{microseconds} {whole}")
            (group / "cpu.weight").write_text(str(_WEIGHT))


def _own_groups(proc: Path) -> list[tuple[Path, int]]:
    """Return the folders of this process's groups that may have the processor's controller, version 1 first."""
    try:
        mounts = (proc / "mountinfo").read_text(encoding="utf-8").splitlines()
        memberships = (proc / "cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    paths: dict[int, str] = {}
    for line in memberships:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            paths[2] = path
        elif "cpu" in controllers.split(","):
            paths[1] = path
    found = []
    for line in mounts:
        fields, _, rest = line.partition(_AFTER_OPTIONAL_FIELDS)
        root, mount_point = fields.split()[3:5]
        kind, _, options = rest.split(" ", 2)
        version = {"cgroup": 1, "cgroup2": 2}.get(kind, 0)
        if version not in paths or (version == 1 and "cpu" not in options.split(",")):
            continue
        own = Path(paths[version])
        if own.is_relative_to(root):
            found.append((Path(mount_point) / own.relative_to(root), version))
    return sorted(found, key=lambda pair: pair[1])
