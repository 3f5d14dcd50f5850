from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("typer")

import shieldfl as sf
from cli.command_line import invoke
from shieldfl.lab.bench.measurement import WrongSumError

ONE_CASE = ["--quick", "--share", "1", "--threads", "1"]


def rows(text: str) -> dict[str, list[str]]:
    """The figures of a table by the name of the scheme."""
    found = re.findall(
        r"^ ?((?:shieldfl|SEAL|TenSEAL|Flower|plain) .*?) {2,}((?:[\d.,]+|–)(?: +(?:[\d.,]+|–)){7}) *$",
        text,
        re.MULTILINE,
    )
    return {name: figures.split() for name, figures in found}


@pytest.fixture(scope="module")
def one_case():
    """What one case prints, other libraries included."""
    return invoke("bench", *ONE_CASE)


def test_prints_a_line_for_each_scheme(one_case) -> None:
    result = one_case
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    table = rows(result.stdout)
    names = list(table)
    assert names[0].startswith("shieldfl default")
    assert table[names[0]][-1] == "1.00"
    assert {"SEAL 2048 [54]", "SEAL 4096 [54,55]"} <= set(names)
    assert f"instruction set {sf.build_info()['instruction_set']}" in result.stdout
    assert "10,000 values, all values, 1 thread" in result.stdout
    assert "\x1b" not in result.stdout


def test_json_holds_what_the_table_shows(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    result = invoke("bench", "--quick", "--share", "1,0.1", "--threads", "1", "--json", path)
    assert result.exit_code == 0
    facts = json.loads(path.read_text())
    assert [(case["values"], case["share"], case["threads"]) for case in facts["cases"]] == [
        (10_000, 1.0, 1),
        (10_000, 0.1, 1),
    ]
    table = rows(result.stdout.partition("a random 0.1")[2])
    figures = facts["cases"][1]["figures"]
    assert [figure["scheme"] for figure in figures] == list(table)
    for figure in figures:
        assert table[figure["scheme"]][6] == f"{figure['bytes_per_value']:.2f}"
        assert figure["stage_ns"]["encrypt"] > 0.0


def test_a_wrong_sum_exits_1_with_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise WrongSumError("SEAL opened a wrong sum")

    monkeypatch.setattr("shieldfl.lab.bench.measurement.Scheme.check", fail)
    result = invoke("bench", *ONE_CASE)
    assert result.exit_code == 1
    assert result.stderr == "shieldfl: SEAL opened a wrong sum\n"
    assert result.stdout == ""


def test_a_file_that_cannot_be_written_exits_1() -> None:
    result = invoke("bench", *ONE_CASE, "--no-baselines", "--json", "/dev/full")
    assert result.exit_code == 1
    assert result.stderr == "shieldfl: /dev/full: No space left on device\n"


PAILLIER = ["--scheme", "paillier", "--quick", "--threads", "1", "--no-baselines"]


@pytest.mark.slow
def test_paillier_has_a_line_for_each_packing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    path = tmp_path / "bench.json"
    result = invoke("bench", *PAILLIER, "--json", path)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    (case,) = json.loads(path.read_text())["cases"]
    assert (case["key_bits"], case["threads"]) == (2048, 1)
    assert "2,048-bit keys, 1 thread" in result.stdout
    shown = dict(re.findall(r"^ ?(shieldfl .*?) {2,}([\d.,]+) ", result.stdout, re.MULTILINE))
    assert list(shown) == [figure["scheme"] for figure in case["figures"]]
    for figure in case["figures"]:
        encrypting = float(shown[figure["scheme"]].replace(",", ""))
        assert encrypting == pytest.approx(figure["stage_ns"]["encrypt"] / 1e3, rel=0.01)
