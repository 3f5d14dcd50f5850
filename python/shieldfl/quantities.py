"""Measured quantities as people read them: three significant digits and a unit."""

from __future__ import annotations

import math

MISSING = "–"
"""Text for a value that does not exist, such as the seconds of a stage that a method does not have."""

_PREFIXES = ("", "k", "M", "G", "T", "P")


def bytes_text(count: float) -> str:
    """Format bytes in decimal units: ``"512 B"``, ``"73.7 kB"``."""
    if not math.isfinite(count):
        return MISSING
    scaled = count
    for prefix in _PREFIXES:
        if abs(scaled) < 999.5 or prefix == _PREFIXES[-1]:
            break
        scaled /= 1000.0
    return f"{scaled:.0f} B" if not prefix else f"{_three_digits(scaled)} {prefix}B"


def seconds_text(seconds: float) -> str:
    """Format a duration: ``"4.10 ms"``, ``"12.3 s"``; zero is a stage that did not run."""
    if not math.isfinite(seconds) or seconds == 0.0:
        return MISSING
    if seconds < 0.9995e-3:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 0.9995:
        return f"{_three_digits(seconds * 1e3)} ms"
    return f"{_three_digits(seconds)} s"


def share_text(share: float) -> str:
    """Format a share of the parameters in percent, without hiding that a small one is not zero."""
    if not math.isfinite(share):
        return MISSING
    if share == 0.0:
        return "0 %"
    return "<0.01 %" if share < 5e-5 else f"{share * 100:.2f} %"


def accuracy_text(accuracy: float) -> str:
    return f"{accuracy * 100:.2f} %" if math.isfinite(accuracy) else MISSING


def metric_text(value: float, name: str) -> str:
    """Format what a model was measured by: the accuracy in percent, anything else with four digits."""
    if name == "accuracy":
        return accuracy_text(value)
    return f"{value:.4g}" if math.isfinite(value) else MISSING


def epsilon_text(epsilon: float) -> str:
    """Format a privacy loss; infinite where something is sent without noise."""
    if math.isnan(epsilon):
        return MISSING
    if math.isinf(epsilon):
        return "∞"
    return f"{epsilon:,.0f}" if epsilon >= 1000.0 else f"{epsilon:.3g}"


def ratio_text(value: float, base: float, digits: int = 3) -> str:
    """Format how many times ``base`` a value is, with 2 or 3 significant digits.

    Empty where that says nothing.
    """
    if not (math.isfinite(value) and math.isfinite(base) and base > 0.0):
        return ""
    ratio = value / base
    if digits == 2:
        return f"×{ratio:,.0f}" if ratio >= 9.95 else f"×{ratio:.1f}"
    return f"×{ratio:,.0f}" if ratio >= 99.5 else f"×{_three_digits(ratio)}"


def _three_digits(value: float) -> str:
    if abs(value) < 9.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if abs(value) < 99.95 else f"{value:.0f}"
