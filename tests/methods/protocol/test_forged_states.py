"""A state with a checksum that fits and values that no step leaves is refused: the checksum is no signature."""

from __future__ import annotations

import math

import numpy as np
import pytest

from methods.method_conformance import SteppedRun, run_of
from methods.variants import every_variant
from shieldfl.errors import ShieldError, WireFormatError
from shieldfl.methods.protocol.global_model import GlobalModel
from shieldfl.roles.role_state import pack_state
from shieldfl.stateful import encode_record

FORGED_OF_ALL = ({"round": -5}, {"round": 10**6})
FORGED_OF_CLIENTS = (
    {"_beginnings": -1},
    {"_beginnings": 7},
    {"scores": "nonsense"},
    {"trained_scores": np.zeros((2, 3), dtype=np.float32)},
    {"trained_scores": np.zeros(3, dtype=np.float32)},
    {"update": GlobalModel(np.zeros(7, dtype=np.float32), np.zeros(5, dtype=np.float32))},
    {"start": GlobalModel(np.zeros(7, dtype=np.float32), np.zeros(5, dtype=np.float32))},
    {"_begun": None},
)
FORGED_OF_AGGREGATORS = ({"_seen": {99}}, {"_seen": {-1}}, {"_phase": "no such phase"})


@every_variant
def test_forged_values_with_a_right_checksum_change_nothing(variant):
    run = SteppedRun(variant)
    run.run_round()
    for role, fresh, forgeries in (
        (run.clients[0], run.new_client(0), FORGED_OF_CLIENTS),
        (run.aggregator, run.new_aggregator(), FORGED_OF_AGGREGATORS),
    ):
        contents, before, after = role.changed(), fresh.state(), role.state()
        records = [(contents | change, {}) for change in FORGED_OF_ALL + forgeries]
        records += [(contents, {"train": seconds}) for seconds in (math.nan, math.inf, -3.0)]
        for record, seconds in records:
            forged = pack_state(fresh._owner, encode_record(record, seconds), None)
            for one, kept in ((fresh, before), (role, after)):
                with pytest.raises(WireFormatError):
                    one.restore(forged)
                assert one.state() == kept
        fresh.restore(pack_state(fresh._owner, encode_record(contents, {"train": 1.5}), None))
        assert fresh.report().seconds == {"train": 1.5}


def test_forged_sums_change_nothing():
    for label, wrong in (
        ("fedavg", {"_weight": 99.0}),
        ("fedavg", {"_weight": -1.0}),
        ("fedavg", {"_sum": np.zeros(3)}),
        ("full-he", {"_weight": 99}),
        ("full-he", {"_clients": 99}),
        ("full-he", {"_sums": np.full(1, 0.0)}),
    ):
        run = run_of(label)
        run.run_round()
        fresh, contents = run.new_aggregator(), run.aggregator.changed()
        before = fresh.state()
        changed = contents | wrong if label == "fedavg" else contents | {"_sum": contents["_sum"] | wrong}
        with pytest.raises(WireFormatError):
            fresh.restore(pack_state(fresh._owner, encode_record(changed, {}), None))
        assert fresh.state() == before


def test_a_state_with_a_right_checksum_and_wrong_contents_changes_nothing():
    run = run_of("full-he")
    run.run_round()
    fresh = run.new_aggregator()
    before = fresh.state()
    contents = run.aggregator.changed()
    for change in (
        {"round": "1"},
        {"_round_keys": None, "more": 1},
        {"_answer": b"no message"},
        {"_sum": contents["_sum"] | {"_added": b"no total"}},
        {"_round_keys": {"_round": 1, "_frames": {"update": b"no key"}}},
        {"_round_keys": {"_round": 1, "_frames": {"other": b"no key"}}},
    ):
        forged = pack_state(fresh._owner, encode_record(contents | change, {}), None)
        with pytest.raises(ShieldError):
            fresh.restore(forged)
        assert fresh.state() == before
