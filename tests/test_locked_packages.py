"""The key authority's image has the versions that the project is tested with, each by its hash."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
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
