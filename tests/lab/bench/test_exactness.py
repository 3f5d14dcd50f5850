"""``bench/exactness.py``: right sums have no wrong value, and what is wrong or does not open is counted."""

from __future__ import annotations

import importlib.util
import json
import sys

import pytest

from documentation_pages import ROOT
from encryption.wire_twin import reseal

COMPARED = 20_000
FIRST_COEFFICIENT = 128  # where an answer has it


@pytest.fixture
def exactness(monkeypatch):
    spec = importlib.util.spec_from_file_location("exactness", ROOT / "bench" / "exactness.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def run(scheme):
        arguments = ["--compare", str(COMPARED), "--most-values", "4000", "--seed", "2"]
        monkeypatch.setattr(sys, "argv", ["exactness.py", scheme, *arguments])
        return module.main()

    monkeypatch.setattr(module, "run", run, raising=False)
    return module


@pytest.mark.parametrize("scheme", ["kahe", "pads"])
def test_sums_of_one_to_three_authorities_are_right(exactness, scheme, capsys):
    assert exactness.run(scheme) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["wrong"] == report["sums that did not open"] == 0
    assert report["compared"] >= COMPARED
    assert set(report["sums by authorities"]) == {"1", "2", "3"}


def test_each_value_that_is_wrong_is_counted(exactness, monkeypatch, capsys):
    opened = exactness.open_total

    def off_by_one(public_key, *arguments, **options):
        sums, weight_sum = opened(public_key, *arguments, **options)
        sums[:1] += 2.0**-public_key.parameters.fraction_bits
        return sums, weight_sum

    monkeypatch.setattr(exactness, "open_total", off_by_one)
    assert exactness.run("pads") == 1
    report = json.loads(capsys.readouterr().out)
    assert 0 < report["wrong"] <= sum(report["sums by authorities"].values())
    assert report["sums that did not open"] == 0


def test_a_sum_that_does_not_open_is_wrong_in_all_its_values(exactness, monkeypatch, capsys):
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
    assert exactness.run("kahe") == 1
    printed = capsys.readouterr()
    report = json.loads(printed.out)
    assert report["wrong"] == lost[0] > 0
    assert report["sums that did not open"] == 1
    assert report["compared"] >= COMPARED
    assert "sum 1 does not open" in printed.err
