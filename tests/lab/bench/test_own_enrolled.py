"""Schemes with clients that enrol in the comparisons: real frames, an authority's answer, sums that are right."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import shieldfl as sf
from documentation_pages import ROOT
from shieldfl.lab.bench import Effort, UpdateCase, compare, grid
from shieldfl.lab.bench.lines import (
    authority_lines,
    measure_authorities,
    measure_authority,
)
from shieldfl.lab.bench.measurement import STAGES, measure
from shieldfl.lab.bench.own import (
    EnrolledScheme,
    EnrolledSession,
    enrolled_parameter_sets,
    own_enrolled,
)
from shieldfl.lab.bench.scheme import WrongSumError, select

ONCE = Effort(0.0, 1, 1, baseline_values=4096, mask_positions=2000)


def test_the_parameter_sets_are_what_their_names_say():
    for name, parameters in enrolled_parameter_sets("kahe").items():
        bits, clients = map(int, name.removeprefix("kahe ").partition(",")[0].split("/"))
        assert (parameters._facts["value_bits"], parameters.max_clients) == (bits, clients)
        assert parameters.ring_degree == (8192 if "8192" in name else 4096)
    assert next(iter(enrolled_parameter_sets("kahe").values())) == sf.kahe.Parameters()


@pytest.mark.parametrize("share", [0.1, 1.0])
def test_figures_are_those_of_real_frames_and_every_stage_has_one(share):
    selection = select(5000, share)
    ours = [*own_enrolled("kahe", 1), *own_enrolled("pads", 1)]
    for scheme, figure in zip(ours, measure(ours, selection, ONCE), strict=True):
        frame = scheme.serialise(scheme.encrypt(selection))
        assert figure.own
        assert figure.scheme == scheme.name
        assert figure.bytes_per_value == len(frame) / selection.values.size
        assert set(figure.stage_ns) == {*STAGES, "encrypt and serialise"}


def opened(scheme: EnrolledScheme, selection, times: int):
    total = scheme.start_sum(scheme.serialise(scheme.encrypt(selection)))
    for _ in range(times - 1):
        scheme.add(total, scheme.serialise(scheme.encrypt(selection)))
    return scheme.open(scheme.answer(scheme.close(total)))


@pytest.mark.parametrize("own", ["kahe", "pads"])
def test_the_check_is_exact(own):
    scheme, selection = own_enrolled(own, 1)[0], select(100, 1.0)
    sums = opened(scheme, selection, times=2)
    scheme.check(sums, selection.values, times=2)
    sums[7] += 2.0**-20
    with pytest.raises(WrongSumError):
        scheme.check(sums, selection.values, times=2)


@pytest.mark.parametrize("own", ["kahe", "pads"])
def test_nothing_opens_without_the_authority_s_answer(own):
    scheme, selection = own_enrolled(own, 1)[0], select(100, 1.0)
    total, _ = scheme.close(scheme.start_sum(scheme.serialise(scheme.encrypt(selection))))
    other = scheme.close(scheme.start_sum(scheme.serialise(scheme.encrypt(selection))))
    _, key_of_other = scheme.answer(other)
    with pytest.raises(sf.KeyMismatchError):
        scheme.open((total, key_of_other))


def test_an_authority_that_answers_for_others_is_a_wrong_sum_or_an_error():
    class Forgetful(EnrolledSession):
        def answer(self, request, participants, threads):
            return super().answer(request, participants[:-1], threads)

    scheme = EnrolledScheme("forgetful", Forgetful(sf.kahe.Parameters(), 2), 1)
    with pytest.raises(sf.ShieldError):
        opened(scheme, select(100, 1.0), times=2)


@pytest.mark.parametrize("clients", [2, 20])
def test_the_authority_is_measured_with_as_many_clients_as_asked_for(clients):
    figure = measure_authority(sf.kahe.Parameters(max_clients=clients), clients, 1, 3)
    assert figure.clients == clients
    assert figure.seconds > 0.0
    # An answer has bits for a coefficient of the sum of all secrets, a request 20 bytes for each client.
    assert figure.answer_bytes > 4096 * np.ceil(np.log2(2 * 42 * clients)) / 8
    assert figure.request_bytes > 20 * clients
    assert f"answer of {figure.answer_bytes:,}" in figure.note


def test_authorities_of_both_schemes_take_turns_by_the_clock_that_is_given():
    readings = []

    def clock():
        readings.append(len(readings))
        return 7.0 * len(readings)

    parameter_sets = {"kahe": sf.kahe.Parameters(max_clients=3), "pads": sf.pads.Parameters(max_clients=3)}
    figures = measure_authorities(parameter_sets, 3, 1, 2, 1_500, clock)
    assert list(figures) == ["kahe", "pads"]
    assert [figure.seconds for figure in figures.values()] == [7.0, 7.0]
    assert len(readings) == 2 * 2 * 2
    assert figures["pads"].answer_bytes == 132 + 2 * 1024 * 26 // 8
    assert figures["kahe"].answer_bytes == 132 + 4096 * 8 // 8


def test_the_table_of_both_authorities_has_a_row_for_each_number_of_clients_and_values():
    script = ROOT / "bench" / "pads_beside_kahe.py"
    command = [sys.executable, str(script), "--quick"]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    rows = [line.strip("| ").split(" | ") for line in printed.splitlines() if line[:3] in ("| 2", "| 3")]
    assert [row[:2] for row in rows] == [[c, v] for c in "23" for v in ("100", "2,000")]
    for _, _, pads_ms, kahe_ms, ratio, *_ in rows:
        assert float(ratio) == pytest.approx(float(pads_ms) / float(kahe_ms), rel=0.2)


def test_an_authority_s_wrong_key_is_no_figure(monkeypatch):
    def off(*arguments, **options):
        return np.zeros(100), None

    monkeypatch.setattr("shieldfl.lab.bench.lines.open_total", off)
    with pytest.raises(WrongSumError, match="3 clients"):
        measure_authority(sf.kahe.Parameters(max_clients=3), 3, 1, 1)


def test_a_line_for_each_parameter_set_with_all_its_clients():
    lines = list(authority_lines("kahe", 1, 1))
    sets = enrolled_parameter_sets("kahe")
    assert [line.figure for line in lines] == [
        f"authority of {name}: answer for {parameters.max_clients:,} clients with 100 values, 1 thread"
        for name, parameters in sets.items()
    ]
    assert all(line.measured > 0.0 and line.verdict == "" for line in lines)


def test_under_pads_the_authority_is_measured_by_clients_and_values():
    first = next(iter(enrolled_parameter_sets("pads").values()))
    few, many = (measure_authority(first, 3, 1, 1, values) for values in (1_000, 5_000))
    assert many.answer_bytes > 4.5 * few.answer_bytes > 4.5 * 3.7 * 1_000
    lines = list(authority_lines("pads", 1, 1))
    assert ["for 4 clients with 1,000,000" in line.figure for line in lines] == [True, False]
    assert all(line.measured > 0.0 and line.verdict == "" for line in lines)


@pytest.mark.parametrize("schemes", [("ckks",), ("kahe", "ckks"), ("pads",), ("ckks", "kahe", "pads")])
def test_a_case_measures_the_schemes_that_it_names_and_an_authority_where_one_has_it(schemes):
    cases = grid(UpdateCase, [300], [1.0], [1], [schemes])
    comparison = compare(cases, baselines=False, effort=ONCE)
    for result in comparison.cases:
        of = [figure.scheme.split()[1] for figure in result.figures]
        assert {name if name in ("kahe", "pads") else "ckks" for name in of} == set(schemes)
        assert (of[0] if of[0] in ("kahe", "pads") else "ckks") == schemes[0]
    figures = [line.figure for line in comparison.lines]
    authorities = [figure for figure in figures if figure.startswith("authority")]
    expected = len(enrolled_parameter_sets("kahe")) * ("kahe" in schemes) + 2 * ("pads" in schemes)
    assert len(authorities) == expected
    assert figures[len(authorities) :] == ["negotiate 20 masks of 2,000, over reading them once"]
    assert comparison.to_json()["lines"][-1]["target"] == 1.25


def test_a_case_without_a_scheme_is_refused():
    for schemes in ((), ("bfv",)):
        with pytest.raises(sf.ParameterError):
            grid(UpdateCase, [300], [1.0], [1], [schemes])
