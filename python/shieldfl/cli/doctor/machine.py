"""What is installed and what it runs on: versions, packages, instruction sets, memory; what of it to know."""

from __future__ import annotations

import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from shieldfl.build_info import EXTRAS, build_info, how_to_install, instruction_sets_of, processor_name

_VARIABLE = "SHIELDFL_SIMD"
# As Linux calls what the core asks the processor for.
_FLAGS = {
    "neon": "asimd crc32",
    "avx2": "avx2 fma bmi1 bmi2 popcnt pclmulqdq sse4_2",
    "avx512": "avx512f avx512dq avx512bw avx512vl avx512ifma avx512vbmi avx512_vbmi2 avx512_vpopcntdq",
}
_LITTLE_MEMORY = 2**30
_TRY_SECONDS = 30.0


@dataclass(frozen=True)
class InstructionSets:
    """Which sets there are, which one is used, and what the environment says of it."""

    machine: tuple[str, ...]
    """That the processor and the operating system have."""
    core: tuple[str, ...]
    """That the core was compiled for."""
    in_use: str
    forced: str = ""
    """What SHIELDFL_SIMD says; empty where it says nothing."""
    error: str = ""
    """Why what it says cannot be had."""

    @property
    def usable(self) -> tuple[str, ...]:
        """Those that machine and core have, and the one that is in use."""
        return tuple(name for name in self.core if name == self.in_use or name in self.machine)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self) | {"forced": self.forced or None, "error": self.error or None}


def installation() -> dict[str, Any]:
    """Return versions and machine facts as plain JSON types: nothing that names the machine or its user."""
    facts = build_info()
    return {
        "shieldfl": facts["version"],
        "seal": facts["seal_version"],
        "gmp": facts["gmp_version"],
        "paillier_engine": facts["paillier_engine"],
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "numpy": np.__version__,
        "platform": platform.platform(),
        "processor": processor_name(),
        "cores": facts["threads"],
        "memory_bytes": _memory_bytes(),
        "memory_limit_bytes": _memory_limit(),
    }


def instruction_sets() -> InstructionSets:
    """Return which sets there are, and which is chosen."""
    in_use = build_info()["instruction_set"]
    forced = os.environ.get(_VARIABLE, "")
    core = instruction_sets_of(platform.machine())
    # The core was loaded with another value, or with none.
    error = _refusal() if forced not in {"", in_use} else ""
    return InstructionSets(_sets_of(core, _processor_flags(), in_use), core, in_use, forced, error)


def _sets_of(core: tuple[str, ...], flags: frozenset[str], in_use: str) -> tuple[str, ...]:
    """Return which sets of the core a processor with these flags has, those that are certainly there among them."""
    found = core.index(in_use)
    for number, name in enumerate(core[1:], start=1):
        if not flags.issuperset(_FLAGS[name].split()):
            break
        found = max(found, number)
    return core[: found + 1]


def _processor_flags() -> frozenset[str]:
    for line in _text_of("/proc/cpuinfo").splitlines():
        if line.startswith(("flags", "Features")):  # of x86-64, of ARM
            return frozenset(line.partition(":")[2].split())
    return frozenset()


def _refusal() -> str:
    """Return what a new process says of the environment as it is; empty where it takes it."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", "import shieldfl"],
            capture_output=True,
            text=True,
            timeout=_TRY_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"no other process can be asked: {error}"
    if done.returncode == 0:
        return ""
    last = (done.stderr.strip().splitlines() or ["it ends without a word"])[-1]
    return last.partition("ParameterError: ")[2] or last


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def _memory_limit() -> int | None:
    """Return what a container, or a control group, lets a process have; None where that is all there is."""
    own = _text_of("/proc/self/cgroup").strip().splitlines()
    folders = [line.split(":", 2)[2] for line in own if line.startswith("0::")]
    places = [
        *(f"/sys/fs/cgroup{folder.rstrip('/')}/memory.max" for folder in folders),
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ]
    limits = [int(text) for text in (_text_of(place).strip() for place in places) if text.isdigit()]
    memory = _memory_bytes()
    # Where there is no limit, older kernels give one beyond all memory.
    real = [limit for limit in limits if memory is None or limit < memory]
    return min(real, default=None)


def _text_of(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


def warnings_of(facts: dict[str, Any], sets: InstructionSets) -> list[str]:
    """Return what makes work slow or may end it, in sentences; nothing of it keeps shieldfl from working."""
    found = []
    if sets.machine == sets.core[:1]:
        lacking = sets.core[1].upper() if len(sets.core) > 1 else "instruction set that the core knows"
        found.append(f"This processor has no {lacking}: encryption works, and takes several times as long.")
    elif sets.forced and not sets.error and sets.in_use != sets.usable[-1]:
        found.append(f"{_VARIABLE} keeps the core to {sets.in_use}: {sets.usable[-1]} would be faster.")
    if facts["cores"] < 2:
        found.append("There is one core to use: nothing runs beside anything else.")
    limit = facts["memory_limit_bytes"] or facts["memory_bytes"]
    if limit is not None and limit < _LITTLE_MEMORY:
        found.append(f"There are {limit / 2**20:,.0f} MiB of memory: training in PyTorch may need more.")
    try:
        with tempfile.TemporaryFile():
            pass
    except OSError as error:
        found.append(f"Temporary files cannot be written ({error.strerror or error}): set TMPDIR.")
    return found


@dataclass(frozen=True)
class Part:
    """A part of the library that needs packages of its own."""

    name: str
    installed: dict[str, str]
    """Versions, by package; those that are too old are among them."""
    missing: tuple[str, ...]
    """Packages that are not there, or too old."""
    install: str
    """What to type for these; empty where nothing is missing."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "part": self.name,
            "installed": self.installed,
            "missing": list(self.missing),
            "install": self.install or None,
        }


def parts() -> list[Part]:
    """Return all parts, with what is installed for each, by what is known of packages without importing any."""
    return [_part(name) for name in EXTRAS]


def _part(name: str) -> Part:
    # Of the command that installs all of the part, what is there already is left out.
    pip, command, *requirements = shlex.split(how_to_install(name))
    installed: dict[str, str] = {}
    wanted: dict[str, str] = {}
    for requirement in requirements:
        package, _, least = requirement.partition(">=")
        with suppress(PackageNotFoundError):
            installed[package] = version(package)
        if package not in installed or _numbers(installed[package]) < _numbers(least):
            wanted[package] = requirement
    install = shlex.join([pip, command, *wanted.values()]) if wanted else ""
    return Part(name, installed, tuple(wanted), install)


def _numbers(text: str) -> tuple[int, ...]:
    """Return the numbers that a version begins with."""
    return tuple(int(number) for number in re.match(r"[\d.]*", text)[0].split(".") if number)  # type: ignore[index]
