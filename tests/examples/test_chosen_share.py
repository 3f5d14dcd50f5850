"""The example of a method in a package of its own: found by its entry point, it runs and passes the suite."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import shieldfl
from documentation_pages import ROOT, doc

FOLDER = ROOT / "examples" / "chosen_share"
MOST_LINES = 120


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> dict[str, str]:
    """An environment in which the package's metadata are where an installation puts them."""
    pytest.importorskip("opacus")
    site = tmp_path_factory.mktemp("site")
    project = tomllib.loads((FOLDER / "pyproject.toml").read_text())["project"]
    metadata = site / "chosen_share-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    groups = [
        f"[{group}]\n" + "".join(f"{name} = {place}\n" for name, place in entries.items())
        for group, entries in project["entry-points"].items()
    ]
    (metadata / "entry_points.txt").write_text("\n".join(groups))
    package = Path(shieldfl.__file__).parents[1]
    places = (site, FOLDER, package, *filter(None, [os.environ.get("PYTHONPATH")]))
    return os.environ | {"PYTHONPATH": os.pathsep.join(map(str, places)), "COLUMNS": "200"}


def run(installed: dict[str, str], *arguments: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        env=installed,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_is_short():
    assert len((FOLDER / "chosen_share.py").read_text().splitlines()) <= MOST_LINES


def test_the_page_shows_its_entry_point():
    declared = (
        (FOLDER / "pyproject.toml").read_text().partition("[project.entry-points")[2].partition("\n\n")[0]
    )
    assert f"[project.entry-points{declared}" in doc("docs/methods/writing-a-method.md")


def test_the_command_line_names_it(installed, tmp_path):
    assert "chosen-share" in run(installed, "shieldfl", "run", "--help", folder=tmp_path)


def test_it_runs_beside_full_encryption_with_its_own_settings(installed, tmp_path):
    options = (
        "--clients",
        "3",
        "--rounds",
        "1",
        "--local-epochs",
        "1",
        "--model",
        "linear",
        "--threads",
        "1",
    )
    printed = run(
        installed,
        *("shieldfl", "run", "--method", "full-he,chosen-share", "--set", "chosen-share.share=0.5"),
        *(*options, "--json", "result.json"),
        folder=tmp_path,
    )
    assert "chosen-share: ε is ∞ because" in printed
    full, chosen = json.loads((tmp_path / "result.json").read_text())["methods"]
    assert (full["hidden_share"], chosen["hidden_share"]) == (1.0, 0.5)
    assert chosen["settings"]["share"] == 0.5
    assert chosen["aggregator_sees"] == "values outside of the share, and weights"


@pytest.mark.slow
def test_a_program_compares_it_with_published_ones_over_three_seeds(installed):
    program = ROOT / "examples" / "programs" / "own_method.py"
    done = subprocess.run(
        [sys.executable, program], env=installed, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "seeds 0, 1, 2" in done.stdout
    assert done.stdout.count("seed by seed") == 3
    rows = [line.split()[0] for line in done.stdout.splitlines() if " ± " in line]
    assert rows[:4] == ["chosen-share", "fedavg", "full-he", "fedml-he"]


def test_it_passes_the_suite(installed, tmp_path):
    suite = str(FOLDER / "test_chosen_share.py")
    printed = run(installed, "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", suite, folder=tmp_path)
    assert " passed" in printed
    assert "skipped" not in printed
