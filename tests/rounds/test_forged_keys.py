"""A state with forged keys of a client or an authority, under the right seal, is refused, or opens nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from methods.method_conformance import SteppedRun, run_of
from rounds.forged_state import KEY, check_refused
from shieldfl.authority.role_state import pack_state
from shieldfl.encryption.enrolment import EnrolmentRequest
from shieldfl.errors import KeyMismatchError, PolicyError, WireFormatError
from shieldfl.rounds.authorities import AuthoritySteps
from shieldfl.stateful import encode_record


def of_another_client(request: bytes) -> bytes:
    own = EnrolmentRequest.from_bytes(request)
    return replace(own, client=own.client + 1).to_bytes()


FORGED_KEYS = [
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
    ("full-he", "client", ("_own_keys", "_held"), lambda _: {}),
    ("full-he", "client", ("_own_keys", "_held"), lambda now: now | {"other": now["update"]}),
    ("full-he", "client", ("_own_keys", "_held"), lambda now: {"update": (1, now["update"][1][:-1])}),
    ("full-he", "client", ("_own_keys", "_held"), lambda now: {"update": (0, now["update"][1])}),
    ("full-he", "client", ("_own_keys", "_held"), lambda now: {"update": (2, now["update"][1])}),
    (
        "selective-shield/encrypted",
        "client",
        ("_own_keys", "_held"),
        lambda now: now | {"votes": (2, now["votes"][1])},
    ),
]


@pytest.mark.parametrize(
    ("label", "kind", "path", "forge"),
    FORGED_KEYS,
    ids=lambda one: one if isinstance(one, str) else ".".join(one) if isinstance(one, tuple) else "",
)
def test_forged_keys_change_neither_a_new_nor_a_used_role(label, kind, path, forge):
    check_refused(label, kind, path, forge)


def authority_with(run: SteppedRun, **forged: object) -> tuple[AuthoritySteps, bytes]:
    """Return an authority without keys, and the state of this run's, with other values of its keys."""
    fresh, contents = run.new_authority(), run.authority.changed()
    contents["keys"] |= forged
    return fresh, pack_state(fresh._owner, encode_record(contents, {}), KEY)


def test_an_authority_goes_on_from_no_memory_but_that_of_its_newest_round():
    """From another one it would answer twice for a client: the difference of two answers is what one client sent."""
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
    """No state tells whose the secret in it is. The other client gives nothing away, and the round is refused."""
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
