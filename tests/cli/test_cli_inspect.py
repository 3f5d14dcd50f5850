from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("typer")

import shieldfl as sf
from cli.command_line import invoke, run_without
from shieldfl.encryption.frame_inspection import inspect_frame


@pytest.fixture(scope="module")
def public_key() -> sf.ckks.PublicKey:
    return sf.KeyAuthority(sf.ckks.Parameters(max_clients=8)).public_key


@pytest.fixture(scope="module")
def batch(public_key: sf.ckks.PublicKey) -> bytes:
    return sf.ckks.Encryptor(public_key, threads=1).encrypt(np.ones(3000, np.float32), round=4).to_bytes()


@pytest.fixture
def batch_file(batch: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "batch.frame"
    path.write_bytes(batch)
    return path


def test_says_what_a_batch_is(batch: bytes, batch_file: Path, public_key: sf.ckks.PublicKey) -> None:
    result = invoke("inspect", batch_file)
    assert result.exit_code == 0
    assert result.stderr == ""
    lines = result.stdout.partition("\n\n")[0].splitlines()
    assert lines[0] == "ckks batch, intact"
    facts = dict(line.strip().split(maxsplit=1) for line in lines[1:])
    assert facts["size"] == f"{len(batch):,} bytes"
    assert facts["round"] == "4"
    assert facts["values"] == "3,000"
    assert facts["weighted"] == "no"
    assert public_key.id.hex() in result.stdout
    assert "max clients            8" in result.stdout


def test_says_what_a_mask_is() -> None:
    result = invoke("inspect", "-", data=sf.Mask.from_indices([1, 5, 70], 100_000).to_bytes())
    assert result.stdout.startswith("mask, intact\n")
    assert "100,000" in result.stdout
    assert "key id" not in result.stdout


def test_json_in_a_file_or_alone_on_standard_output(batch: bytes, batch_file: Path, tmp_path: Path) -> None:
    """Also without torch and what draws pictures."""
    done = run_without(
        ["torch", "opacus", "sklearn", "matplotlib", "jinja2"], "inspect", batch_file, "--json", "-"
    )
    assert json.loads(done.stdout) == inspect_frame(batch).to_json()
    result = invoke("inspect", "-", "--json", tmp_path / "report.json", data=batch)
    assert result.stdout.startswith("ckks batch, intact\n")
    assert json.loads((tmp_path / "report.json").read_text()) == inspect_frame(batch).to_json()


@pytest.mark.parametrize("kept", [0, -1])
def test_damaged_frame_exits_1_with_one_line(batch: bytes, kept: int) -> None:
    data = batch[:kept]
    result = invoke("inspect", "-", data=data)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[0].endswith("NOT INTACT")
    assert result.stderr == f"shieldfl: {inspect_frame(data).problem}\n"
