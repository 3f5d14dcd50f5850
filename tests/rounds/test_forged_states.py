"""A state with a checksum that fits and values that no step leaves is refused: the checksum is no signature."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from methods.method_conformance import SteppedRun, run_of
from methods.variants import PARAMETERS, every_variant
from rounds.forged_state import KEY, check_refused, forged_state, plain_record
from shieldfl.authority.message import Message
from shieldfl.authority.role_state import pack_state
from shieldfl.errors import ShieldError, WireFormatError
from shieldfl.masks import Mask
from shieldfl.privacy.events import EncryptedUpload, OpenedSum, SummedUploads
from shieldfl.rounds.global_model import GlobalModel
from shieldfl.rounds.reports import Disclosure, Tally, named
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
        contents, before, after = role.changed(), plain_record(fresh), plain_record(role)
        key = KEY if role.needs_sealing else None
        records = [(contents | change, {}) for change in FORGED_OF_ALL + forgeries]
        records += [(contents, {"train": seconds}) for seconds in (math.nan, math.inf, -3.0)]
        for record, seconds in records:
            forged = pack_state(fresh._owner, encode_record(record, seconds), key)
            for one, kept in ((fresh, before), (role, after)):
                with pytest.raises(WireFormatError):
                    one.restore(forged, key)
                assert plain_record(one) == kept
        fresh.restore(pack_state(fresh._owner, encode_record(contents, {"train": 1.5}), key), key)
        assert fresh.report().seconds == {"train": 1.5}


def test_forged_sums_change_nothing():
    for label, wrong in (
        ("fedavg", {"_weight": 99.0}),
        ("fedavg", {"_weight": -1.0}),
        ("fedavg", {"_weight": 0.0}),
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


def short(array: np.ndarray) -> np.ndarray:
    return array[:-1]


def short_set(numbers: set[int]) -> set[int]:
    return set(sorted(numbers)[1:])


def spoilt(array: np.ndarray) -> np.ndarray:
    return np.full_like(array, np.nan)


def moved(model: GlobalModel) -> GlobalModel:
    return GlobalModel(model.parameters + np.float32(1.0), model.buffers)


OTHER_SIZE = GlobalModel(np.zeros(7, dtype=np.float32), np.zeros(5, dtype=np.float32))
RULE = ("opener", "rule")
"""Where an authority that opens has what sums move."""
FORGED_OF_METHODS = [
    ("dict-pfl", "client", ("_held", "_unsent"), short),
    ("dict-pfl", "client", ("_held", "_update"), spoilt),
    ("dict-pfl", "client", ("_held", "_uploaded_round"), lambda _: 77),
    ("dict-pfl", "client", ("_active",), lambda _: Mask.full(7)),
    ("mask-crypt", "client", ("_exposed",), short),
    ("mask-crypt", "client", ("_exposed",), spoilt),
    ("mask-crypt", "client", ("zone",), lambda _: Mask.full(7)),
    ("mask-crypt", "aggregator", ("_rankings",), lambda _: {99: np.arange(3)}),
    ("mask-crypt", "aggregator", ("_rankings",), lambda now: now | {0: now[0] + 10**6}),
    ("dp-fedavg", "client", ("_buffers",), short),
    ("dp-fedavg", "client", ("_buffers",), spoilt),
    ("selective-shield/encrypted", "client", ("_delta",), short),
    ("selective-shield/encrypted", "client", ("_participants",), lambda _: -4),
    ("selective-shield/encrypted", "client", ("_mask",), lambda _: Mask.full(7)),
    ("sense-crypt/clusters", "client", ("_introduction",), lambda now: now[:-4]),
    ("sense-crypt/clusters", "client", ("_cluster",), lambda _: -1),
    ("sense-crypt/clusters", "aggregator", ("_registry", "clusters"), short),
    ("sense-crypt/clusters", "aggregator", ("_registry", "capabilities"), spoilt),
    ("sense-crypt/clusters", "aggregator", ("_registry", "_waiting"), lambda _: {99: None}),
    ("sense-crypt/clusters", "aggregator", ("_masks",), lambda now: now | {99: now[0]}),
    ("sense-crypt/clusters", "aggregator", ("_masks",), lambda now: now | {-1: now[0]}),
    ("sense-crypt/clusters", "aggregator", ("_masks",), lambda now: now | {0: Mask.full(7)}),
    ("sense-crypt/clusters", "aggregator", ("_masks",), lambda now: {one: now[one] for one in now if one}),
    ("sense-crypt/clusters", "aggregator", ("_sums",), lambda _: {}),
    ("sense-crypt/clusters", "aggregator", ("_seen",), short_set),
    (
        "sense-crypt/clusters",
        "aggregator",
        ("_registry", "_centres"),
        lambda _: np.empty((2**40, 0), np.float32),
    ),
    ("sense-crypt/clusters", "aggregator", ("_registry", "_centres"), lambda now: now[:, :-1]),
    ("sense-crypt/clusters", "aggregator", ("_registry", "_centres"), lambda now: np.tile(now, (9, 1))),
    ("sense-crypt/clusters", "aggregator", ("_masks_of",), lambda _: 77),
    ("selective-shield/clear", "aggregator", ("_masks",), lambda now: now | {99: now[0]}),
    ("selective-shield/clear", "aggregator", ("_masks",), lambda now: now | {0: Mask.full(7)}),
    ("selective-shield/clear", "aggregator", ("_voters",), lambda now: now | {99}),
    ("selective-shield/clear", "aggregator", ("_negotiated",), lambda _: 77),
    ("selective-shield/clear", "aggregator", ("_encrypted_zone",), lambda _: Mask.full(7)),
    ("selective-shield/clear", "aggregator", ("_sums",), short),
    ("selective-shield/clear", "aggregator", ("_sums",), lambda _: None),
    ("selective-shield/clear", "aggregator", ("_added",), lambda _: None),
    ("selective-shield/clear", "aggregator", ("_seen",), short_set),
    ("selective-shield/clear", "aggregator", ("_sums",), spoilt),
    ("selective-shield/clear", "aggregator", ("_vote_counts",), short),
    ("selective-shield/clear", "aggregator", ("_vote_counts",), lambda now: now + np.uint32(99)),
    ("selective-shield/encrypted", "aggregator", ("_masks",), lambda _: {0: Mask.full(PARAMETERS)}),
    ("selective-shield/hidden", "aggregator", ("_sums",), short),
    ("fedml-he", "client", ("_agreed",), lambda _: Mask.full(7)),
    ("fedml-he", "client", ("_agreed",), lambda now: Mask.empty(now.size)),
    ("fedml-he", "aggregator", ("zone",), lambda _: Mask.full(7)),
    ("fedml-he", "aggregator", ("_weight",), lambda _: 99),
    ("full-he", "aggregator", ("_sum",), lambda _: None),
    ("full-he", "aggregator", ("_sum", "_added"), lambda _: None),
    ("full-he", "aggregator", ("_sum", "_clients"), lambda now: now - 1),
    ("full-he", "aggregator", ("_seen",), short_set),
    ("mask-crypt", "aggregator", ("zone",), lambda _: None),
    ("dict-pfl", "aggregator", ("zone",), lambda _: None),
    ("dict-pfl", "aggregator", ("zone",), lambda now: Mask.full(now.size - 1)),
    ("dict-pfl", "aggregator", ("_answer",), lambda _: Message({"count": Message.from_number(2**31)})),
    ("alt-fl-pi", "client", ("_training", "kind"), lambda now: replace(now, encrypts=not now.encrypts)),
    ("alt-fl-mp/noised", "client", ("_training", "noise"), lambda _: None),
    ("alt-fl-mp/noised", "aggregator", ("_agreed",), lambda _: Mask.full(7)),
    ("dp-sgd", "client", ("_training", "kind"), lambda now: replace(now, noises=not now.noises)),
    ("dp-sgd/noised", "client", ("_training", "noise"), lambda _: None),
    (
        "dp-sgd/noised",
        "client",
        ("_training", "noise"),
        lambda now: replace(now, multiplier=2 * now.multiplier),
    ),
    ("batch-crypt", "aggregator", ("_bounds",), lambda now: now[:-8]),
    ("batch-crypt", "aggregator", ("_bounds",), lambda now: np.full(len(now) // 8, np.inf).tobytes()),
    ("batch-crypt", "aggregator", ("_ranges",), lambda now: [short(now[0])]),
    ("batch-crypt", "aggregator", ("_ranges",), lambda now: [spoilt(now[0])]),
    ("batch-crypt", "aggregator", ("_ranges",), lambda now: [now[0] * np.float32(1e6)]),
    ("batch-crypt", "aggregator", ("_ranges",), lambda now: now * 9),
    ("full-he", "client", ("zone",), lambda now: Mask.empty(now.size)),
    ("full-he", "aggregator", ("zone",), lambda now: Mask.empty(now.size)),
    ("full-he", "authority", (*RULE, "zone"), lambda now: Mask.empty(now.size)),
    ("full-he", "client", ("disclosure",), lambda _: Disclosure.of_nothing(7)),
    ("full-he", "client", ("disclosure",), lambda now: replace(now, clear=now.encrypted)),
    ("full-he", "client", ("disclosure",), lambda now: replace(now, buffers="nonsense")),
    ("full-he", "client", ("_untold",), lambda _: named([EncryptedUpload(round=0, client=0)])),
    ("full-he", "client", ("_untold",), lambda _: named([EncryptedUpload(round=1, client=1)])),
    ("full-he", "client", ("_untold",), lambda _: [("nothing", {})]),
    ("full-he", "client", ("_untold",), lambda _: named([Tally(3, 2, "values")])),
    ("full-he", "aggregator", ("_untold",), lambda _: named([SummedUploads(round=1, clients=99)])),
    ("full-he", "authority", ("_untold",), lambda _: named([OpenedSum(round=10**6)])),
    ("full-he", "client", ("_round_keys",), lambda _: None),
    ("full-he", "aggregator", ("_round_keys",), lambda _: None),
    ("full-he", "authority", (*RULE, "model"), lambda _: OTHER_SIZE),
    ("full-he", "authority", (*RULE, "model"), moved),
    ("full-he", "authority", ("opener", "_replies", "_given"), lambda _: {}),
    ("fedml-he", "authority", (*RULE, "model"), moved),
    ("fedml-he", "authority", (*RULE, "zone"), lambda now: ~now),
    ("dict-pfl", "authority", (*RULE, "model"), moved),
    ("selective-shield/encrypted", "authority", (*RULE, "_model"), moved),
    (
        "sense-crypt/clusters",
        "authority",
        (*RULE, "_models"),
        lambda now: {one: moved(now[one]) for one in now},
    ),
    ("sense-crypt/clusters", "authority", (*RULE, "_models"), lambda _: {}),
    ("full-he", "authority", (*RULE, "zone"), lambda _: Mask.full(7)),
    ("full-he", "authority", ("opener", "_replies", "_given"), lambda now: {"other": now["update"]}),
    (
        "full-he",
        "authority",
        ("opener", "_replies", "_given"),
        lambda now: {"update": (10**6, *now["update"][1:])},
    ),
    ("selective-shield/encrypted", "authority", (*RULE, "_model"), lambda _: OTHER_SIZE),
    ("selective-shield/encrypted", "authority", (*RULE, "_tallies"), short),
    ("selective-shield/encrypted", "authority", (*RULE, "_voters"), lambda _: 99),
    ("sense-crypt/clusters", "authority", (*RULE, "_models"), lambda _: {0: OTHER_SIZE}),
    ("sense-crypt/clusters", "authority", (*RULE, "_clusters"), short),
    ("dict-pfl", "authority", (*RULE, "_history", "_streaks"), short),
    ("dict-pfl", "authority", (*RULE, "_history", "_probabilities"), spoilt),
    ("dict-pfl", "authority", (*RULE, "_history", "_observed"), lambda now: [*now[:-1], 10**6]),
]


@pytest.mark.parametrize(
    ("label", "kind", "path", "forge"),
    FORGED_OF_METHODS,
    ids=lambda one: one if isinstance(one, str) else ".".join(one) if isinstance(one, tuple) else "",
)
def test_forged_values_of_a_method_s_own_change_neither_a_new_nor_a_used_role(label, kind, path, forge):
    """Sealed, too: what opened an authority's state would be held to what steps leave all the same."""
    check_refused(label, kind, path, forge)


