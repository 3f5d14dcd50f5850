"""Event files of a run's folder: TensorBoard's own reader finds what the lines say; without it no run begins."""

from __future__ import annotations

import json
import math
from importlib import import_module

import pytest
from typer.testing import CliRunner

import shieldfl as sf
from shieldfl.cli.app import app
from shieldfl.errors import ParameterError
from shieldfl.lab.simulation.config import RunConfig

SMALL = {"clients": 3, "rounds": 2, "local_epochs": 1, "model": "linear", "tensorboard": True}


@pytest.fixture
def without_tensorboard(monkeypatch):
    build_info = import_module("shieldfl.build_info")  # the package has a function of this name
    find = build_info.find_spec
    monkeypatch.setattr(build_info, "find_spec", lambda name: None if name == "tensorboard" else find(name))


@pytest.mark.usefixtures("without_tensorboard")
def test_what_is_missing_is_said_before_anything_begins(tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(ModuleNotFoundError, match="tensorboard"):
        sf.run("digits", "full-he", folder=str(folder), **SMALL)
    done = CliRunner().invoke(app, ["run", "--folder", str(folder), "--tensorboard"])
    assert done.exit_code == 1
    assert done.stderr == ("shieldfl: this needs the Python package 'tensorboard': pip install tensorboard\n")
    assert not folder.exists()


def test_it_takes_a_folder():
    with pytest.raises(ParameterError, match=r"the run's folder: name it \(--folder\)"):
        RunConfig(tensorboard=True)


@pytest.mark.slow
def test_tensorboard_reads_the_figures_of_the_lines(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = tmp_path / "run"

    def stop(seed, method, record):
        if (method, record.round) == ("fedavg", 1):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sf.run("digits", ["full-he", "fedavg"], folder=str(folder), on_round=stop, **SMALL)
    sf.run("digits", ["full-he", "fedavg"], folder=str(folder), resume=True, **SMALL)
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    assert [(line["method"], line["round"]) for line in lines] == [
        (method, number) for method in ("full-he", "fedavg") for number in (1, 2)
    ]
    for method in ("full-he", "fedavg"):
        read = EventAccumulator(str(folder / "tensorboard" / method))
        read.Reload()
        own = [line for line in lines if line["method"] == method]
        named = {name for line in own for name, value in line.items() if value is not None}
        assert set(read.Tags()["scalars"]) == named - {"method", "round"}
        for name in read.Tags()["scalars"]:
            scalars = {one.step: one.value for one in read.Scalars(name)}
            assert scalars == {
                line["round"]: pytest.approx(float(line[name]), rel=1e-6)
                for line in own
                if line[name] is not None
            }
    assert math.isinf(
        EventAccumulator(str(folder / "tensorboard" / "fedavg")).Reload().Scalars("epsilon")[0].value
    )
