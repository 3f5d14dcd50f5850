"""A state with a checksum that fits and values that no step leaves is refused: the checksum is no signature."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from methods.method_conformance import SteppedRun, run_of
from methods.variants import PARAMETERS, every_variant
from shieldfl.authority.message import Message
from shieldfl.authority.role_state import pack_state
from shieldfl.encryption.enrolment import read_request, request_frame
from shieldfl.errors import KeyMismatchError, PolicyError, WireFormatError
from shieldfl.masks import Mask
from shieldfl.privacy.events import EncryptedUpload, OpenedSum, SummedUploads
from shieldfl.rounds.authorities import AuthoritySteps
from shieldfl.rounds.plan import GlobalModel
from shieldfl.rounds.reports import Disclosure, Note, named
from shieldfl.stateful import encode_record

KEY = bytes(32)


def forged_state(label, kind, path, forge):
    """Return a role after a round, a new one in its place, and its state with one value forged, with its key."""
    run = run_of(label)
    run.run_round()
    if kind == "authority":
        # The keys of the next round are made, and not yet wiped.
        run.authority.begin_round(2)
    role = {"client": run.clients[0], "aggregator": run.aggregator, "authority": run.authority}[kind]
    fresh = {
        "client": lambda: run.new_client(0),
        "aggregator": run.new_aggregator,
        "authority": run.new_authority,
    }[kind]()
    key = KEY if role.needs_sealing else None
    forged = role.changed()
    inner = forged
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = forge(inner.get(path[-1]))
    return role, fresh, pack_state(fresh._owner, encode_record(forged, {}), key), key


def plain_record(role) -> bytes:
    return bytes(encode_record(role.changed(), {}))


def check_refused(label: str, kind: str, path: tuple[str, ...], forge: Callable[[Any], Any]) -> None:
    """A state with this value forged changes neither a new nor a used role, and the genuine one is taken."""
    role, fresh, state, key = forged_state(label, kind, path, forge)
    after = plain_record(role)
    for one in (fresh, role):
        with pytest.raises(WireFormatError):
            one.restore(state, key)
    assert plain_record(role) == after
    genuine = role.state(key)
    fresh.restore(genuine, key)
    role.restore(genuine, key)
    assert plain_record(fresh) == plain_record(role) == after


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


def of_another_client(request: bytes) -> bytes:
    client, sealed = read_request(request)
    return request_frame(client + 1, sealed)


def short(array: np.ndarray) -> np.ndarray:
    return array[:-1]


def short_set(numbers: set[int]) -> set[int]:
    return set(sorted(numbers)[1:])


def spoilt(array: np.ndarray) -> np.ndarray:
    return np.full_like(array, np.nan)


def moved(model: GlobalModel) -> GlobalModel:
    return GlobalModel(model.parameters + np.float32(1.0), model.buffers)


OTHER_SIZE = GlobalModel(np.zeros(7, dtype=np.float32), np.zeros(5, dtype=np.float32))
HELD = ("_own_keys", "_held")
GIVEN = ("opener", "replies", "_given")
RULE = ("opener", "rule")
"""Where an authority that opens has what sums move."""
CLUSTERS = (*RULE, "_models")
FORGED = [
    *(("fedavg", "aggregator", ("_weight",), lambda _, wrong=wrong: wrong) for wrong in (99.0, -1.0, 0.0)),
    ("fedavg", "aggregator", ("_sum",), lambda _: np.zeros(3)),
    ("full-he", "aggregator", ("_sum", "_weight"), lambda _: 99),
    ("full-he", "aggregator", ("_sum", "_clients"), lambda _: 99),
    ("full-he", "aggregator", ("_sum", "_sums"), lambda _: np.zeros(1)),
    ("full-he", "aggregator", ("_sum", "_added"), lambda _: b"no total"),
    ("full-he", "aggregator", ("round",), str),
    ("full-he", "aggregator", ("_answer",), lambda _: b"no message"),
    ("full-he", "aggregator", ("_round_keys", "_frames"), lambda _: {"other": b"no key"}),
    ("full-he", "aggregator", ("more",), lambda _: 1),
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
    ("selective-shield/encrypted", "client", ("_participants",), lambda _: -4),
    ("selective-shield/encrypted", "client", ("_mask",), lambda _: Mask.full(7)),
    ("sense-crypt/clusters", "client", ("_introduction",), lambda now: now[:-4]),
    ("sense-crypt/clusters", "client", ("_cluster",), lambda _: -1),
    ("sense-crypt/clusters", "aggregator", ("_clusters",), short),
    ("sense-crypt/clusters", "aggregator", ("_capabilities",), spoilt),
    ("sense-crypt/clusters", "aggregator", ("_waiting",), lambda _: {99: np.empty(0, np.float32)}),
    ("sense-crypt/clusters", "aggregator", ("_masks",), lambda now: now | {99: now[0]}),
    ("sense-crypt/clusters", "aggregator", ("_masks",), lambda now: now | {-1: now[0]}),
    ("sense-crypt/clusters", "aggregator", ("_masks",), lambda now: now | {0: Mask.full(7)}),
    ("sense-crypt/clusters", "aggregator", ("_masks",), lambda now: {one: now[one] for one in now if one}),
    ("sense-crypt/clusters", "aggregator", ("_sums",), lambda _: {}),
    ("sense-crypt/clusters", "aggregator", ("_seen",), short_set),
    (
        "sense-crypt/clusters",
        "aggregator",
        ("_capabilities",),
        lambda _: np.empty((2**40, 0)),
    ),
    ("sense-crypt/clusters", "aggregator", ("_centres",), lambda now: [short(one) for one in now]),
    ("sense-crypt/clusters", "aggregator", ("_centres",), lambda now: now * 9),
    ("sense-crypt/clusters", "aggregator", ("_masks_of",), lambda _: 77),
    ("selective-shield/clear", "aggregator", ("_masks",), lambda now: now | {99: now[0]}),
    ("selective-shield/clear", "aggregator", ("_masks",), lambda now: now | {0: Mask.full(7)}),
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
    ("alt-fl-mp/noised", "client", ("_noise",), lambda _: None),
    ("alt-fl-mp/noised", "aggregator", ("_agreed",), lambda _: Mask.full(7)),
    ("dp-sgd/noised", "client", ("_noise",), lambda _: None),
    (
        "dp-sgd/noised",
        "client",
        ("_noise",),
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
    ("full-he", "client", ("_untold",), lambda _: named([Note("values", counts=(3, 2))])),
    ("full-he", "aggregator", ("_untold",), lambda _: named([SummedUploads(round=1, clients=99)])),
    ("full-he", "authority", ("_untold",), lambda _: named([OpenedSum(round=10**6)])),
    ("full-he", "client", ("_round_keys",), lambda _: None),
    ("full-he", "aggregator", ("_round_keys",), lambda _: None),
    ("full-he", "authority", (*RULE, "model"), lambda _: OTHER_SIZE),
    ("full-he", "authority", (*RULE, "model"), moved),
    ("full-he", "authority", GIVEN, lambda _: {}),
    ("fedml-he", "authority", (*RULE, "model"), moved),
    ("fedml-he", "authority", (*RULE, "zone"), lambda now: ~now),
    ("dict-pfl", "authority", (*RULE, "model"), moved),
    ("selective-shield/encrypted", "authority", (*RULE, "_model"), moved),
    ("sense-crypt/clusters", "authority", CLUSTERS, lambda now: {one: moved(now[one]) for one in now}),
    ("sense-crypt/clusters", "authority", CLUSTERS, lambda _: {}),
    ("full-he", "authority", (*RULE, "zone"), lambda _: Mask.full(7)),
    ("full-he", "authority", GIVEN, lambda now: {"other": now["update"]}),
    ("full-he", "authority", GIVEN, lambda now: {"update": (10**6, *now["update"][1:])}),
    ("selective-shield/encrypted", "authority", (*RULE, "_model"), lambda _: OTHER_SIZE),
    ("selective-shield/encrypted", "authority", (*RULE, "_tallies"), short),
    ("selective-shield/encrypted", "authority", (*RULE, "_voters"), lambda _: 99),
    ("sense-crypt/clusters", "authority", CLUSTERS, lambda _: {0: OTHER_SIZE}),
    ("sense-crypt/clusters", "authority", (*RULE, "_clusters"), short),
    ("dict-pfl", "authority", (*RULE, "_history", "_streaks"), short),
    ("dict-pfl", "authority", (*RULE, "_history", "_probabilities"), spoilt),
    ("dict-pfl", "authority", (*RULE, "_history", "_observed"), lambda now: [*now[:-1], 10**6]),
    ("full-he", "authority", ("keys", "_round"), lambda _: 10**6),
    ("full-he/ckks", "authority", ("keys", "_secret_signing_key"), lambda now: now[:-1]),
    ("full-he/ckks", "authority", ("keys", "_parts"), lambda now: {"other": {}}),
    ("full-he/ckks", "authority", ("keys", "_pairs"), lambda now: {"other": now["update"]}),
    ("full-he/ckks", "authority", ("keys", "_round"), lambda _: 10**6),
    ("full-he", "authority", ("keys", "_secrets"), lambda now: now[:-1]),
    ("full-he", "authority", ("keys", "_memory"), lambda now: now[:-1]),
    ("full-he", "authority", ("keys", "_memory"), lambda _: b""),
    ("full-he", "authority", ("keys", "_begun"), lambda _: ["other"]),
    ("full-he", "client", ("_own_keys",), lambda _: None),
    ("full-he", "client", ("_own_keys", "enrolment", "request"), lambda now: now[: -(10**6)]),
    ("full-he", "client", ("_own_keys", "enrolment", "request"), of_another_client),
    ("full-he", "client", ("_own_keys", "enrolment", "_grant_key"), lambda now: now[:-1]),
    ("full-he", "client", HELD, lambda _: {}),
    ("full-he", "client", HELD, lambda now: now | {"other": now["update"]}),
    ("full-he", "client", HELD, lambda now: {"update": (1, now["update"][1][:-1])}),
    ("full-he", "client", HELD, lambda now: {"update": (0, now["update"][1])}),
    ("full-he", "client", HELD, lambda now: {"update": (2, now["update"][1])}),
    ("selective-shield/encrypted", "client", HELD, lambda now: now | {"votes": (2, now["votes"][1])}),
]


@pytest.mark.parametrize(
    ("label", "kind", "path", "forge"),
    FORGED,
    ids=lambda one: one if isinstance(one, str) else ".".join(one) if isinstance(one, tuple) else "",
)
def test_a_forged_value_changes_neither_a_new_nor_a_used_role(label, kind, path, forge):
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


def test_a_key_of_another_session_is_refused():
    path = ("_round_keys", "_frames")
    _, fresh, state, key = forged_state("full-he", "aggregator", path, lambda _: {"update": b"no key"})
    with pytest.raises(KeyMismatchError):
        fresh.restore(state, key)


def authority_with(run: SteppedRun, **forged: object) -> tuple[AuthoritySteps, bytes]:
    """Return an authority without keys, and the state of this run's, with other values of its keys."""
    fresh, contents = run.new_authority(), run.authority.changed()
    contents["keys"] |= forged
    return fresh, pack_state(fresh._owner, encode_record(contents, {}), KEY)