@pytest.mark.parametrize(
    ("label", "kind", "path", "around"),
    [
        ("full-he", "aggregator", ("zone",), lambda mask, _: mask),
        ("full-he", "client", ("disclosure",), lambda mask, now: replace(now, clear=mask)),
        ("selective-shield/clear", "aggregator", ("_masks",), lambda mask, now: dict.fromkeys(now, mask)),
        ("sense-crypt/clusters", "aggregator", ("_masks",), lambda mask, now: dict.fromkeys(now, mask)),
        ("dict-pfl", "authority", (*RULE, "_history", "_drawn"), lambda mask, _: (1, mask)),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_mask_in_a_state_is_refused_by_the_size_that_it_states(label, kind, path, around):
    """Before it takes memory: 70 bytes state 2**31 positions, which take 256 MiB, and a state holds many masks."""
    far_too_many = Mask.empty(2**24)
    role, fresh, state, key = forged_state(label, kind, path, lambda now: around(far_too_many, now))
    after = plain_record(role)
    for one in (fresh, role):
        with pytest.raises(WireFormatError) as refusal:
            one.restore(state, key)
        assert f"mask states {far_too_many.size} positions" in str(refusal.value.__cause__)
    assert plain_record(role) == after


def test_a_mistake_of_a_check_is_not_taken_for_a_forged_state(monkeypatch):
    run = run_of("fedavg")
    fresh, state = run.new_client(0), run.clients[0].state()

    def mistaken(self):
        raise AttributeError("no such name")

    monkeypatch.setattr(type(fresh), "check_changed", mistaken)
    with pytest.raises(AttributeError, match="no such name"):
        fresh.restore(state)
