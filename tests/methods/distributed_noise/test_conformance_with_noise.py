"""Methods whose sums have faint noise do what every method must do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from methods.variants import FAINT_TOLERANCE, Variant, labelled
from shieldfl.testing import MethodCase, MethodConformance

FAINT = {"sum_noise_multiplier": 2e-8, "sum_clip_norm": 8.0, "encrypted_share": 1.0}
NAMES = (
    *("full-he", "top-2", "dict-pfl", "alt-fl-pi"),
    *("full-he/clients", "dict-pfl/clients", "full-he/aggregator"),
)


@pytest.mark.slow
class TestMethodsWithNoiseOnSums(MethodConformance):
    """Alternating rounds have no buffers; those with DP-SGD add none of its noise here."""

    @pytest.fixture(params=NAMES)
    def variant(self, request: pytest.FixtureRequest) -> Variant:
        name, _, opener = request.param.partition("/")
        return replace(labelled(name).with_others(**FAINT), opener=opener or "authority")

    @pytest.fixture
    def case(self, variant: Variant) -> MethodCase:
        case = variant.case
        buffers = 0 if variant.method == "alt-fl-pi" else case.buffers
        return replace(case, buffers=buffers, tolerance=FAINT_TOLERANCE)

    @pytest.fixture
    def lossless_case(self, case: MethodCase, variant: Variant) -> MethodCase:
        return replace(case, settings=variant.losing_nothing(20).case.settings, fraction_bits=20)

    @pytest.fixture(params=[False, True], ids=["lasting", "restored"])
    def restarts(self, request: pytest.FixtureRequest) -> bool:
        return request.param
