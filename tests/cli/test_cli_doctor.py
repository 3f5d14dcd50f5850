"""``shieldfl doctor`` tells what there is, and finds what is wrong."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("typer")
pytest.importorskip("cryptography")
from typer.testing import CliRunner

import shieldfl as sf
from encryption.child_process import lower_instruction_sets
from shieldfl.build_info import EXTRAS, how_to_install, instruction_sets_of
from shieldfl.cli.app import app
from shieldfl.cli.doctor import diagnosis, machine, self_test
from shieldfl.cli.doctor.machine import InstructionSets
from shieldfl.cli.doctor.self_test import RANDOM, Check
from shieldfl.encryption.registry import REGISTRY

IN_USE = sf.build_info()["instruction_set"]
SETS = (*lower_instruction_sets(IN_USE), IN_USE)
X86, ARM = (instruction_sets_of(name) for name in ("x86_64", "aarch64"))


@dataclass(frozen=True)
class Done:
    """A process that has ended, and the JSON that it wrote."""

    code: int
    stdout: str
    stderr: str
    facts: dict[str, Any]
    seconds: float


def doctor_process(path: Path, without: tuple[str, ...] = (), **variables: str) -> Done:
    """Run the command in a process of its own, where some packages cannot be imported; it must not import torch."""
    code = (
        "import sys\n"
        f"for name in {without!r}: sys.modules[name] = None\n"
        "from shieldfl.cli.main import main\n"
        f"sys.argv[1:] = ['doctor', '--json', {str(path)!r}]\n"
        "try: main()\n"
        "finally: assert sys.modules.get('torch') is None\n"
    )
    environment = {
        name: value for name, value in os.environ.items() if name not in ("COLUMNS", "SHIELDFL_SIMD")
    }
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=environment | variables,
    )
    seconds = time.perf_counter() - start
    return Done(done.returncode, done.stdout, done.stderr, json.loads(path.read_text()), seconds)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Done:
    return doctor_process(tmp_path_factory.mktemp("doctor") / "facts.json")


@pytest.fixture(scope="module", autouse=True)
def _slow_keys_are_made_once():
    """In this process; the real thing, in one of its own, makes them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(self_test, "_slow_pairs", functools.cache(self_test._slow_pairs))
        yield


def invoke(*arguments: object):
    return CliRunner().invoke(app, ["doctor", *map(str, arguments)])


@pytest.fixture
def only_set_in_use(monkeypatch):
    """No other process is started."""
    monkeypatch.setattr(InstructionSets, "usable", property(lambda sets: (sets.in_use,)))


@pytest.fixture
def no_self_test(monkeypatch):
    monkeypatch.setattr(diagnosis, "self_test", lambda sets: [Check("kahe", name, 1.5) for name in sets])


# ---- the real thing


def test_a_working_installation_is_told_so_in_plain_lines(real: Done):
    assert (real.code, real.stderr) == (0, "")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\x80-\x9f]", real.stdout)
    assert max(map(len, real.stdout.splitlines())) <= 120
    for words in (sf.__version__, sf.build_info()["seal_version"], *EXTRAS, *REGISTRY, RANDOM, "works"):
        assert words in real.stdout
    print(f"{real.seconds:.1f} s")


def test_json_has_the_facts(real: Done):
    facts, told = real.facts, sf.build_info()
    assert (facts["works"], facts["problems"]) == (True, [])
    assert facts["installation"]["shieldfl"] == told["version"]
    assert facts["installation"]["gmp"] == told["gmp_version"]
    assert facts["installation"]["cores"] == told["threads"]
    assert [part["part"] for part in facts["packages"]] == list(EXTRAS)
    assert set(facts["instruction_sets"]["machine"]) >= {"scalar", facts["instruction_sets"]["in_use"]}


def test_every_scheme_is_tried_with_every_set(real: Done):
    best = real.facts["instruction_sets"]["in_use"]
    sets = (*lower_instruction_sets(best), best)
    tried = {(check["name"], check["instruction_set"]): check for check in real.facts["self_test"]}
    assert {(scheme, name) for scheme in REGISTRY for name in sets} <= tried.keys()
    assert (RANDOM, best) in tried
    assert all(check["problem"] == "" for check in tried.values())
    assert all(check["milliseconds"] > 0 for check in tried.values() if not check["skipped"])


@pytest.mark.slow
def test_a_forced_set_is_shown(tmp_path: Path):
    done = doctor_process(tmp_path / "facts.json", SHIELDFL_SIMD="scalar")
    assert (done.code, done.stderr) == (0, "")
    sets = done.facts["instruction_sets"]
    assert (sets["in_use"], sets["forced"], sets["error"]) == ("scalar", "scalar", None)
    assert re.search(r"in use +scalar, which SHIELDFL_SIMD forces", done.stdout)


