"""The side-by-side benchmarks: that they check what they time, and that their figures are what was timed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import shieldfl as sf
import shieldfl._seal_baseline as _seal_baseline
from shieldfl.lab.bench import Comparison, Effort, UpdateCase, compare, grid
from shieldfl.lab.bench.measurement import STAGES, measure
from shieldfl.lab.bench.others import seal_baselines, tenseal_baselines
from shieldfl.lab.bench.own import OwnScheme, authority_of, own_ckks, parameter_sets
from shieldfl.lab.bench.scheme import Scheme, WrongSumError, select

BENCH = Path(__file__).resolve().parents[3] / "bench"
ONCE = Effort(
    seconds=0.0, fewest_repetitions=1, most_repetitions=1, baseline_values=4096, mask_positions=2000
)


class Plain(Scheme):
    """Encrypts nothing: the sum is the sum."""

    def __init__(self, off_by: float = 0.0) -> None:
        super().__init__("plain", "none")
        self.calls: list[str] = []
        self._off_by = off_by

    def encrypt(self, selection):
        self.calls.append("encrypt")
        return selection.values.astype(np.float64)

    def serialise(self, encrypted):
        self.calls.append("serialise")
        return encrypted.tobytes()

    def start_sum(self, frame):
        return np.frombuffer(frame).copy()

    def add(self, total, frame):
        self.calls.append("add")
        total += np.frombuffer(frame) + self._off_by

    def open(self, closed):
        self.calls.append("open")
        return closed


def test_every_scheme_takes_its_turn_and_medians_are_per_value():
    first, second = Plain(), Plain()
    effort = Effort(seconds=0.0, fewest_repetitions=4, most_repetitions=9)
    figures = measure([first, second], select(500, 1.0), effort)
    assert first.calls.count("add") == second.calls.count("add") == 4
    assert first.calls.count("encrypt") == 5  # once more, to warm up
    for figure in figures:
        assert (figure.values, figure.repetitions, figure.bytes_per_value) == (500, 4, 8.0)
        assert set(figure.stage_ns) == {*STAGES, "encrypt and serialise"} - {"close"}
        assert all(0.0 < nanoseconds < 1e7 for nanoseconds in figure.stage_ns.values())
        both = figure.encrypt_and_serialise_ns
        assert both >= max(figure.stage_ns["encrypt"], figure.stage_ns["serialise"])


def test_a_scheme_that_opens_something_else_is_no_result():
    with pytest.raises(WrongSumError):
        measure([Plain(), Plain(off_by=1e-9)], select(500, 1.0), ONCE)


def test_effort_stops_at_the_most_repetitions():
    effort = Effort(seconds=100.0, fewest_repetitions=2, most_repetitions=3)
    assert [effort.is_enough(count, 1.0) for count in range(4)] == [False, False, False, True]
    assert effort.is_enough(2, 101.0)
    assert not effort.is_enough(1, 101.0)


@pytest.mark.parametrize("share", [0.01, 0.5, 1.0])
def test_a_selection_is_what_the_mask_gathers(share):
    selection = select(20_000, share)
    assert selection.update.dtype == selection.values.dtype == np.float32
    if share == 1.0:
        assert selection.mask is None
        assert selection.values is selection.update
    else:
        assert selection.mask is not None
        np.testing.assert_array_equal(selection.values, selection.mask.gather(selection.update))
        assert selection.values.size == pytest.approx(share * 20_000, rel=0.3)
    np.testing.assert_array_equal(selection.update, select(20_000, share).update)


def test_parameter_sets_that_are_equal_are_measured_once():
    sets = parameter_sets()
    assert len(set(sets.values())) == len(sets)
    assert {name for names in sets for name in names.split(" = ")} == {"default", "speed", "size", "16-bit"}
    assert next(iter(sets)).split(" = ")[0] == "default"
    assert next(iter(sets.values())) == sf.ckks.Parameters()
    assert [scheme.own for scheme in own_ckks(1)] == [True] * len(sets)


@pytest.mark.parametrize("share", [0.1, 1.0])
def test_own_figures_are_those_of_real_frames(share):
    scheme = OwnScheme("default", authority_of(sf.ckks.Parameters(), 1), 1)
    selection = select(5000, share)
    (figure,) = measure([scheme], selection, ONCE)
    frame = scheme.serialise(scheme.encrypt(selection))
    assert figure.values == selection.values.size
    assert figure.bytes_per_value == len(frame) / selection.values.size


def test_own_check_is_exact():
    scheme = OwnScheme("default", authority_of(sf.ckks.Parameters(), 1), 1)
    selection = select(100, 1.0)
    opened = scheme.open(scheme.start_sum(scheme.serialise(scheme.encrypt(selection))).total())
    scheme.check(opened, selection.values, times=1)
    opened[7] += 2.0**-20
    with pytest.raises(WrongSumError):
        scheme.check(opened, selection.values, times=1)


def baselines(threads: int = 1) -> list[Scheme]:
    found: list[Scheme] = [*seal_baselines(threads, 4096)]
    try:
        return [*found, *tenseal_baselines(threads, 4096)]
    except ModuleNotFoundError:
        return found


@pytest.mark.parametrize("threads", [1, 2])
def test_baselines_open_what_went_in(threads):
    selection = select(6000, 1.0)
    for figure in measure(baselines(threads), selection, ONCE):
        assert not figure.own
        assert figure.values == 4096
        assert 10.0 < figure.bytes_per_value < 100.0


def test_the_documented_baselines_are_those_that_are_measured():
    page = (BENCH.parent / "docs" / "benchmarks.md").read_text()
    text = page.partition("## Who is compared")[2].partition("\n## ")[0]
    documented = dict(re.findall(r"^\| ((?:Ten)?SEAL \d+ \[.*?\]) \| (.*?) \|", text, re.MULTILINE))
    for baseline in baselines():
        scale = re.search(r"2\^\d+", baseline.setting)
        assert scale is not None
        assert scale.group() in documented[baseline.name]
    assert len(documented) == 5


def test_a_baseline_s_check_sees_a_value_that_is_off():
    for baseline in baselines():
        selection = select(100, 1.0)
        opened = baseline.open(baseline.start_sum(baseline.serialise(baseline.encrypt(selection))))
        baseline.check(opened, selection.values, times=1)
        opened[3] += 2.0**-11
        with pytest.raises(WrongSumError, match="off by"):
            baseline.check(opened, selection.values, times=1)
        with pytest.raises(WrongSumError):
            baseline.check(opened[:50], selection.values, times=1)


def test_tenseal_is_installed_where_everything_is_tested():
    tenseal = pytest.importorskip("tenseal")
    assert len(tenseal_baselines(1, 4096)) == 3
    assert tenseal.__version__ in tenseal_baselines(1, 4096)[0].setting


@pytest.mark.parametrize("setting", [(2048, [55], 40), (2048, [54, 55], 40), (1000, [30], 20)])
def test_seal_refuses_what_is_not_128_bits_secure(setting):
    with pytest.raises(sf.ParameterError, match="SEAL refuses"):
        _seal_baseline.SealGeneralPath(*setting)


def test_seal_refuses_sums_of_different_sizes():
    seal = _seal_baseline.SealGeneralPath(2048, [54], 40)
    values = np.ones(3000, np.float32)
    saved = seal.save(seal.encrypt(values[:1000]))
    with pytest.raises(sf.ParameterError, match="ciphertexts"):
        seal.load_and_add(saved, seal.encrypt(values))
    assert seal.values_per_ciphertext == 1024


def test_seal_s_parser_takes_no_bytes_from_outside():
    with pytest.raises(TypeError):
        _seal_baseline.SealGeneralPath(2048, [54], 40).load(b"SEAL" * 10)


def test_comparison_has_every_case_and_becomes_json():
    seen: list[tuple[int, UpdateCase]] = []
    cases = grid(UpdateCase, [3000, 100], [0.5, 1.0], [1])
    comparison = compare(cases, effort=ONCE, on_case=lambda done, case: seen.append((done, case)))
    assert isinstance(comparison, Comparison)
    assert seen == list(enumerate(cases))
    facts = json.loads(json.dumps(comparison.to_json(), allow_nan=False))
    assert [(case["values"], case["share"], case["threads"]) for case in facts["cases"]] == [
        (3000, 0.5, 1),
        (3000, 1.0, 1),
        (100, 0.5, 1),
        (100, 1.0, 1),
    ]
    for case in facts["cases"]:
        own, *others = case["figures"]
        assert own["scheme"].startswith("shieldfl default")
        assert own["times_own"] == 1.0
        assert own["values"] == case["selected"]
        assert any(figure["scheme"].startswith("SEAL") for figure in others)
    machine = facts["machine"]
    assert machine["instruction_set"] == sf.build_info()["instruction_set"]
    assert machine["shieldfl"] == sf.__version__


@pytest.mark.parametrize(
    ("values", "shares", "threads"),
    [
        ([0], [1.0], [1]),
        ([10], [0.0], [1]),
        ([10], [1.5], [1]),
        ([10], [float("nan")], [1]),
        ([10], [1.0], [0]),
    ],
)
def test_a_case_out_of_range_is_refused(values, shares, threads):
    with pytest.raises(sf.ParameterError):
        grid(UpdateCase, values, shares, threads)


def test_without_baselines_nothing_else_is_measured():
    comparison = compare(grid(UpdateCase, [100], [1.0], [1]), baselines=False, effort=ONCE)
    assert all(figure.own for figure in comparison.cases[0].figures)
    assert comparison.missing == []


@pytest.mark.slow
def test_every_bar_is_measured():
    pytest.importorskip("torch")
    pytest.importorskip("typer")
    done = subprocess.run(
        [sys.executable, str(BENCH / "baselines.py"), "--targets", "--quick", "--json", "-"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    targets = json.loads(done.stdout)["targets"]
    figures = " ".join(target["figure"] for target in targets)
    # Of every kernel and scheme that has bars, one at least.
    for words in ("TenSEAL", "wire", "kahe", "pads", "negotiate", "authority", "discrete noise"):
        assert words in figures, words
    unmeasured = [target for target in targets if target["measured"] is None]
    allowed = ("SHIELDFL_SIMD asks", "PermissionError", "pip install", "one core")
    for target in unmeasured:
        assert any(reason in target["note"] for reason in allowed)
        assert target["verdict"] == "not measured"
    for target in targets:
        if target["measured"] is not None:
            assert target["measured"] > 0.0
            asked = ("stretch", "met", "missed") if target["target"] is not None else ("",)
            assert target["verdict"] in asked
