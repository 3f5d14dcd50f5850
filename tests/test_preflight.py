"""What the system must have is checked before anything is downloaded."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
APT = "apt install git g++ make python3-venv python3-dev libgmp-dev"
ARM_TOOLS = ("aarch64-linux-gnu-g++", "qemu-aarch64")
ARM_APT = (
    "dpkg --add-architecture arm64 && apt update && "
    "apt install g++-aarch64-linux-gnu qemu-user libgmp-dev:arm64"
)

# A stand-in for the compiler: it has GMP's header, or not. One for Python: it lacks what $LACKS names.
COMPILER = '#!/bin/sh\ncase "$*" in *-fsyntax-only*) exit ${NO_GMP:-0};; esac\nexit 0\n'
PYTHON = '#!/bin/sh\ncase "$2" in *"$LACKS"*) exit 1;; esac\nexit 0\n'


@pytest.fixture
def system(tmp_path: Path) -> Path:
    for name, text in (("c++", COMPILER), ("python3", PYTHON), *((tool, COMPILER) for tool in ARM_TOOLS)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return tmp_path


def preflight(
    system: Path, script: str = "preflight.sh", **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", ROOT / "cmake" / script],
        env={"PATH": str(system), "LACKS": "nothing"} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_system_that_has_everything(system: Path):
    done = preflight(system)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("lack", "said"),
    [
        ({"LACKS": "ensurepip"}, "Python's venv with ensurepip"),
        ({"LACKS": "Python.h"}, "Python's header Python.h"),
        ({"LACKS": "version_info"}, "Python 3.11 or newer (python3)"),
        ({"PYTHON": "python9"}, "Python 3.11 or newer (python9)"),
        ({"NO_GMP": "1"}, "GMP's header gmp.h"),
        ({"CXX": "no-such-compiler"}, "a C++ compiler (no-such-compiler)"),
    ],
)
def test_what_is_missing_is_named_with_the_line_that_installs_it(
    system: Path, lack: dict[str, str], said: str
):
    done = preflight(system, **lack)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"shieldfl cannot be built, for want of: {said}\nOn Debian 12: {APT}\n"


def test_the_readme_has_the_same_line_and_make_asks_first():
    assert APT in (ROOT / "README.md").read_text()
    first, second, *_ = (ROOT / "Makefile").read_text().partition("$(VENV)/tools:")[2].splitlines()[1:]
    assert "preflight.sh" in first
    assert second.endswith("$(PYTHON) -m venv $(VENV)")


@pytest.mark.parametrize(
    ("removed", "no_gmp", "said"),
    [
        ((), "1", "GMP for arm64"),
        (ARM_TOOLS, "0", "the compiler aarch64-linux-gnu-g++, qemu-aarch64"),
    ],
)
def test_what_is_missing_for_arm_is_named_in_one_sentence(
    system: Path, removed: tuple[str, ...], no_gmp: str, said: str
):
    for name in removed:
        (system / name).unlink()
    done = preflight(system, "preflight_aarch64.sh", NO_GMP=no_gmp)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"make test-aarch64 lacks {said}: on Debian 12, {ARM_APT}\n"