@pytest.mark.slow
def test_numpy_typer_and_rich_are_enough(tmp_path: Path):
    done = doctor_process(
        tmp_path / "facts.json", ("torch", "msgspec", "cryptography", "matplotlib", "jinja2")
    )
    assert (done.code, done.stderr) == (0, "")
    here = {check["name"]: check for check in done.facts["self_test"] if check["instruction_set"] == IN_USE}
    assert here["ckks"]["milliseconds"] > 0
    assert here["kahe"]["milliseconds"] is None
    assert how_to_install("keys") in here["kahe"]["skipped"]
    assert "Not tried: " in done.stdout


# ---- what is wrong is found


def test_a_wrong_sum_is_told_and_exits_1(monkeypatch, only_set_in_use, tmp_path: Path):
    opened = self_test.open_answered

    def wrong(total, *arguments, **options):
        sums = opened(total, *arguments, **options)
        if type(total) is sf.kahe.Total:
            sums[7] += 2.0**-20
        return sums

    monkeypatch.setattr(self_test, "open_answered", wrong)
    result = invoke("--json", tmp_path / "facts.json")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"shieldfl: kahe with {IN_USE}: 1 of 5,000 values of the sum are wrong")
    assert result.stderr.count("\n") == 1
    assert re.search(r"^ kahe +WRONG", result.stdout, re.MULTILINE)
    facts = json.loads((tmp_path / "facts.json").read_text())
    assert not facts["works"]
    problems = {check["name"]: check["problem"] for check in facts["self_test"]}
    assert "wrong" in problems["kahe"]
    assert {problems[name] for name in ("ckks", "paillier", "pads", RANDOM)} == {""}


def test_a_scheme_that_raises_is_told_beside_those_that_work(monkeypatch):
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a\ndefect")

    monkeypatch.setattr(type(REGISTRY["pads"]), "aggregator", broken)
    found = {check.name: check.problem for check in self_test.self_test([IN_USE])}
    assert found["pads"] == "ZeroDivisionError: a defect"
    assert {found[name] for name in ("ckks", "kahe", "paillier")} == {""}


def test_threads_that_give_another_sum_are_found(monkeypatch):
    opened = self_test._Trial.open
    monkeypatch.setattr(
        self_test._Trial, "open", lambda trial, total, threads: opened(trial, total, threads) + (threads > 1)
    )
    found = {check.name: check.problem for check in self_test.self_test([IN_USE])}
    assert [name for name, problem in found.items() if problem] == [
        name for name in found if name.endswith("threads as one")
    ]


def test_a_key_that_is_drawn_twice_is_found(monkeypatch):
    made: dict[str, Any] = {}
    trial = self_test._Trial
    monkeypatch.setattr(
        self_test, "_Trial", lambda scheme, pair=None: made.setdefault(scheme.name, trial(scheme, pair))
    )
    found = {check.name: check.problem for check in self_test.self_test([IN_USE])}
    assert found.pop(RANDOM) == "ckks: the same key was drawn twice"
    assert set(found.values()) == {""}


@pytest.mark.skipif(len(SETS) < 2, reason="the machine has one instruction set")
def test_a_set_whose_process_ends_is_told(monkeypatch):
    monkeypatch.setattr(self_test, "_CHILD", "raise SystemExit('illegal instruction')")
    found = self_test.self_test(SETS)
    assert {check.problem for check in found if check.instruction_set == "scalar"} == {"illegal instruction"}
    assert {check.problem for check in found if check.instruction_set == IN_USE} == {""}


def test_an_unknown_set_is_shown_as_the_error_that_it_gives(monkeypatch, no_self_test):
    monkeypatch.setenv("SHIELDFL_SIMD", "sse")
    result = invoke()
    assert result.exit_code == 1
    assert result.stderr == "shieldfl: SHIELDFL_SIMD must be scalar, neon, avx2 or avx512\n"
    assert "SHIELDFL_SIMD=sse is refused: SHIELDFL_SIMD must be scalar" in result.stdout


# ---- packages and machine


def test_a_missing_package_is_no_failure_and_what_installs_it_is_said(monkeypatch, no_self_test):
    there = {"cryptography": "43.0.1", "gmpy2": "2.2.1", "msgspec": "0.19"}

    def version(name: str) -> str:
        if name not in there:
            raise PackageNotFoundError(name)
        return there[name]

    monkeypatch.setattr(machine, "version", version)
    result = invoke()
    assert (result.exit_code, result.stderr) == (0, "")
    assert "pip install phe\n" in result.stdout
    assert "pip install 'cryptography>=50'\n" in result.stdout  # too old
    assert "there: gmpy2 2.2.1" in result.stdout
    flower = next(part for part in machine.parts() if part.name == "flower")
    assert flower.missing == ("cryptography", "flwr", "httpx")
    assert "msgspec" not in flower.install