def test_an_authority_goes_on_from_no_memory_but_that_of_its_newest_round():
    """From another one it would answer twice for a client.

    The difference of two answers is what one client sent.
    """
    run, other = run_of("full-he"), run_of("full-he")
    enrolled = run.authority.changed()["keys"]["_memory"]
    for one in (run, other):
        one.run_round()
    answered = run.authority.changed()["keys"]["_memory"]
    run.begin_round(2)
    other.begin_round(2)
    foreign = other.authority.changed()["keys"]
    for forged, error in (
        ({"_memory": enrolled}, WireFormatError),
        ({"_memory": answered}, WireFormatError),
        ({"_memory": foreign["_memory"]}, KeyMismatchError),
        ({"_secrets": foreign["_secrets"]}, KeyMismatchError),
        ({"_secrets": foreign["_secrets"], "_memory": foreign["_memory"]}, KeyMismatchError),
    ):
        fresh, state = authority_with(run, **forged)
        for one in (fresh, run.authority):
            with pytest.raises(error):
                one.restore(state, KEY)
        with pytest.raises(PolicyError, match="no keys"):
            fresh.begin_round(2)
    fresh, state = authority_with(run)
    fresh.restore(state, KEY)
    run.authority = fresh
    run.run_round()


def test_under_the_secret_of_another_client_a_sum_opens_to_nothing():
    """No state tells whose the secret in it is.

    The other client gives nothing away, and the round is refused.
    """
    run = run_of("full-he")
    client, contents = run.new_client(0), run.clients[0].changed()
    contents["_own_keys"] |= {"_held": run.clients[1].changed()["_own_keys"]["_held"]}
    client.restore(pack_state(client._owner, encode_record(contents, {}), KEY), KEY)
    run.clients[0] = client
    before = run.parameters
    with pytest.raises(WireFormatError, match="does not open to"):
        run.run_round()
    run.model = run.authority.newest_model()
    np.testing.assert_array_equal(run.parameters, before)
