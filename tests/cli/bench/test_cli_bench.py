from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("typer")
import typer
from typer.testing import CliRunner

import shieldfl as sf
from cli.run.terminal_run import run_on_terminal
from shieldfl.cli.app import app
from shieldfl.lab.bench.measurement import WrongSumError

ONE_CASE = ["--quick", "--share", "1", "--threads", "1"]


def invoke(*arguments: object):
    return CliRunner().invoke(app, ["bench", *map(str, arguments)])


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
    return invoke(*ONE_CASE)


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


def test_says_that_baselines_are_measured_on_fewer_values(one_case) -> None:
    assert "first 4,096 values" in one_case.stdout
    assert "measured on the first" not in invoke(*ONE_CASE, "--no-baselines").stdout


def test_json_holds_what_the_table_shows(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    result = invoke("--quick", "--share", "1,0.1", "--threads", "1", "--json", path)
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


def test_json_on_standard_output_is_alone_there() -> None:
    result = invoke(*ONE_CASE, "--no-baselines", "--json", "-")
    assert result.exit_code == 0
    assert all(figure["own"] for figure in json.loads(result.stdout)["cases"][0]["figures"])


@pytest.mark.slow
def test_values_that_are_given_go_before_those_of_a_quick_run() -> None:
    for values in ("3000", "1000000"):
        facts = json.loads(invoke(*ONE_CASE, "--no-baselines", "--values", values, "--json", "-").stdout)
        assert [case["values"] for case in facts["cases"]] == [int(values)]


def test_by_default_one_thread_and_all() -> None:
    facts = json.loads(invoke("--quick", "--share", "1", "--no-baselines", "--json", "-").stdout)
    expected = list(dict.fromkeys((1, sf.build_info()["threads"])))
    assert [case["threads"] for case in facts["cases"]] == expected


@pytest.mark.parametrize(
    "arguments",
    [
        ["--values", "many"],
        ["--values", "0"],
        ["--values", "1.5"],
        ["--values", "inf"],
        ["--share", "0"],
        ["--share", "1,2"],
        ["--share", "nan"],
        ["--threads", "0"],
        ["--no-such-option"],
        ["--json", "no-such-folder/bench.json"],
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_2(arguments: list[str]) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""


def test_a_wrong_sum_exits_1_with_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise WrongSumError("SEAL opened a wrong sum")

    monkeypatch.setattr("shieldfl.lab.bench.measurement.Scheme.check", fail)
    result = invoke(*ONE_CASE)
    assert result.exit_code == 1
    assert result.stderr == "shieldfl: SEAL opened a wrong sum\n"
    assert result.stdout == ""


def test_a_file_that_cannot_be_written_exits_1() -> None:
    result = invoke(*ONE_CASE, "--no-baselines", "--json", "/dev/full")
    assert result.exit_code == 1
    assert result.stderr == "shieldfl: /dev/full: No space left on device\n"


PAILLIER = ["--scheme", "paillier", "--quick", "--threads", "1", "--no-baselines"]


@pytest.mark.slow
def test_paillier_has_a_line_for_ciphertexts_and_one_for_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    path = tmp_path / "bench.json"
    result = invoke(*PAILLIER, "--json", path)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    (case,) = json.loads(path.read_text())["cases"]
    assert (case["key_bits"], case["threads"]) == (2048, 1)
    assert "2,048-bit keys, 1 thread" in result.stdout
    of_ciphertexts, of_values = (
        dict(re.findall(r"^ ?(shieldfl .*?) {2,}([\d.,]+) ", part, re.MULTILINE))
        for part in result.stdout.partition("for each ciphertext")[2].split("for each value")
    )
    names = [figure["scheme"] for figure in case["figures"]]
    assert names[0] == "shieldfl single"
    assert list(of_ciphertexts) == list(of_values) == names
    assert of_ciphertexts["shieldfl single"] == of_values["shieldfl single"]
    for figure in case["figures"]:
        microseconds = figure["stage_ns"]["encrypt"] / 1e3
        assert float(of_values[figure["scheme"]].replace(",", "")) == pytest.approx(microseconds, rel=0.01)
        microseconds *= figure["values_per_ciphertext"]
        assert float(of_ciphertexts[figure["scheme"]].replace(",", "")) == pytest.approx(
            microseconds, rel=0.01
        )


@pytest.mark.parametrize(
    "arguments",
    [
        ["--scheme", "bfv"],
        ["--scheme", "paillier", "--values", "1000000"],
        ["--scheme", "paillier", "--share", "1"],
        ["--scheme", "paillier", "--key-bits", "1024"],
        ["--scheme", "paillier", "--key-bits", "many"],
        ["--scheme", "ckks", "--key-bits", "2048"],
        ["--key-bits", "2048"],
    ],
    ids=" ".join,
)
def test_options_of_another_scheme_exit_2(arguments: list[str]) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""


def test_options_in_the_documentation_exist() -> None:
    command = typer.main.get_command(app).commands["bench"]
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    page = (Path(__file__).resolve().parents[3] / "docs" / "benchmarks.md").read_text()
    lines = re.findall(r"^shieldfl bench.*?(?=#|$)", page, re.MULTILINE)
    named = set(re.findall(r"--[a-z-]+", " ".join(lines))) | {"--no-baselines", "--quick"}
    assert {"--values", "--share", "--threads", "--json"} <= named
    assert named <= known


def test_says_how_to_install_what_is_missing() -> None:
    code = (
        "import sys\n"
        "for name in ('tenseal', 'torch', 'sklearn', 'opacus', 'matplotlib'): sys.modules[name] = None\n"
        f"sys.argv[1:] = ['bench', *{ONE_CASE!r}]\n"
        "from shieldfl.cli.main import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "TenSEAL is not installed: pip install tenseal" in done.stdout
    assert not any(name.startswith("TenSEAL") for name in rows(done.stdout))
    assert "SEAL 2048 [54]" in rows(done.stdout)


def test_progress_is_on_the_terminal_and_the_piped_table_is_clean() -> None:
    out, err = run_on_terminal(["bench", *ONE_CASE, "--no-baselines"])
    assert "\x1b" not in out
    assert "10,000 values" in out
    assert "0/1" in err
    assert "10,000 values, share 1, threads 1" in err
