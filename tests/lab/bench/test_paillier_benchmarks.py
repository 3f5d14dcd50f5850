"""Paillier's side-by-side benchmark: equal cores for everybody, sums that are checked, baselines that are as stated."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import shieldfl as sf
from shieldfl.lab.bench import comparison as comparisons
from shieldfl.lab.bench.comparison import (
    CaseResult,
    PaillierCase,
    compare,
    grid,
    measure_paillier,
    paillier_baselines,
)
from shieldfl.lab.bench.measurement import Ciphertexts, Effort, StageClock, run_on_cores
from shieldfl.lab.bench.others import _Phe, phe_baseline
from shieldfl.lab.bench.own import OwnScheme, authority_of, paillier_parameters
from shieldfl.lab.bench.scheme import Scheme, WrongSumError, select, to_fixed_point

BENCH = Path(__file__).resolve().parents[3] / "bench"
FEW = Ciphertexts(fast=8, medium=8, slow=2)
ONCE = Effort(seconds=0.0, fewest_repetitions=1, most_repetitions=1, ciphertexts=FEW)
STAGES = {
    "encrypt",
    "serialise",
    "load",
    "add",
    "add with plaintext",
    "open",
    "encrypt and serialise",
}


class Plain(Scheme):
    """Encrypts nothing: the sum is the sum."""

    def __init__(self, values_per_ciphertext: int = 1, clear_off_by: float = 0.0) -> None:
        super().__init__(
            "plain",
            "none",
            10 * values_per_ciphertext,
            values_per_ciphertext=values_per_ciphertext,
            fraction_bits=20,
        )
        self._clear_off_by = clear_off_by

    def encrypt(self, selection):
        return to_fixed_point(self.sample(selection)) / 2.0**20

    def serialise(self, encrypted):
        return encrypted.tobytes()

    def load(self, frame):
        return np.frombuffer(frame)

    def start_sum(self, frame):
        return self.load(frame).copy()

    def add(self, total, frame):
        total += frame

    def add_with_clear(self, total, loaded, clear):
        total += loaded + to_fixed_point(clear) / 2.0**20 + self._clear_off_by

    def open(self, closed):
        return closed


@pytest.fixture(scope="module")
def authority():
    return authority_of(paillier_parameters(2048), threads=1)


@pytest.fixture(scope="module")
def baselines():
    """Those that are installed, by name: some search for their keys for seconds."""
    return {baseline.name: baseline for baseline in paillier_baselines(PaillierCase(2048, 1), FEW)[0]}


def test_figures_are_of_the_ciphertexts_that_were_asked_for():
    (figure,) = measure_paillier([Plain(values_per_ciphertext=7)], Effort(0.0, 3, 3))
    assert (figure.values, figure.repetitions, figure.bytes_per_value) == (70, 3, 8.0)
    assert set(figure.stage_ns) == STAGES
    for stage in STAGES:
        assert figure.ciphertext_us(stage) == pytest.approx(7 * figure.stage_ns[stage] / 1e3)


def test_a_sum_with_wrong_values_in_the_clear_is_no_result():
    with pytest.raises(WrongSumError, match="plain opened a wrong sum of 10 values"):
        measure_paillier([Plain(clear_off_by=2.0**-20)], ONCE)


def test_the_clock_tells_work_from_waiting():
    clock = StageClock()
    with clock("waiting"):
        time.sleep(0.2)
    (seconds,), (processor_seconds,) = clock.seconds["waiting"], clock.processor_seconds["waiting"]
    assert seconds >= 0.2
    assert 0.0 <= processor_seconds < 0.5 * seconds


def test_a_bound_process_has_as_many_cores_as_it_may_use(capfd):
    here = os.sched_getaffinity(0)
    assert len(run_on_cores(1, os.sched_getaffinity, 0)) == 1
    assert run_on_cores(4096, os.sched_getaffinity, 0) == here
    assert os.sched_getaffinity(0) == here
    assert run_on_cores(1, os.getpid) != os.getpid()
    run_on_cores(1, os.system, "echo what a library logs")
    assert capfd.readouterr().out == ""


def test_a_bound_process_raises_here_what_it_raises_there():
    with pytest.raises(sf.ParameterError, match="1000"):
        run_on_cores(1, grid, PaillierCase, [1000], [1])


@pytest.mark.parametrize("threads", [1, 2])
def test_phe_opens_what_went_in(threads):
    pytest.importorskip("phe")
    pytest.importorskip("gmpy2")
    (each,) = measure_paillier([phe_baseline(2048, threads, 3)], ONCE)
    assert (each.own, each.values, each.bytes_per_value) == (False, 3, 512.0)


def test_phe_without_gmpy2_is_not_compared_with():
    slow = SimpleNamespace(util=SimpleNamespace(HAVE_GMP=False))
    with pytest.raises(ModuleNotFoundError, match="pip install phe gmpy2"):
        _Phe(slow, None, 2048, 1, 1)


def test_heu_opens_what_went_in(baselines):
    pytest.importorskip("heu")
    paillier, okamoto_uchiyama = measure_paillier([baselines["HEU ZPaillier"], baselines["HEU OU"]], ONCE)
    for each, ciphertext_bytes in ((paillier, 512), (okamoto_uchiyama, 256)):
        assert not each.own
        assert each.values == FEW.medium
        assert each.bytes_per_value == pytest.approx(ciphertext_bytes, rel=0.1)


def test_a_baseline_s_check_sees_the_last_bit(baselines):
    for baseline in baselines.values():
        selection = select(8, 1.0)
        opened = baseline.open(baseline.start_sum(baseline.serialise(baseline.encrypt(selection))))
        baseline.check(opened, selection.values, times=1)
        opened[1] += 2.0**-20
        with pytest.raises(WrongSumError, match=re.escape(baseline.name)):
            baseline.check(opened, selection.values, times=1)


def test_baselines_that_are_missing_are_named(monkeypatch):
    for name in ("phe", "heu", "heu.phe"):
        monkeypatch.setitem(sys.modules, name, None)
    schemes, missing = paillier_baselines(PaillierCase(2048, 1), FEW)
    assert schemes == []
    assert [line.partition("pip install ")[2] for line in missing] == ["phe gmpy2", "sf-heu"]


@pytest.mark.parametrize("engine", [None, "gmp"])
def test_own_figures_are_those_of_real_frames(authority, engine):
    scheme = OwnScheme("single", authority, 1, 9, engine=engine)
    (each,) = measure_paillier([scheme], ONCE)
    frame = scheme.serialise(scheme.encrypt(select(9, 1.0)))
    assert each.own
    assert each.values_per_ciphertext == 1
    assert each.bytes_per_value == len(frame) / 9 > 512.0


def test_own_check_is_exact(authority):
    scheme = OwnScheme("single", authority, 1, 9)
    selection = select(9, 1.0)
    opened = scheme.open(scheme.start_sum(scheme.serialise(scheme.encrypt(selection))).total())
    scheme.check(opened, selection.values, times=1)
    opened[7] += 2.0**-20
    with pytest.raises(WrongSumError):
        scheme.check(opened, selection.values, times=1)


@pytest.mark.parametrize(("key_bits", "threads"), [([1024], [1]), ([2048, 2049], [1]), ([2048], [0])])
def test_a_case_out_of_range_is_refused(key_bits, threads):
    with pytest.raises(sf.ParameterError):
        grid(PaillierCase, key_bits, threads)


def test_each_case_is_measured_in_turn_on_its_own_cores(monkeypatch):
    seen: list[tuple[int, PaillierCase]] = []
    bound: list[tuple[int, PaillierCase]] = []

    def run(cores, function, case, *others):
        bound.append((cores, case))
        return [], [f"missing at {case.key_bits}"]

    monkeypatch.setattr(comparisons, "run_on_cores", run)
    cases = grid(PaillierCase, [2048, 3072], [1, 2])
    comparison = compare(cases, effort=ONCE, on_case=lambda done, case: seen.append((done, case)))
    assert seen == list(enumerate(cases))
    assert bound == [(case.threads, case) for case in cases]
    assert comparison.cases == [CaseResult(case, []) for case in cases]
    assert [(case.key_bits, case.threads) for case in cases] == [(2048, 1), (2048, 2), (3072, 1), (3072, 2)]
    assert comparison.missing == ["missing at 3072"]


@pytest.mark.slow
def test_comparison_becomes_json():
    comparison = compare(grid(PaillierCase, [2048], [1]), effort=ONCE)
    facts = json.loads(json.dumps(comparison.to_json(), allow_nan=False))
    assert [(case["key_bits"], case["threads"]) for case in facts["cases"]] == [(2048, 1)]
    for case in facts["cases"]:
        own = [figure for figure in case["figures"] if figure["own"]]
        assert [figure["scheme"] for figure in own] == [
            f"shieldfl {name}"
            for name in (
                "single",
                "single, vartime look-ups",
                "dense",
                "single, GMP engine",
                "single, classical",
            )
        ]
        dense = own[2]
        assert dense["values"] == FEW.fast * dense["values_per_ciphertext"] > 60 * FEW.fast
        assert own[3]["setting"].endswith("engine='gmp', decrypting with the fastest")
    one_core = facts["cases"][0]["figures"]
    assert all(figure["cores"] < 1.1 for figure in one_core)


def test_the_documented_baselines_are_those_that_are_measured(baselines):
    page = (BENCH.parent / "docs" / "benchmarks.md").read_text()
    text = page.partition("\n## Paillier")[2].partition("\n## ")[0]
    documented = re.findall(r"^\| ((?:shieldfl|phe|HEU) .*?) \|", text.partition("###")[0], re.MULTILINE)
    own = ["single", "single, vartime look-ups", "dense", "single, GMP engine", "single, classical"]
    assert documented == [*(f"shieldfl {name}" for name in own), "phe + gmpy2", "HEU ZPaillier", "HEU OU"]
    assert set(baselines) <= set(documented)


@pytest.mark.slow
def test_every_bar_is_measured():
    pytest.importorskip("typer")
    done = subprocess.run(
        [sys.executable, str(BENCH / "baselines.py"), "paillier", "--targets", "--quick", "--json", "-"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    targets = json.loads(done.stdout)["targets"]
    assert len(targets) == 11
    for target in targets:
        if target["measured"] is None:
            allowed = ("pip install", "one core", "PermissionError")
            assert any(reason in target["note"] for reason in allowed)
            assert target["verdict"] == "not measured"
        else:
            assert target["measured"] > 0.0
            assert target["verdict"] in ("stretch", "met", "missed")
