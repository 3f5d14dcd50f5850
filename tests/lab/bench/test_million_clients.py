"""bench/million_clients.py: the list that it writes is an aggregator's, and everything is measured, in small."""

from __future__ import annotations

import importlib
import itertools

import numpy as np
import pytest

from documentation_pages import ROOT
from shieldfl.encryption import kahe
from shieldfl.lab.bench.own import EnrolledSession


@pytest.fixture
def script(monkeypatch):
    pytest.importorskip("typer")
    monkeypatch.syspath_prepend(ROOT / "bench")
    return importlib.import_module("million_clients")


def total_of(session, keys):
    aggregator = kahe.Aggregator(session.public_key, 1)
    for key in keys:
        aggregator.add(kahe.Encryptor(key, 1).encrypt(np.ones(100, np.float32)))
    return aggregator.total()


def test_the_list_is_written_as_an_aggregator_writes_it(script):
    session = EnrolledSession(script.parameters_for(5), 5)
    total = total_of(session, session.client_keys)
    of_one = total_of(session, session.client_keys[:1]).parsed
    template = session.public_key._core_request(of_one, total.digest()).to_bytes()
    participants = np.array(total.participants, script._PARTICIPANT)
    assert script.request_with(template, participants) == total.request()


def test_all_clients_are_asked_for_in_the_round_that_is_meant(script):
    public_key = EnrolledSession(script.parameters_for(9), 1).public_key
    asked = public_key._core_request.from_bytes(script.request_of_all(public_key, 9, 3))
    assert [client for client, _ in asked.participants] == list(range(9))
    assert (asked.round, asked.key_id) == (3, public_key.id)


def test_deriving_and_summing_is_measured(script):
    one, all_cores, answer = script.measure_sum(200)
    for line in (one, all_cores, answer):
        assert line.measured > 0.0
        assert line.verdict in ("met", "missed")
        assert "200 clients" in line.figure
    # Bits for a coefficient of the sum of all secrets.
    assert 1e3 * answer.measured > 4096 * np.ceil(np.log2(2 * 42 * 200)) / 8


def test_the_store_answers_for_all_in_each_round_within_its_time(script, monkeypatch):
    monkeypatch.setattr(script, "MOST_ENROLLED_AT_ONCE", 80)
    enrol, *answers = script.measure_store(200)
    assert enrol.measured > 0.0
    assert [line.figure[-7:] for line in answers] == ["round 0", "round 1"]
    for line, other in itertools.pairwise([*answers, enrol]):
        assert line.measured > 0.0
        assert line.figure != other.figure
        assert line.verdict == ""
