"""The Markdown tables that documentation pages get of a run's JSON file."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from lab.simulation.small_runs import run_methods
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.lab.simulation.papers import PaperFigure, compare_figures
from shieldfl.methods.settings import MethodSettings

SCRIPT = Path(__file__).parents[3] / "bench" / "experiments" / "markdown_table.py"
PAPERS = (
    PaperFigure("its table 1", "fedavg", "accuracy", (0.25, 0.63), note="a | b"),
    PaperFigure("its abstract", "dict-pfl", "bytes_up", (2.0,), against="fedavg"),
)


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    specification = importlib.util.spec_from_file_location("markdown_table", SCRIPT)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def run() -> dict[str, object]:
    config = RunConfig(model="mlp", clients=3, rounds=3, local_epochs=1, alpha=float("inf"))
    settings = MethodSettings().changed("dict-pfl", {"patience_rounds": 1})
    result = run_methods(config, ["fedavg", "dict-pfl"], settings)
    compared = compare_figures(result, PAPERS)
    return json.loads(json.dumps(result.to_json() | {"paper": [figure.to_json() for figure in compared]}))


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.replace(r"\|", "¦").strip("|").split("|")]


def test_every_method_has_a_line_with_its_own_figures(tables: ModuleType, run: dict[str, object]) -> None:
    lines = tables.report(run).splitlines()
    header = next(index for index, line in enumerate(lines) if line.startswith("| method | accuracy"))
    assert set(cells(lines[header + 1])) == {"---"}
    for method, line in zip(run["methods"], lines[header + 2 :], strict=False):
        row = dict(zip(cells(lines[header]), cells(line), strict=True))
        assert row["method"] == f"`{method['method']}`"
        assert row["accuracy"] == f"{100 * method['rounds'][-1]['accuracy']:.2f} %"
        assert row["trained"] == f"{method['parameters']:,}"
    assert cells(lines[header + 2])[4] == "0 %"


def test_what_pruning_did_stands_below_the_tables(tables: ModuleType, run: dict[str, object]) -> None:
    text = tables.report(run)
    shares = [record["zone_shares"]["encrypted"] for record in run["methods"][1]["rounds"]]
    assert shares[0] == 1.0 > shares[1]
    assert (
        f"`dict-pfl` encrypted, by round, of what it trains: 100%, {shares[1]:.0%}, {shares[2]:.0%}." in text
    )
    assert "trained positions are pruned after round 3; pruned ones were tried again" in text
    assert text.count("pruned ones were tried again") == 1
    assert "`fedavg` encrypted" not in text


def test_papers_stand_beside_ours(tables: ModuleType, run: dict[str, object]) -> None:
    text = tables.report(run)
    lines = [cells(line) for line in text.splitlines() if line.startswith("| ") and "its " in line]
    assert lines[0][3:] == ["25.00 % to 63.00 %", "its table 1; a ¦ b"]
    # The first round also sets up: figures are of those after it.
    ours = [method["rounds"][1:] for method in run["methods"]]
    ratio = sum(one["bytes_up"] for one in ours[0]) / sum(one["bytes_up"] for one in ours[1])
    assert lines[1][2].startswith("×")
    assert float(lines[1][2].lstrip("×")) == pytest.approx(ratio, rel=0.01)
