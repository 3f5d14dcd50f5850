"""The example of an attack of one's own: an audit finds it, with the package as if installed, and tries it."""

from __future__ import annotations

import json
import re
import shlex

import pytest

from documentation_pages import ROOT, doc

FOLDER = ROOT / "examples" / "grown_bias"
MOST_LINES = 80


@pytest.fixture(scope="module")
def audited(tmp_path_factory, warm_python, places_of):
    """Run the command of the README, and return what it has written."""
    pytest.importorskip("scipy")
    folder = tmp_path_factory.mktemp("audit")
    places = places_of(FOLDER)
    (command,) = re.findall(r"^shieldfl (.*)$", doc("examples/grown_bias/README.md"), re.MULTILINE)
    words = [*shlex.split(command), "--workers", "1", "--json", "audit.json"]
    code = f"import sys; sys.path[1:1] = {places!r}\nfrom shieldfl.cli.main import main; main()"
    done = warm_python.run(code, words, folder=folder)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
    return json.loads((folder / "audit.json").read_text())


def test_the_package_is_short():
    lines = sum(len(path.read_text().splitlines()) for path in FOLDER.iterdir() if path.is_file())
    assert lines <= MOST_LINES


def test_it_counts_labels_where_updates_are_in_the_clear_alone(audited):
    cells = {(one["method"], one["attack"]): one for one in audited["cells"]}
    assert {attack for _, attack in cells} == {"ilrg", "grown-bias"}
    found = cells["fedavg", "grown-bias"]
    assert found["status"] == "attacked"
    assert found["figure"] > found["chance"] + 0.2
    assert cells["full-he", "grown-bias"]["status"] == "nothing received"
