"""The side-by-side benchmarks check what they time, and their figures are what was timed."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import re
import subprocess
import sys
import time
from importlib import import_module

import numpy as np
import pytest

import mask_targets
import shieldfl as sf
import shieldfl._seal_baseline as _seal_baseline
from authority_answers import measure_authorities, measure_authority
from documentation_pages import ROOT, doc, table_rows
from mask_targets import CLIENTS, negotiation_over_reading, voters
from shieldfl.lab.bench import others
from shieldfl.lab.bench.comparison import (
    PaillierCase,
    UpdateCase,
    authority_of,
    compare,
    grid,
    measure_paillier,
    own_scheme,
    own_schemes,
    paillier_baselines,
    paillier_parameters,
    parameter_sets,
)
from shieldfl.lab.bench.measurement import (
    Effort,
    Scheme,
    WrongSumError,
    measure,
    run_on_cores,
    select,
    to_fixed_point,
)
from shieldfl.masks import Mask
from target import at_least, at_most, median_seconds_in_turns

BENCH = ROOT / "bench"
ONCE = Effort(0.0, 1, 1, baseline_values=4096, fast_ciphertexts=8, medium_ciphertexts=8, slow_ciphertexts=2)
STAGES = ("encrypt", "serialise", "add", "close", "open")
BOTH = "encrypt and serialise"


def plain(
    off_by: float = 0.0, *, clear_off_by=0.0, most_values=None, values_per_ciphertext=1, calls=None, wait=0.0
) -> Scheme:
    """Encrypts nothing: the sum is the sum."""
    calls = [] if calls is None else calls

    def encrypt(selection):
        calls.append("encrypt")
        time.sleep(wait)
        return to_fixed_point(selection.values[:most_values]) / 2.0**20

    def add(total, frame):
        calls.append("add")
        total += np.frombuffer(frame) + off_by

    def add_with_clear(total, frame, clear):
        total += np.frombuffer(frame) + to_fixed_point(clear) / 2.0**20 + clear_off_by

    return Scheme(
        name="plain",
        setting="none",
        encrypt=encrypt,
        serialise=lambda encrypted: encrypted.tobytes(),
        start_sum=lambda frame: np.frombuffer(frame).copy(),
        add=add,
        add_with_clear=add_with_clear,
        open=lambda total: total,
        most_values=most_values,
        values_per_ciphertext=values_per_ciphertext,
        fraction_bits=20,
    )


def test_every_scheme_takes_its_turn_and_medians_are_per_value():
    calls: list[str] = []
    first, second = plain(calls=calls), plain()
    effort = Effort(seconds=0.0, fewest_repetitions=4, most_repetitions=9)
    figures = measure([first, second], select(500, 1.0), effort)
    assert calls.count("add") == 4
    assert calls.count("encrypt") == 5  # once more, to warm up
    for figure in figures:
        assert (figure.values, figure.repetitions, figure.bytes_per_value) == (500, 4, 8.0)
        assert set(figure.stage_ns) == {*STAGES, BOTH} - {"close"}
        assert all(0.0 < nanoseconds < 1e7 for nanoseconds in figure.stage_ns.values())
        assert figure.encrypt_and_serialise_ns >= max(figure.stage_ns[stage] for stage in STAGES[:2])
    (of_paillier,) = measure_paillier([plain(most_values=70, values_per_ciphertext=7)], effort)
    assert (of_paillier.values, of_paillier.values_per_ciphertext) == (70, 7)
    assert set(of_paillier.stage_ns) == {*STAGES, BOTH, "load", "add with plaintext"} - {"close"}


def test_the_cores_are_those_at_work():
    (figure,) = measure([plain(wait=0.1)], select(500, 1.0), ONCE)
    assert 0.0 <= figure.cores < 0.5
    assert figure.stage_ns["encrypt"] * 500 >= 0.1e9


def test_a_scheme_that_opens_something_else_is_no_result():
    with pytest.raises(WrongSumError):
        measure([plain(), plain(off_by=1e-9)], select(500, 1.0), ONCE)
    with pytest.raises(WrongSumError, match="plain opened a wrong sum of 10 values"):
        measure_paillier([plain(most_values=10, clear_off_by=2.0**-20)], ONCE)


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
        np.testing.assert_array_equal(selection.values, selection.mask.gather(selection.update))
        assert selection.values.size == pytest.approx(share * 20_000, rel=0.3)
    np.testing.assert_array_equal(selection.update, select(20_000, share).update)


def test_the_parameter_sets_are_what_their_names_say():
    sets = parameter_sets("ckks")
    assert len(set(sets.values())) == len(sets)
    assert {name for names in sets for name in names.split(" = ")} == {"default", "speed", "size", "16-bit"}
    assert next(iter(sets)).split(" = ")[0] == "default"
    assert next(iter(sets.values())) == sf.ckks.Parameters()
    for scheme in ("kahe", "pads"):
        for name, parameters in parameter_sets(scheme).items():
            bits, clients = map(int, name.removeprefix(f"{scheme} ").partition(",")[0].split("/"))
            assert (parameters._facts["value_bits"], parameters.max_clients) == (bits, clients)
    assert next(iter(parameter_sets("kahe").values())) == sf.kahe.Parameters()
    assert parameter_sets("kahe")["kahe 24/64, N = 8192"].ring_degree == 8192


@pytest.fixture(scope="module")
def single():
    return authority_of(paillier_parameters(2048), threads=1)


@pytest.fixture(scope="module")
def paillier_peers():
    """Those that are installed, by name: some search for their keys for seconds."""
    return {baseline.name: baseline for baseline in paillier_baselines(PaillierCase(2048, 1), ONCE)[0]}


def update_peers(threads: int = 1) -> list[Scheme]:
    found: list[Scheme] = [*others.seal_baselines(threads, 4096)]
    for make in (lambda: others.tenseal_baselines(threads, 4096), lambda: others.flower_baselines(4096)):
        with contextlib.suppress(ModuleNotFoundError):
            found += make()
    return [*found, others.plain_copy()]


@pytest.mark.parametrize("share", [0.1, 1.0])
@pytest.mark.parametrize("scheme", ["ckks", "kahe", "pads"])
def test_own_figures_are_those_of_real_frames(scheme, share):
    selection = select(5000, share)
    figures = measure(own_schemes(scheme, 1), selection, ONCE)
    for own, figure in zip(own_schemes(scheme, 1), figures, strict=True):
        frame = own.serialise(own.encrypt(selection))
        assert (figure.own, figure.scheme, figure.values) == (True, own.name, selection.values.size)
        assert figure.bytes_per_value == len(frame) / selection.values.size
        assert set(figure.stage_ns) == {*STAGES, BOTH}


@pytest.mark.parametrize("engine", [None, "gmp"])
def test_own_figures_of_paillier_are_those_of_real_frames(single, engine):
    scheme = own_scheme("single", single, 1, 9, engine=engine)
    (figure,) = measure_paillier([scheme], ONCE)
    frame = scheme.serialise(scheme.encrypt(select(9, 1.0)))
    assert (figure.own, figure.values_per_ciphertext) == (True, 1)
    assert figure.bytes_per_value == len(frame) / 9 > 512.0


def test_each_check_sees_a_value_that_is_off(single, paillier_peers):
    exact = [own_schemes(name, 1)[0] for name in ("ckks", "kahe", "pads")]
    exact += [own_scheme("single", single, 1, 8), *paillier_peers.values()]
    schemes = [(one, 2.0**-20) for one in exact] + [(one, 2.0**-11) for one in update_peers()]
    for scheme, off in schemes:
        selection = select(8 if off == 2.0**-20 else 100, 1.0)
        opened = scheme.opened(scheme.start_sum(scheme.serialise(scheme.encrypt(selection))))
        scheme.check(opened, selection.values, times=1)
        opened[1] += off
        with pytest.raises(WrongSumError, match=re.escape(scheme.name)):
            scheme.check(opened, selection.values, times=1)
        with pytest.raises(WrongSumError):
            scheme.check(opened[:5], selection.values, times=1)


@pytest.mark.parametrize("threads", [1, 2])
def test_other_libraries_open_what_went_in(threads):
    for figure in measure(update_peers(threads), select(6000, 1.0), ONCE):
        assert not figure.own
        if figure.scheme == "plain copy":
            assert (figure.bytes_per_value, figure.values) == (4.0, 6000)
        else:
            assert figure.values == 4096
            assert 8.0 < figure.bytes_per_value < 100.0
        if figure.scheme.startswith("Flower"):
            assert set(figure.stage_ns) == {"encrypt", "serialise", BOTH, "add"}


def test_phe_and_heu_open_what_went_in(paillier_peers):
    expected = {"phe + gmpy2": (2, 512), "HEU ZPaillier": (8, 512), "HEU OU": (8, 256)}
    for figure in measure_paillier([*paillier_peers.values()], ONCE) if paillier_peers else ():
        values, ciphertext_bytes = expected[figure.scheme]
        assert (figure.own, figure.values) == (False, values)
        assert figure.bytes_per_value == pytest.approx(ciphertext_bytes, rel=0.1)
    pytest.importorskip("phe")
    (figure,) = measure_paillier([others.phe_baseline(2048, 2, 3)], ONCE)
    assert (figure.values, figure.bytes_per_value) == (3, 512.0)


def test_a_client_of_flower_masks_by_its_defaults_by_itself_and_by_every_neighbour(monkeypatch):
    workflow = pytest.importorskip("flwr.server.workflow").SecAggPlusWorkflow
    utilities = import_module("flwr.common.secure_aggregation.secaggplus_utils")
    seeds, make = [], utilities.pseudo_rand_gen
    monkeypatch.setattr(
        utilities, "pseudo_rand_gen", lambda seed, *how: [seeds.append(seed), make(seed, *how)][1]
    )
    parameters = inspect.signature(workflow).parameters
    assert parameters["num_shares"].default is inspect.Parameter.empty
    names = ("clipping_range", "quantization_range", "modulus_range")
    clipping, quantised, modulus = (parameters[name].default for name in names)
    ranges = f"clipping range {clipping:g}, quantisation range {quantised:,}, modulus {modulus:,},"
    selection = select(2000, 1.0)
    for baseline, neighbours in zip(others.flower_baselines(4096), (2, 63), strict=True):
        seeds.clear()
        _, masked = baseline.encrypt(selection)
        assert len(seeds) == len(set(seeds)) == neighbours + 1
        assert 0 <= masked.min() <= masked.max() < modulus
        assert np.abs(np.corrcoef(masked, selection.values)[0, 1]) < 0.2
        shares = f"{neighbours + 1} shares, so {neighbours} neighbours"
        assert f"among 64 clients: {shares}, {ranges}" in baseline.setting


def test_the_documented_baselines_are_those_that_are_measured(paillier_peers):
    page = doc("docs/explanation/benchmarks.md")
    text = page.partition("## Who is compared")[2].partition("\n## ")[0]
    documented = dict(re.findall(r"^\| ((?:Ten)?SEAL \d+ \[.*?\]) \| (.*?) \|", text, re.MULTILINE))
    for baseline in update_peers():
        if "SEAL" in baseline.name:
            assert re.search(r"2\^\d+", baseline.setting).group() in documented[baseline.name]
    assert len(documented) == 5
    text = page.partition("\n## Paillier")[2].partition("\n## ")[0].partition("###")[0]
    named = re.findall(r"^\| ((?:shieldfl|phe|HEU) .*?) \|", text, re.MULTILINE)
    own = ["single", "single, vartime look-ups", "dense", "single, GMP engine", "single, classical"]
    assert named == [*(f"shieldfl {name}" for name in own), "phe + gmpy2", "HEU ZPaillier", "HEU OU"]
    assert set(paillier_peers) <= set(named)


@pytest.mark.parametrize("setting", [(2048, [55], 40), (2048, [54, 55], 40), (1000, [30], 20)])
def test_seal_refuses_what_is_not_128_bits_secure(setting):
    with pytest.raises(sf.ParameterError, match="SEAL refuses"):
        _seal_baseline.SealGeneralPath(*setting)


def test_seal_refuses_sums_of_different_sizes_and_bytes_from_outside():
    seal = _seal_baseline.SealGeneralPath(2048, [54], 40)
    values = np.ones(3000, np.float32)
    saved = seal.save(seal.encrypt(values[:1000]))
    with pytest.raises(sf.ParameterError, match="ciphertexts"):
        seal.load_and_add(saved, seal.encrypt(values))
    assert seal.values_per_ciphertext == 1024
    with pytest.raises(TypeError):
        seal.load(b"SEAL" * 10)


def test_comparison_has_every_case_and_becomes_json():
    seen: list[tuple[int, UpdateCase]] = []
    cases = grid(UpdateCase, [3000, 100], [0.5, 1.0], [1])
    comparison = compare(cases, effort=ONCE, on_case=lambda done, case: seen.append((done, case)))
    assert seen == list(enumerate(cases))
    facts = json.loads(json.dumps(comparison.to_json(), allow_nan=False))
    sizes = [(case["values"], case["share"], case["threads"]) for case in facts["cases"]]
    assert sizes == [(3000, 0.5, 1), (3000, 1.0, 1), (100, 0.5, 1), (100, 1.0, 1)]
    for case in facts["cases"]:
        own, *rest = case["figures"]
        assert own["scheme"].startswith("shieldfl default")
        assert (own["times_own"], own["values"]) == (1.0, case["selected"])
        assert any(figure["scheme"].startswith("SEAL") for figure in rest)
    machine = facts["machine"]
    assert machine["instruction_set"] == sf.build_info()["instruction_set"]
    assert machine["shieldfl"] == sf.__version__


@pytest.mark.parametrize("schemes", [("ckks",), ("kahe", "ckks"), ("pads",)])
def test_a_case_measures_the_schemes_that_it_names_and_nothing_else(schemes):
    comparison = compare(grid(UpdateCase, [300], [1.0], [1], [schemes]), baselines=False, effort=ONCE)
    of = [figure.scheme.split()[1] for figure in comparison.cases[0].figures]
    found = [name if name in ("kahe", "pads") else "ckks" for name in of]
    assert tuple(dict.fromkeys(found)) == schemes
    assert comparison.missing == []


@pytest.mark.parametrize(
    ("case", "axes"),
    [
        (UpdateCase, ([0], [1.0], [1])),
        (UpdateCase, ([10], [float("nan")], [1])),
        (UpdateCase, ([10], [1.0], [1], [()])),
        (UpdateCase, ([10], [1.0], [1], [("bfv",)])),
        (PaillierCase, ([1024], [1])),
        (PaillierCase, ([2048, 2049], [1])),
    ],
)
def test_a_case_out_of_range_is_refused(case, axes):
    with pytest.raises(sf.ParameterError):
        grid(case, *axes)


def test_what_is_missing_is_left_out_and_named(monkeypatch):
    # Those that were imported before are found without their package.
    for name in ("phe", "heu", "heu.phe", *others.FLOWER.packages):
        monkeypatch.setitem(sys.modules, name, None)
    schemes, missing = paillier_baselines(PaillierCase(2048, 1), ONCE)
    assert schemes == []
    assert [line.partition("pip install ")[2] for line in missing] == ["phe gmpy2", "sf-heu"]
    comparison = compare(grid(UpdateCase, [100], [1.0], [1]), effort=ONCE)
    (line,) = [line for line in comparison.missing if "Flower" in line]
    assert re.search(r"pip install .*\bflwr\b", line)
    names = [figure.scheme for figure in comparison.cases[0].figures]
    assert not any(name.startswith("Flower") for name in names)
    assert names[-1] == "plain copy"


def test_a_bound_process_has_as_many_cores_as_it_may_use(capfd):
    here = os.sched_getaffinity(0)
    assert len(run_on_cores(1, os.sched_getaffinity, 0)) == 1
    assert run_on_cores(4096, os.sched_getaffinity, 0) == os.sched_getaffinity(0) == here
    run_on_cores(1, os.system, "echo what a library logs")
    assert capfd.readouterr().out == ""
    with pytest.raises(sf.ParameterError, match="1000"):
        run_on_cores(1, grid, PaillierCase, [1000], [1])


def test_an_authority_is_measured_with_as_many_clients_and_values_as_asked_for():
    for clients in (2, 20):
        figure = measure_authority(sf.kahe.Parameters(max_clients=clients), clients, 1, 3)
        assert figure.clients == clients
        assert figure.seconds > 0.0
        # An answer has bits for a coefficient of the sum of all secrets, a request 20 bytes for each client.
        assert figure.answer_bytes > 4096 * np.ceil(np.log2(2 * 42 * clients)) / 8
        assert figure.request_bytes > 20 * clients
    readings = iter(range(7, 700, 7))
    parameter_sets = {"kahe": sf.kahe.Parameters(max_clients=3), "pads": sf.pads.Parameters(max_clients=3)}
    figures = measure_authorities(parameter_sets, 3, 1, 2, 1_500, lambda: float(next(readings)))
    assert [(name, figure.seconds) for name, figure in figures.items()] == [("kahe", 7.0), ("pads", 7.0)]
    assert figures["pads"].answer_bytes == 132 + 2 * 1024 * 26 // 8
    assert figures["kahe"].answer_bytes == 132 + 4096 * 8 // 8


def test_an_authority_s_wrong_key_is_no_figure(monkeypatch):
    monkeypatch.setattr("authority_answers.open_total", lambda *how, **named: (np.zeros(100), None))
    with pytest.raises(WrongSumError, match="3 clients"):
        measure_authority(sf.kahe.Parameters(max_clients=3), 3, 1, 1)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["updates", "paillier"])
def test_every_bar_is_measured(which):
    pytest.importorskip("torch")
    pytest.importorskip("typer")
    command = [sys.executable, str(BENCH / "baselines.py"), which, "--targets", "--quick", "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    targets = json.loads(done.stdout)["targets"]
    figures = " ".join(target["figure"] for target in targets)
    # Of every kernel and scheme that has bars, one at least.
    kinds = ("TenSEAL", "wire", "kahe", "pads", "negotiate", "authority", "discrete noise")
    for words in kinds if which == "updates" else ("phe", "HEU", "two threads", "extra peak"):
        assert words in figures, words
    for target in targets:
        if target["measured"] is None:
            allowed = ("SHIELDFL_SIMD asks", "PermissionError", "pip install", "one core")
            assert any(reason in target["note"] for reason in allowed)
            assert target["verdict"] == "not measured"
        else:
            assert target["measured"] > 0.0
            asked = ("stretch", "met", "missed") if target["target"] is not None else ("",)
            assert target["verdict"] in asked


@pytest.mark.slow
def test_four_figures_have_the_rows_that_the_readme_has(capsys):
    for package in ("torch", "tenseal", "flwr"):
        pytest.importorskip(package)
    import_module("four_figures").main(["--quick"])
    printed = table_rows(capsys.readouterr().out, "protection")
    documented = table_rows(doc("README.md"), "protection")
    assert [(row[0], row[-1]) for row in printed] == [(row[0], row[-1]) for row in documented]
    assert np.ptp([float(row[3]) for row in printed]) < 1.0


@pytest.mark.parametrize("positions", [1, 64, 65, 5000])
def test_what_is_read_are_the_masks_that_are_negotiated(monkeypatch, positions):
    seen = {}

    def in_turns(functions, repetitions, before):
        seen["result"] = functions["negotiate"]()
        seen["read"] = {name: function() for name, function in functions.items() if name != "negotiate"}
        seen["elsewhere"] = before.__self__
        return {"negotiate": 3.0, "sum": 2.0, "XOR": 1.0, "maximum": 4.0}

    monkeypatch.setattr(mask_targets, "median_seconds_in_turns", in_turns)
    line = negotiation_over_reading(positions, 1)
    chosen = voters(positions)
    np.testing.assert_array_equal(seen["result"].to_bool(), chosen.sum(axis=0) >= 4)
    # The bitmap is the end of a dense mask's frame; here it is made anew from its bits.
    for row, total in zip(chosen, seen["read"]["sum"], strict=True):
        bitmap = sum(1 << int(position) for position in Mask.from_bool(row).to_indices())
        words = [bitmap >> shift & (2**64 - 1) for shift in range(0, positions, 64)]
        assert int(total) == sum(words) % 2**64
    assert seen["elsewhere"].nbytes >= 8 * CLIENTS * positions // 8
    assert (line.measured, line.target, line.verdict) == (3.0, 1.25, "missed")


def test_what_comes_before_is_not_timed_and_each_has_its_turn():
    calls = []
    now = iter(range(1000))

    def call(name):
        calls.append(name)
        next(now)

    seconds = median_seconds_in_turns(
        {name: lambda name=name: call(name) for name in "ab"}, 3, before=lambda: call("-")
    )
    assert calls == ["a", "b", *["-", "a", "-", "b"] * 3]
    assert set(seconds) == {"a", "b"}


def test_a_verdict_compares_with_what_is_asked():
    verdicts = ["missed", "met", "stretch"]
    assert [at_most("x", value, 2.0, 1.0).verdict for value in (3.0, 2.0, 1.0)] == verdicts
    assert [at_least("x", value, 2.0, 3.0).verdict for value in (1.0, 2.0, 3.0)] == verdicts
    assert at_most("x", None, 2.0, 1.0).verdict == "not measured"
    assert at_most("x", 0.5, 2.0).verdict == "met"
    assert at_most("x", 0.5, None).verdict == ""
