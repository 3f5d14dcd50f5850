"""``shieldfl doctor`` tells what there is, and finds what is wrong."""

from __future__ import annotations

import json
import os
import re
import subprocess
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("typer")
pytest.importorskip("cryptography")
import shieldfl as sf
from cli.command_line import invoke, run_without
from encryption.child_process import lower_instruction_sets
from shieldfl.build_info import EXTRAS, how_to_install
from shieldfl.cli import doctor
from shieldfl.encryption.registry import REGISTRY

IN_USE = sf.build_info()["instruction_set"]


def doctor_process(
    path: Path, without: tuple[str, ...] = (), **variables: str
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """Run the command in a process of its own, where some packages cannot be imported."""
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "SHIELDFL_SIMD")}
    done = run_without(without, "doctor", "--json", path, environment=kept | variables)
    assert (done.returncode, done.stderr) == (0, "")
    return done, json.loads(path.read_text())


@pytest.fixture
def no_self_test(monkeypatch):
    monkeypatch.setattr(doctor, "_seconds_of_sum", lambda scheme: 1.5e-3)


def test_a_working_installation_is_told_so_in_plain_lines_and_as_json(tmp_path: Path):
    done, facts = doctor_process(tmp_path / "facts.json")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\x80-\x9f]", done.stdout)
    told = sf.build_info()
    for words in (sf.__version__, told["seal_version"], *EXTRAS, *REGISTRY, "What was tried works."):
        assert words in done.stdout
    assert (facts["works"], facts["problems"]) == (True, [])
    assert facts["installation"]["shieldfl"] == told["version"]
    assert facts["installation"]["gmp"] == told["gmp_version"]
    assert facts["installation"]["cores"] == told["threads"]
    sets = facts["instruction_sets"]
    assert f"{sets['in_use']} of the core's {', '.join(sets['core'])}: the best of them" in done.stdout
    assert sets["in_use"] in sets["core"]
    assert [part["part"] for part in facts["packages"]] == list(EXTRAS)
    assert [check["name"] for check in facts["self_test"]] == list(REGISTRY)
    assert all(check["milliseconds"] > 0 and not check["problem"] for check in facts["self_test"])


@pytest.mark.slow
def test_a_forced_set_is_tried_and_shown(tmp_path: Path):
    done, facts = doctor_process(tmp_path / "facts.json", SHIELDFL_SIMD="scalar")
    assert facts["instruction_sets"]["in_use"] == facts["instruction_sets"]["forced"] == "scalar"
    assert re.search(r"instruction sets +scalar of .*which SHIELDFL_SIMD forces", done.stdout)
    assert "SHIELDFL_SIMD keeps the core to scalar" in done.stdout


@pytest.mark.slow
def test_numpy_typer_and_rich_are_enough(tmp_path: Path):
    without = ("torch", "msgspec", "cryptography", "matplotlib", "jinja2")
    done, facts = doctor_process(tmp_path / "facts.json", without)
    here = {check["name"]: check for check in facts["self_test"]}
    assert here["ckks"]["milliseconds"] > 0
    assert here["kahe"]["milliseconds"] is None
    assert how_to_install("keys") in here["kahe"]["skipped"]
    assert "not tried: " in done.stdout


def test_what_is_wrong_is_told_beside_what_works_and_exits_1(monkeypatch, tmp_path: Path):
    opened = doctor.open_answered

    def wrong(total, *arguments, **options):
        sums = opened(total, *arguments, **options)
        if type(total) is sf.kahe.Total:
            sums[7] += 2.0**-20
        return sums

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a\ndefect")

    monkeypatch.setattr(doctor, "open_answered", wrong)
    monkeypatch.setattr(type(REGISTRY["ckks"]), "aggregator", broken)
    result = invoke("doctor", "--json", tmp_path / "facts.json")
    assert result.exit_code == 1
    said = "kahe: 1 of 5,000 values of the sum are wrong"
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert re.search(r"^  kahe +WRONG: ", result.stdout, re.MULTILINE)
    facts = json.loads((tmp_path / "facts.json").read_text())
    assert not facts["works"]
    assert facts["problems"] == ["ckks: ZeroDivisionError: a defect", said]
    problems = {check["name"]: check["problem"] for check in facts["self_test"]}
    assert {problems[name] for name in ("paillier", "pads")} == {""}


@pytest.mark.skipif(not lower_instruction_sets(IN_USE), reason="the machine has one instruction set")
def test_a_machine_without_the_faster_sets_is_told_that_work_takes_longer(monkeypatch, no_self_test):
    monkeypatch.delenv("SHIELDFL_SIMD", raising=False)
    assert doctor.diagnosis()["warnings"] == []
    monkeypatch.setattr(
        doctor,
        "build_info",
        lambda: {**sf.build_info(), "instruction_set": lower_instruction_sets(IN_USE)[0]},
    )
    (slow,) = doctor.diagnosis()["warnings"]
    assert slow.startswith("This processor has no ")


def test_a_missing_package_is_no_failure_and_what_installs_it_is_said(monkeypatch, no_self_test):
    there = {"cryptography": "43.0.1", "gmpy2": "2.2.1", "msgspec": "0.19"}

    def version(name: str) -> str:
        if name not in there:
            raise PackageNotFoundError(name)
        return there[name]

    monkeypatch.setattr(doctor, "version", version)
    result = invoke("doctor")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "pip install phe\n" in result.stdout
    assert "pip install 'cryptography>=50'\n" in result.stdout  # too old
    flower = next(part for part in doctor.diagnosis()["packages"] if part["part"] == "flower")
    assert flower["missing"] == ["cryptography", "flwr", "httpx"]
    assert "msgspec" not in flower["install"]
