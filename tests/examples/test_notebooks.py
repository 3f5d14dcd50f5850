"""The notebooks under examples/notebooks are kept without outputs, and run from top to bottom."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

import shieldfl
from documentation_pages import ROOT, doc

FOLDER = ROOT / "examples" / "notebooks"
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))
# A line of what each prints: of a table, which rich would show beside the text where it finds a notebook.
LINES = {
    "accuracy_over_epsilon.ipynb": r"ddp-fedavg +ε = 16 +\d\d\.\d\d%",
    "first_encrypted_sum.ipynb": r"ckks +\d\.\d\d bytes for each of 10,000 values",
    "compare_methods.ipynb": r"full-he +\d\d\.\d\d % ± .* kB ± .*",
}
SECONDS_FOR_A_CELL = 600


def code_cells(notebook: dict) -> list[dict]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_the_page_has_every_notebook():
    assert set(NOTEBOOKS) == LINES.keys()
    page = doc("examples/notebooks/README.md")
    assert all(f"[{name}]({name})" in page for name in NOTEBOOKS)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_begins_with_a_picture_and_is_kept_without_outputs(name):
    text = (FOLDER / name).read_text(encoding="utf-8")
    notebook = json.loads(text)
    picture = re.match(r"# .+\n\n!\[[^\]]+\]\((.+?)\)\n", notebook["cells"][0]["source"])[1]
    assert (FOLDER / picture).is_file()
    for cell in code_cells(notebook):
        assert cell["outputs"] == []
        assert cell["execution_count"] is None
    assert notebook["metadata"].keys() == {"kernelspec", "language_info"}
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of the packages that run notebooks, whose warnings are not ours
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs(name, tmp_path, monkeypatch):
    pytest.importorskip("opacus")
    pytest.importorskip("ipykernel")
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    places = (str(Path(shieldfl.__file__).parents[1]), os.environ.get("PYTHONPATH"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, places)))
    for place in ("HOME", "IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(place, str(tmp_path))

    notebook = nbformat.read(FOLDER / name, as_version=4)
    nbformat.validate(notebook)
    client = nbclient.NotebookClient(
        notebook,
        timeout=SECONDS_FOR_A_CELL,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    )
    client.execute()  # raises where a cell fails

    cells = code_cells(notebook)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    warned = [output["text"] for output in outputs if output.get("name") == "stderr"]
    assert warned == []
    printed = "".join(output["text"] for output in outputs if output.get("name") == "stdout")
    assert re.search(rf"^{LINES[name]}$", printed, re.MULTILINE), printed
    pictures = [output["data"] for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) == 1
    assert all(len(picture["image/png"]) > 5_000 for picture in pictures)
