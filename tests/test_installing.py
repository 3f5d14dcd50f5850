"""Every hint on what to install names what an index has; the authority's image has the versions that are tested."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import shieldfl
from cli.command_line import run_without
from shieldfl.build_info import EXTRAS, extra_of, how_to_install

ROOT = Path(__file__).parents[1]
PACKAGE = Path(shieldfl.__file__).parent
BUILD = tomllib.loads((ROOT / "pyproject.toml").read_text())


def packages_of(extra: str) -> set[str]:
    """Names of everything that an extra installs, those of the extras that it names included."""
    names: set[str] = set()
    for requirement in BUILD["project"]["optional-dependencies"][extra]:
        if others := re.match(r"shieldfl\[([\w,]+)\]", requirement):
            names = names.union(*map(packages_of, others[1].split(",")))
        else:
            names.add(re.match(r"[\w.-]+", requirement)[0].lower())
    return names


@pytest.mark.parametrize("extra", ["lab", "keys"])
def test_a_hint_names_what_the_extra_installs(extra: str):
    assert set(EXTRAS[extra]) == packages_of(extra)


def test_the_laboratory_has_the_name_that_it_had_before_too():
    assert packages_of("simulation") == packages_of("lab")


def test_a_hint_asks_for_the_oldest_version_that_the_extra_takes():
    """An older one is installed on many a machine, and a hint that leaves it there helps nobody."""
    (requirement,) = (
        one for one in BUILD["project"]["optional-dependencies"]["keys"] if one.startswith("cryptography")
    )
    for part in ("keys", "lab"):
        assert f"'{requirement}'" in how_to_install(part)


def test_baselines_are_those_of_the_extras():
    assert set(EXTRAS["tenseal"] + EXTRAS["phe"] + EXTRAS["heu"]) == packages_of("baselines")
    assert set(EXTRAS["flower"]) == packages_of("flower")


def test_every_hint_comes_from_one_place():
    having = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if re.search(r"pip3? install|shieldfl\[", path.read_text())
    }
    assert having == {"build_info.py"}
    assert "shieldfl" not in " ".join(map(how_to_install, EXTRAS))


@pytest.mark.parametrize(
    ("module", "part"),
    [
        ("sklearn.datasets", "lab"),
        ("typer", "lab"),
        ("cryptography", "keys"),
        ("ray", "flower-simulation"),
        ("json", None),
    ],
)
def test_modules_belong_to_parts(module: str, part: str | None):
    assert extra_of(module) == part


def test_what_the_build_runs_is_in_its_environment():
    """An isolated build environment has what pyproject.toml names and nothing else, not even pip."""
    asked = {re.match(r"[\w-]+", one)[0] for one in BUILD["build-system"]["requires"]}
    run = {
        module.partition(".")[0]
        for path in (ROOT / "cmake").glob("*.py")
        for module in re.findall(r"^(?:from|import) ([\w.]+)", path.read_text(), flags=re.MULTILINE)
    }
    assert run - sys.stdlib_module_names == {"pip"}
    assert "pip" in asked


def bare(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line where NumPy alone is installed."""
    return run_without(("typer", "rich", "click", "torch", "sklearn"), *arguments)


def test_a_base_install_says_its_version():
    done = bare("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"shieldfl {shieldfl.__version__}\n", "")


@pytest.mark.parametrize("arguments", [("--help",), (), ("run", "--help")], ids=" ".join)
def test_a_base_install_helps(arguments: tuple[str, ...]):
    done = bare(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert how_to_install("lab") in done.stdout


DEPLOY = ROOT / "examples" / "deploy"
IMAGE = {"python_version": "3.11", "python_full_version": "3.11.9"}


def versions(text: str) -> dict[str, str]:
    return {
        canonicalize_name(name): version for name, version in re.findall(r"^([\w.-]+)==(\S+)", text, re.M)
    }


def needed(requirements: list[str]) -> set[str]:
    """Names of what requirements install on the image's interpreter, and what these need in turn."""
    names: set[str] = set()
    waiting = [(one, "") for one in requirements]
    while waiting:
        text, extra = waiting.pop()
        requirement = Requirement(text)
        name = canonicalize_name(requirement.name)
        if name in names or (
            requirement.marker and not requirement.marker.evaluate(IMAGE | {"extra": extra})
        ):
            continue
        names.add(name)
        waiting += [(one, part) for part in ("", *requirement.extras) for one in requires(name) or ()]
    return names


@pytest.mark.parametrize(
    ("part", "file"), [("authority", "requirements.txt"), ("build-system", "build-requirements.txt")]
)
def test_the_image_has_what_it_needs_in_tested_versions_by_hash(part: str, file: str):
    script = [sys.executable, ROOT / ".ci" / "requirements.py", part]
    asked = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    text = (DEPLOY / file).read_text()
    locked, tested = versions(text), versions((ROOT / "constraints.txt").read_text())
    assert locked.keys() == needed(asked), "run `make locks`"
    assert {name: tested.get(name) for name in locked} == locked, "run `make locks`"
    for entry in re.split(r"\n(?=[^\s#])", text.partition("make locks\n")[2]):
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry), entry


def test_the_image_installs_nothing_without_a_hash():
    text = (DEPLOY / "Containerfile").read_text().replace("\\\n", " ")
    installs = re.findall(r"pip (?:install|wheel)[^&\n]*", text)
    assert len(installs) == 4
    for install in installs:
        assert "--require-hashes --only-binary :all:" in install or "--no-deps" in install
        assert "--require-hashes" in install or "--no-index" in install or "--no-build-isolation" in install
