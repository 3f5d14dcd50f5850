from __future__ import annotations

import math

import pytest

from shieldfl.quantities import bytes_text, epsilon_text, ratio_text, seconds_text, share_text


@pytest.mark.parametrize(
    ("write", "texts"),
    [
        (
            bytes_text,
            {0: "0 B", 999: "999 B", 999.7: "1.00 kB", 73_700: "73.7 kB", 999_400: "999 kB"}
            | {999_600: "1.00 MB", 12e9: "12.0 GB", math.nan: "–"},
        ),
        (
            seconds_text,
            {
                0.0: "–",
                67e-6: "67 µs",
                999.6e-6: "1.00 ms",
                0.9996: "1.00 s",
                12.34: "12.3 s",
                512.3: "512 s",
            },
        ),
        (share_text, {0.0: "0 %", 1e-6: "<0.01 %", 0.019: "1.90 %", 1.0: "100.00 %", math.nan: "–"}),
        (epsilon_text, {math.inf: "∞", math.nan: "–", 0.987654: "0.988", 772.4: "772", 12345.6: "12,346"}),
    ],
    ids=["bytes", "seconds", "share", "epsilon"],
)
def test_quantities(write, texts: dict[float, str]) -> None:
    assert {value: write(value) for value in texts} == texts


@pytest.mark.parametrize(
    ("value", "base", "digits", "text"),
    [
        (1.12, 1.0, 3, "×1.12"),
        (500.0, 1.0, 3, "×500"),
        (1.0, 0.0, 3, ""),
        (math.nan, 1.0, 3, ""),
        (46.8, 22.1, 2, "×2.1"),
        (1.0, 100.0, 2, "×0.0"),
        (9.96, 1.0, 2, "×10"),
    ],
)
def test_ratio(value: float, base: float, digits: int, text: str) -> None:
    assert ratio_text(value, base, digits) == text
