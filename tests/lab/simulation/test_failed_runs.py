"""An error that ends a run keeps what had ended: of the seeds before, of the methods before, of the rounds before."""

from __future__ import annotations

import json

import pytest
from torch import nn

import shieldfl as sf
from lab.simulation.test_own_run import QUICK, regression
from shieldfl.errors import DataError, ParameterError
from shieldfl.lab.simulation.results import RunInterrupted


def test_an_error_keeps_what_ended_and_says_where(tmp_path):
    def full(seed, name, record):
        if (seed, name, record.round) == (1, "full-he", 1):
            raise DataError("the disk is full")

    more = QUICK | {"folder": str(tmp_path / "run")}
    with pytest.raises(DataError, match="the disk is full") as failed:
        sf.run(regression(), ["fedavg", "full-he", "top-2"], seeds=(0, 1, 2), on_round=full, **more)
    ended = failed.value.ended
    (before,) = ended.earlier
    assert [len(method.rounds) for method in before.methods] == [2, 2, 2]
    assert [len(method.rounds) for method in ended.result.methods] == [2, 1]
    where = "failed in round 1 of full-he, before top-2"
    assert str(ended.result.interrupted) == where
    assert failed.value.__notes__ == [f"{where}, with seed 1"]
    written = [json.loads((tmp_path / "run" / f"seed-{seed}" / "result.json").read_text()) for seed in (0, 1)]
    assert written[0] == json.loads(json.dumps(before.to_json()))
    assert written[1]["interrupted"] == {
        "method": "full-he",
        "round": 1,
        "not_begun": ["top-2"],
        "error": "the disk is full",
    }


def test_a_folder_that_cannot_be_written_in_the_end_either_hides_no_error(tmp_path, monkeypatch):
    def full(*what):
        raise DataError("the disk is full")

    def fuller(*what):
        raise DataError("it is still full")

    monkeypatch.setattr("shieldfl.lab.simulation.written_run.WrittenRun.finish", fuller)
    with pytest.raises(DataError, match="the disk is full") as failed:
        sf.run(regression(), ["fedavg"], on_round=full, **QUICK | {"folder": str(tmp_path / "run")})
    assert [len(method.rounds) for method in failed.value.ended.result.methods] == [1]
    assert "it is still full" in failed.value.__notes__


def test_an_error_before_anything_ended_is_as_it_was():
    with pytest.raises(ParameterError) as failed:
        sf.run(regression(model=lambda: None), ["fedavg"], seeds=(0, 1), **QUICK)
    assert failed.value.ended is None


@pytest.mark.parametrize("ctrl_c", [False, True])
def test_what_ends_a_later_seed_before_its_methods_keeps_the_seeds_before(ctrl_c):
    built = []

    def model():
        built.append(1)
        if len(built) < 2:
            return nn.Linear(4, 1)
        if ctrl_c:
            raise KeyboardInterrupt
        return None

    with pytest.raises(RunInterrupted if ctrl_c else ParameterError) as stopped:
        sf.run(regression(model=model), ["fedavg", "full-he"], seeds=(0, 1), **QUICK)
    (before,) = stopped.value.ended.earlier
    assert [method.method for method in before.methods] == ["fedavg", "full-he"]
    result = stopped.value.ended.result
    assert result.methods == []
    where = "in round 1 of" if ctrl_c else "before the first round of"
    assert str(result.interrupted).endswith(f"{where} fedavg, before full-he")
