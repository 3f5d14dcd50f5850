from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("typer")
from typer.testing import CliRunner

import shieldfl as sf
from encryption.paillier_keys import authority_for
from shieldfl.build_info import how_to_install
from shieldfl.cli.app import app
from shieldfl.encryption.frame_inspection import inspect_frame


def invoke(*arguments: object, data: bytes | None = None):
    return CliRunner().invoke(app, ["inspect", *map(str, arguments)], input=data)


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
    result = invoke(batch_file)
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
    assert public_key.parameters.describe() in result.stdout


def test_says_what_a_mask_is(tmp_path: Path) -> None:
    path = tmp_path / "mask.frame"
    path.write_bytes(sf.Mask.from_indices([1, 5, 70], 100_000).to_bytes())
    result = invoke(path)
    assert result.exit_code == 0
    assert result.stdout.startswith("mask, intact\n")
    assert "100,000" in result.stdout
    assert "key id" not in result.stdout


def test_says_what_paillier_frames_are(tmp_path: Path) -> None:
    key = authority_for(sf.paillier.Parameters(key_bits=2048)).public_key
    order = sf.paillier.UnionOrder.from_masks([sf.Mask.from_indices([1, 5, 70], 100_000)])
    batch = sf.paillier.Encryptor(key, threads=1).encrypt(np.ones(300), round=4)
    for name, frame in (
        ("paillier public key", key.to_bytes()),
        ("paillier batch", batch.to_bytes()),
        ("union order", order.to_bytes()),
    ):
        path = tmp_path / "frame"
        path.write_bytes(frame)
        result = invoke(path)
        assert result.exit_code == 0
        assert result.stdout.startswith(f"{name}, intact\n")
        if name != "union order":
            assert key.parameters.describe() in result.stdout


def test_reads_standard_input(batch: bytes) -> None:
    result = invoke("-", data=batch)
    assert result.exit_code == 0
    assert result.stdout.startswith("ckks batch, intact\n")


def test_json_on_standard_output_is_alone_there(batch: bytes, batch_file: Path) -> None:
    result = invoke(batch_file, "--json", "-")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == inspect_frame(batch).to_json()


def test_json_in_a_file(batch: bytes, batch_file: Path, tmp_path: Path) -> None:
    result = invoke(batch_file, "--json", tmp_path / "report.json")
    assert result.stdout.startswith("ckks batch, intact\n")
    assert json.loads((tmp_path / "report.json").read_text()) == inspect_frame(batch).to_json()


@pytest.mark.parametrize("damage", ["truncated", "flipped", "longer", "empty", "text"])
def test_damaged_frame_exits_1_with_one_line(batch: bytes, tmp_path: Path, damage: str) -> None:
    flipped = bytearray(batch)
    flipped[1000] ^= 4
    data = {
        "truncated": batch[:-1],
        "flipped": bytes(flipped),
        "longer": batch + b"\0",
        "empty": b"",
        "text": b"hello, world. " * 20,
    }[damage]
    path = tmp_path / "frame"
    path.write_bytes(data)
    result = invoke(path)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[0].endswith("NOT INTACT")
    assert result.stderr == f"shieldfl: {inspect_frame(data).problem}\n"


def test_damaged_frame_still_gives_json(batch: bytes) -> None:
    result = invoke("-", "--json", "-", data=batch[:-1])
    assert result.exit_code == 1
    assert json.loads(result.stdout)["intact"] is False


@pytest.mark.parametrize(
    "arguments",
    [[], ["no-such-file"], ["."], ["-", "--no-such-option"], ["-", "--json", "no-such-folder/report.json"]],
    ids=lambda arguments: " ".join(arguments) or "nothing",
)
def test_wrong_usage_exits_2(arguments: list[str]) -> None:
    result = invoke(*arguments, data=b"")
    assert result.exit_code == 2
    assert result.stdout == ""


def run_without(packages: list[str], arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """Run the command line in a Python that cannot import some packages."""
    code = (
        "import sys\n"
        f"for name in {packages!r}: sys.modules[name] = None\n"
        "from shieldfl.cli.main import main\n"
        f"sys.argv[1:] = {arguments!r}\n"
        "main()\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )


def test_needs_neither_torch_nor_the_plots(batch_file: Path) -> None:
    without = ["torch", "opacus", "sklearn", "matplotlib", "jinja2"]
    done = run_without(without, ["inspect", str(batch_file)])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("ckks batch, intact\n")


@pytest.mark.parametrize("package", ["typer", "torch", "opacus", "sklearn"])
def test_run_names_the_extra_that_is_missing(package: str) -> None:
    done = run_without([package], ["run", "--rounds", "1"])
    assert done.returncode == (2 if package == "typer" else 1)
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert f"package {package!r}: {how_to_install('lab')}" in done.stderr


def test_a_report_without_its_packages_is_refused_before_the_run(tmp_path: Path) -> None:
    done = run_without(["jinja2"], ["run", "--rounds", "100000", "--report", str(tmp_path / "report")])
    assert done.returncode == 1
    assert "'jinja2'" in done.stderr
    assert not (tmp_path / "report").exists()