@pytest.mark.parametrize(
    ("core", "flags", "in_use", "sets"),
    [
        (X86, "fpu sse4_2", "scalar", ("scalar",)),
        (X86, machine._FLAGS["avx2"], "scalar", ("scalar", "avx2")),
        (X86, " ".join(machine._FLAGS.values()), "avx2", ("scalar", "avx2", "avx512")),
        (X86, machine._FLAGS["avx512"], "scalar", ("scalar",)),
        (X86, "", "avx2", ("scalar", "avx2")),
        (ARM, "fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid", "scalar", ("scalar", "neon")),
        (ARM, "fp asimd evtstrm cpuid", "scalar", ("scalar",)),
        (ARM, "", "neon", ("scalar", "neon")),
        (instruction_sets_of("riscv64"), "", "scalar", ("scalar",)),
    ],
)
def test_sets_follow_from_what_the_processor_has(
    core: tuple[str, ...], flags: str, in_use: str, sets: tuple[str, ...]
):
    assert machine._sets_of(core, frozenset(flags.split()), in_use) == sets


@pytest.mark.parametrize(
    "line", ["flags\t\t: fpu sse4_2 avx2", "Features\t: fp asimd crc32"], ids=["x86-64", "arm"]
)
def test_the_flags_are_found_whatever_linux_calls_them(monkeypatch, line: str):
    monkeypatch.setattr(machine, "_text_of", lambda path: f"processor\t: 0\n{line}\n\nprocessor\t: 1\n")
    assert machine._processor_flags() == frozenset(line.partition(": ")[2].split())


def test_warnings_say_what_is_slow_or_short():
    facts = {"cores": 1, "memory_bytes": 2**33, "memory_limit_bytes": 2**29}
    slow = machine.warnings_of(facts, InstructionSets(("scalar",), X86, "scalar"))
    assert [
        bool(re.search(words, said))
        for words, said in zip(("AVX2", "one core", "512 MiB"), slow, strict=True)
    ]
    facts = {"cores": 2, "memory_bytes": 2**33, "memory_limit_bytes": None}
    (slow_arm,) = machine.warnings_of(facts, InstructionSets(("scalar",), ARM, "scalar"))
    assert "has no NEON" in slow_arm
    (unknown,) = machine.warnings_of(facts, InstructionSets(("scalar",), ("scalar",), "scalar"))
    assert "that the core knows" in unknown
    sets = InstructionSets(("scalar", "avx2"), X86, "scalar", "scalar")
    assert "avx2 would be faster" in "".join(machine.warnings_of(facts, sets))
    assert machine.warnings_of(facts, InstructionSets(("scalar", "avx2"), X86, "avx2")) == []


# ---- output


def test_it_fits_80_columns(monkeypatch, no_self_test):
    monkeypatch.setenv("COLUMNS", "80")
    lines = invoke().stdout.splitlines()
    assert len(lines) > 20
    assert max(map(len, lines)) <= 80


def test_json_on_standard_output_is_alone_there(no_self_test):
    result = invoke("--json", "-")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["works"] is True


@pytest.mark.parametrize(
    "arguments", [["now"], ["--no-such-option"], ["--json", "no-such-folder/facts.json"]]
)
def test_wrong_usage_exits_2(arguments: list[str]):
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""


@pytest.mark.parametrize("shares", [(1.0, 0.004), (0.004, 1.0)])
def test_a_core_that_encrypts_the_same_values_alike_is_found(monkeypatch, shares):
    monkeypatch.setattr(self_test._Trial, "likenesses", lambda trial: shares)
    (found,) = [one for one in self_test.self_test([]) if one.name == RANDOM]
    assert found.problem.endswith("the same values were encrypted alike twice")


def test_what_could_not_be_tried_is_no_success(monkeypatch):
    monkeypatch.setattr(self_test, "_why_not", lambda scheme: "nothing is installed")
    found = self_test.self_test([])
    assert {one.skipped for one in found} == {"nothing is installed", "no scheme could be tried"}


def test_another_set_has_to_try_every_scheme(monkeypatch):
    monkeypatch.setattr(self_test, "_CHILD", "print('[]')")
    other = next(name for name in ("scalar", "avx2") if name != sf.build_info()["instruction_set"])
    found = [one for one in self_test.self_test([other]) if one.instruction_set == other]
    assert [one.name for one in found] == list(REGISTRY)
    assert all(one.problem for one in found)
