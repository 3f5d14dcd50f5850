from __future__ import annotations

import math

import pytest

from shieldfl import quantities


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (999.7, "1.00 kB"),
        (73_700, "73.7 kB"),
        (999_400, "999 kB"),
        (999_600, "1.00 MB"),
        (1_840_000, "1.84 MB"),
        (12e9, "12.0 GB"),
        (math.nan, quantities.MISSING),
    ],
)
def test_bytes(count: float, text: str) -> None:
    assert quantities.bytes_text(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, quantities.MISSING),
        (67e-6, "67 µs"),
        (999.6e-6, "1.00 ms"),
        (4.1e-3, "4.10 ms"),
        (0.9996, "1.00 s"),
        (12.34, "12.3 s"),
        (512.3, "512 s"),
    ],
)
def test_seconds(seconds: float, text: str) -> None:
    assert quantities.seconds_text(seconds) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0, "0 %"), (1e-6, "<0.01 %"), (0.019, "1.90 %"), (1.0, "100.00 %"), (math.nan, quantities.MISSING)],
)
def test_share(share: float, text: str) -> None:
    assert quantities.share_text(share) == text


@pytest.mark.parametrize(
    ("epsilon", "text"),
    [
        (math.inf, "∞"),
        (math.nan, quantities.MISSING),
        (0.987654, "0.988"),
        (772.4, "772"),
        (12345.6, "12,346"),
    ],
)
def test_epsilon(epsilon: float, text: str) -> None:
    assert quantities.epsilon_text(epsilon) == text


@pytest.mark.parametrize(
    ("value", "base", "text"),
    [(1.12, 1.0, "×1.12"), (500.0, 1.0, "×500"), (1.0, 0.0, ""), (math.nan, 1.0, "")],
)
def test_ratio(value: float, base: float, text: str) -> None:
    assert quantities.ratio_text(value, base) == text


@pytest.mark.parametrize(
    ("value", "base", "text"),
    [(46.8, 22.1, "×2.1"), (1.0, 100.0, "×0.0"), (9.96, 1.0, "×10"), (1.0, 0.0, "")],
)
def test_ratio_of_times(value: float, base: float, text: str) -> None:
    assert quantities.ratio_text(value, base, digits=2) == text
