"""Scripts of bench/ that measure many clients, exact sums and state dicts: in small."""

from __future__ import annotations

import itertools
import json
import sys

import numpy as np
import pytest

pytest.importorskip("torch")

import exactness
import many_clients
import many_clients_run
import million_clients as script
import state_dict as bench
from documentation_pages import ROOT
from encryption.wire_twin import reseal
from shieldfl.encryption import kahe
from shieldfl.lab.bench.comparison import EnrolledSession


def test_a_process_runs_what_the_task_says(monkeypatch, capsys):
    monkeypatch.setattr(many_clients_run, "use_package_of", lambda folder: None)
    results = []
    for threads in (1, 2):
        small = many_clients.Task(
            "digits", "small-mlp", 6, share=0.5, rounds=2, local_epochs=1, threads=threads
        )
        monkeypatch.setattr(sys, "argv", ["run", str(ROOT / "python"), "full-he", *small.as_arguments()])
        many_clients_run.main()
        results.append(many_clients.Run(**json.loads(capsys.readouterr().out)))
    for one in results:
        assert one.wall > 0 < one.user
        assert one.peak_bytes > 50e6
    assert results[0].result == results[1].result
    assert "accuracy 0." in results[0].result


def total_of(session, keys):
    aggregator = kahe.Aggregator(session.public_key, 1)
    for key in keys:
        aggregator.add(kahe.Encryptor(key, 1).encrypt(np.ones(100, np.float32)))
    return aggregator.total()


def test_the_list_is_written_as_an_aggregator_writes_it():
    session = EnrolledSession(script.parameters_for(5), 5)
    total = total_of(session, session.client_keys)
    of_one = total_of(session, session.client_keys[:1]).parsed
    template = session.public_key._total_class._core_request(of_one, total.digest()).to_bytes()
    participants = np.array(total.participants, script._PARTICIPANT)
    assert script.request_with(template, participants) == total.request()


def test_all_clients_are_asked_for_in_the_round_that_is_meant():
    public_key = EnrolledSession(script.parameters_for(9), 1).public_key
    asked = public_key._total_class._core_request.from_bytes(script.request_of_all(public_key, 9, 3))
    assert [client for client, _ in asked.participants] == list(range(9))
    assert (asked.round, asked.key_id) == (3, public_key.id)


def test_deriving_and_summing_is_measured():
    one, all_cores, answer = script.measure_sum(200)
    for line in (one, all_cores, answer):
        assert line.measured > 0.0
        assert line.verdict in ("met", "missed")
        assert "200 clients" in line.figure
    # Bits for a coefficient of the sum of all secrets.
    assert 1e3 * answer.measured > 4096 * np.ceil(np.log2(2 * 42 * 200)) / 8


def test_the_store_answers_for_all_in_each_round_within_its_time(monkeypatch):
    monkeypatch.setattr(script, "MOST_ENROLLED_AT_ONCE", 80)
    enrol, *answers = script.measure_store(200)
    assert enrol.measured > 0.0
    assert [line.figure[-7:] for line in answers] == ["round 0", "round 1"]
    for line, other in itertools.pairwise([*answers, enrol]):
        assert line.measured > 0.0
        assert line.figure != other.figure
        assert line.verdict == ""


COMPARED = 20_000
FIRST_COEFFICIENT = 128  # where an answer has it


@pytest.fixture
def run(monkeypatch):
    def main(scheme):
        arguments = ["--compare", str(COMPARED), "--most-values", "4000", "--seed", "2"]
        monkeypatch.setattr(sys, "argv", ["exactness.py", scheme, *arguments])
        return exactness.main()

    return main


@pytest.mark.parametrize("scheme", ["kahe", "pads"])
def test_sums_of_one_to_three_authorities_are_right(run, scheme, capsys):
    assert run(scheme) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["wrong"] == report["sums that did not open"] == 0
    assert report["compared"] >= COMPARED
    assert set(report["sums by authorities"]) == {"1", "2", "3"}


def test_each_value_that_is_wrong_is_counted(run, monkeypatch, capsys):
    opened = exactness.open_total

    def off_by_one(public_key, *arguments, **options):
        sums, weight_sum = opened(public_key, *arguments, **options)
        sums[:1] += 2.0**-public_key.parameters.fraction_bits
        return sums, weight_sum

    monkeypatch.setattr(exactness, "open_total", off_by_one)
    assert run("pads") == 1
    report = json.loads(capsys.readouterr().out)
    assert 0 < report["wrong"] <= sum(report["sums by authorities"].values())
    assert report["sums that did not open"] == 0


def test_a_sum_that_does_not_open_is_wrong_in_all_its_values(run, monkeypatch, capsys):
    opened = exactness.open_total
    lost = []

    def refused(public_key, total, answers, **options):
        if lost:
            return opened(public_key, total, answers, **options)
        lost.append(total.parsed.count)
        altered = bytearray(answers[0])
        altered[FIRST_COEFFICIENT] ^= 1
        return opened(public_key, total, [reseal(bytes(altered)), *answers[1:]], **options)

    monkeypatch.setattr(exactness, "open_total", refused)
    assert run("kahe") == 1
    printed = capsys.readouterr()
    report = json.loads(printed.out)
    assert report["wrong"] == lost[0] > 0
    assert report["sums that did not open"] == 1
    assert report["compared"] >= COMPARED
    assert "sum 1 does not open" in printed.err


def test_each_scheme_has_a_row_of_times_and_ratios():
    found = list(bench.rows(width=8, repetitions=2))
    assert [row[0] for row in found] == list(bench.SCHEMES)
    assert {row[1] for row in found} == {f"{bench.concatenated(bench.model_of(8).state_dict()).size:,}"}
    for *_, flat, made in found:
        assert float(flat) > 0 < float(made)


def test_what_is_encrypted_is_the_same_in_all_ways():
    state = bench.model_of(8).state_dict()
    layout = bench.ModelLayout.of(state)
    np.testing.assert_array_equal(layout.flatten(state), bench.concatenated(state))
