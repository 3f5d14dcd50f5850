from __future__ import annotations

import math

import pytest

from shieldfl.errors import ParameterError
from shieldfl.fleet.units import as_bytes_per_second, as_count, as_number, as_seconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("50 MB/s", 50e6),
        ("400 Mbit/s", 50e6),
        ("1Gbit/s", 125e6),
        (" 2.5e3 kB/s ", 2.5e6),
        ("8 bit/s", 1.0),
    ],
)
def test_rates(text, expected):
    assert as_bytes_per_second(text, "upload") == pytest.approx(expected)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("50 MBps", "unknown unit 'MBps'"),
        ("50", "no unit"),
        (50, "needs a unit"),
        ("fast", "write a number and a unit"),
        ("1 2 MB/s", "write a number and a unit"),
        ("0 MB/s", "above zero"),
        ("-3 MB/s", "above zero"),
        ("1e999 MB/s", "finite"),
        (True, "needs a unit"),
    ],
)
def test_no_rates(value, said):
    with pytest.raises(ParameterError, match=said) as caught:
        as_bytes_per_second(value, "phone's upload")
    assert str(caught.value).startswith("phone's upload")


@pytest.mark.parametrize(
    ("text", "expected"), [("20 ms", 0.02), ("0 s", 0.0), ("3 us", 3e-6), ("2 min", 120.0)]
)
def test_times(text, expected):
    assert as_seconds(text, "latency") == pytest.approx(expected)


@pytest.mark.parametrize("value", ["-1 ms", "20 MB/s", "20", 20, None])
def test_no_times(value):
    with pytest.raises(ParameterError, match="latency"):
        as_seconds(value, "latency")


@pytest.mark.parametrize(("value", "expected"), [(0.5, 0.5), ("0.5", 0.5), (1, 1.0), ("1e-3", 0.001)])
def test_numbers(value, expected):
    assert as_number(value, "cpu_share", above=0.0, most=1.0) == expected


@pytest.mark.parametrize("value", [0, -0.1, 1.5, "0.5 s", "half", math.nan, math.inf, True, None, [1]])
def test_no_numbers(value):
    with pytest.raises(ParameterError, match="cpu_share must be"):
        as_number(value, "cpu_share", above=0.0, most=1.0)


def test_a_number_out_of_bounds_is_told_all_bounds():
    with pytest.raises(ParameterError, match="must be above 0 and at most 1, not 2"):
        as_number(2, "cpu_share", above=0.0, most=1.0)


@pytest.mark.parametrize("value", [0, -1, 1.5, "3", True, 2**50])
def test_no_counts(value):
    with pytest.raises(ParameterError, match="samples must be"):
        as_count(value, "samples")
