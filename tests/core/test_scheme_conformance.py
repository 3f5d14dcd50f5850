"""The conformance suite over every scheme."""

from __future__ import annotations

import shieldfl as sf
from core.scheme_conformance import SchemeConformance


class TestExact(SchemeConformance):
    @staticmethod
    def parameters(**changes):
        return sf.ckks.Parameters(**changes)


class TestExactLargeRing(SchemeConformance):
    @staticmethod
    def parameters(**changes):
        return sf.ckks.Parameters(ring_degree=4096, **changes)


class TestExactManyClients(SchemeConformance):
    @staticmethod
    def parameters(**changes):
        return sf.ckks.Parameters(max_clients=2**14, value_bits=40, fraction_bits=30, **changes)


class TestSlots(SchemeConformance):
    tolerance = 2.0**-20

    @staticmethod
    def parameters(**changes):
        return sf.ckks.Parameters(packing="slots", **changes)
