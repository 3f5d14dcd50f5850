"""The short form leaves no method out."""

from __future__ import annotations

from fleet.measure.measured_methods import SCHEMES, measurable, measured_under


def test_every_method_has_its_turn():
    all_of_them = {name for scheme in SCHEMES for name in measurable(scheme)}
    assert {name for scheme in SCHEMES for name in measured_under(scheme)} == all_of_them
    assert all("full-he" in measured_under(scheme) for scheme in SCHEMES)
    assert all(len(measurable(scheme)) >= 6 for scheme in SCHEMES)
