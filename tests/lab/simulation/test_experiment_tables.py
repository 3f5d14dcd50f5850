"""The Markdown tables that documentation pages get of a run's JSON file."""

from __future__ import annotations

import json
import runpy

import pytest

from documentation_pages import ROOT
from lab.simulation.small_runs import run_methods
from shieldfl.lab.simulation.compared_runs import PaperFigure, compare_figures
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.methods.registry import MethodSettings

REPORT = runpy.run_path(str(ROOT / "bench" / "experiments" / "markdown_table.py"))["report"]
PAPERS = (
    PaperFigure("its table 1", "fedavg", "accuracy", (0.25, 0.63), note="a | b"),
    PaperFigure("its abstract", "dict-pfl", "bytes_up", (2.0,), against="fedavg"),
)


@pytest.fixture(scope="module")
def run() -> dict[str, object]:
    config = RunConfig(model="mlp", clients=3, rounds=3, local_epochs=1, alpha=float("inf"))
    settings = MethodSettings().changed("dict-pfl", {"patience_rounds": 1})
    result = run_methods(config, ["fedavg", "dict-pfl"], settings)
    compared = compare_figures(result, PAPERS)
    return json.loads(json.dumps(result.to_json() | {"paper": [figure.to_json() for figure in compared]}))


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.replace(r"\|", "¦").strip("|").split("|")]


def test_methods_pruning_and_papers_have_their_lines(run):
    text = REPORT(run)
    lines = text.splitlines()
    header = next(index for index, line in enumerate(lines) if line.startswith("| method | accuracy"))
    assert set(cells(lines[header + 1])) == {"---"}
    for method, line in zip(run["methods"], lines[header + 2 :], strict=False):
        row = dict(zip(cells(lines[header]), cells(line), strict=True))
        assert row["method"] == f"`{method['method']}`"
        assert row["accuracy"] == f"{100 * method['rounds'][-1]['accuracy']:.2f} %"
        assert row["trained"] == f"{method['parameters']:,}"
    assert cells(lines[header + 2])[4] == "0 %"
    shares = [record["zone_shares"]["encrypted"] for record in run["methods"][1]["rounds"]]
    assert shares[0] == 1.0 > shares[1]
    pruned = f"`dict-pfl` encrypted, by round, of what it trains: 100%, {shares[1]:.0%}, {shares[2]:.0%}."
    assert pruned in text
    assert "trained positions are pruned after round 3" in text
    assert text.count("pruned ones were tried again") == 1
    assert "`fedavg` encrypted" not in text
    accuracy, sent = (cells(line) for line in lines if line.startswith("| ") and "its " in line)
    assert accuracy[3:] == ["25.00 % to 63.00 %", "its table 1; a ¦ b"]
    # The first round also sets up: figures are of those after it.
    ours = [sum(one["bytes_up"] for one in method["rounds"][1:]) for method in run["methods"]]
    assert float(sent[2].removeprefix("×")) == pytest.approx(ours[0] / ours[1], rel=0.01)
