"""What a checkpoint is not gone on from, and who may read it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from lab.simulation.small_runs import (
    SMALL,
    CutOffError,
    cut_after,
    run_methods,
)
from shieldfl.authority.message import Message
from shieldfl.authority.role_state import RunFolder
from shieldfl.errors import DataError, ParameterError, PolicyError, WireFormatError
from shieldfl.lab.simulation import runner
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.methods.registry import MethodSettings

pytestmark = pytest.mark.usefixtures("small_and_quick")


@pytest.fixture
def begun(tmp_path):
    """The configuration of a run that was cut off after its first round."""
    config = RunConfig(**{**SMALL, "rounds": 2}, checkpoint=str(tmp_path / "run"))
    with pytest.raises(CutOffError):
        run_methods(config, ["full-he"], on_round=cut_after(1))
    return config


def test_a_checkpoint_is_not_written_over(begun):
    with pytest.raises(PolicyError, match=r"go on from it with --resume .* or name another folder"):
        run_methods(begun, ["full-he"])


def test_nothing_is_gone_on_from_where_nothing_is(tmp_path):
    config = RunConfig(**SMALL, checkpoint=str(tmp_path / "run"), resume=True)
    with pytest.raises(DataError, match=r"there is no checkpoint in .* begin the run without --resume"):
        run_methods(config, ["fedavg"])
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ParameterError, match="name the run's folder"):
        RunConfig(resume=True)


@pytest.mark.parametrize(
    ("changes", "methods", "settings", "words"),
    [
        ({"seed": 1}, ["full-he"], {}, "differs in seed"),
        ({"rounds": 3}, ["full-he"], {}, "differs in rounds, the settings of full-he"),
        ({}, ["full-he", "fedavg"], {}, "differs in method, the settings of fedavg"),
        ({}, ["full-he"], {"value_bits": 25}, "differs in the settings of full-he: a run goes on with what"),
    ],
)
def test_a_checkpoint_is_of_one_run(begun, changes, methods, settings, words):
    own = MethodSettings().changed("full-he", settings)
    with pytest.raises(PolicyError, match=words):
        run_methods(replace(begun, resume=True, **changes), methods, own)


def test_a_checkpoint_is_of_the_same_data(begun, monkeypatch):
    load = runner.load_dataset

    def load_others(name, data_dir):
        dataset = load(name, data_dir)
        return replace(dataset, test_labels=dataset.test_labels.flip(0))

    monkeypatch.setattr(runner, "load_dataset", load_others)
    with pytest.raises(PolicyError, match="differs in the data: a run goes on"):
        run_methods(replace(begun, resume=True), ["full-he"])


def test_a_checkpoint_of_another_version_is_refused(begun):
    folder = RunFolder(Path(begun.checkpoint))
    message = folder.read()
    progress = msgspec.msgpack.decode(message["progress"]) | {"format": "shieldfl run checkpoint 1"}
    folder.write(Message({**message, "progress": msgspec.msgpack.encode(progress)}))
    with pytest.raises(WireFormatError, match="another version of shieldfl: go on with that one"):
        run_methods(replace(begun, resume=True), ["full-he"])


@pytest.mark.parametrize("place", [0, 40, 0.3, 0.9, -1])
def test_a_checkpoint_that_was_altered_is_refused(begun, place):
    path = Path(begun.checkpoint) / "checkpoint"
    content = bytearray(path.read_bytes())
    content[int(place * len(content)) if isinstance(place, float) else place] ^= 1
    path.write_bytes(content)
    with pytest.raises(WireFormatError, match=r"was altered: restore the folder"):
        run_methods(replace(begun, resume=True), ["full-he"])


def test_synthetic_data_that_were_altered_are_refused(tmp_path):
    config = RunConfig(**{**SMALL, "rounds": 2}, checkpoint=str(tmp_path / "run"))
    with pytest.raises(CutOffError):
        run_methods(config, ["alt-fl-si-he"], on_round=cut_after(1))
    path = tmp_path / "run" / "synthetic"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(WireFormatError, match=r"the file synthetic in .* was altered"):
        run_methods(replace(config, resume=True), ["alt-fl-si-he"])


def test_a_checkpoint_is_its_owners_alone(begun):
    folder = Path(begun.checkpoint)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()} == {
        "key": 0o600,
        "checkpoint": 0o600,
    }


def test_what_a_killed_process_had_not_written_to_its_end_is_deleted(begun):
    left = Path(begun.checkpoint) / "checkpoint.0123abcd"
    left.write_bytes(b"half of it")
    run_methods(replace(begun, resume=True), ["full-he"])
    assert not left.exists()
