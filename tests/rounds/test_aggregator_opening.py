"""The aggregator opens sums itself: nothing else changes, and the authority and clients see less of them."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from methods.method_conformance import SOME_ABSENT, SteppedRun, check_alike
from methods.method_conformance import run_of as run_opened_by
from methods.variants import ONE_OF_EACH_KIND, each_as_parameter, labelled, opened_by_aggregator, variants
from shieldfl.authority.authority_store import AuthorityStore
from shieldfl.authority.message import Message
from shieldfl.encryption.enrolment import OPENER, sealed_request
from shieldfl.errors import (
    KeyMismatchError,
    ParameterError,
    PolicyError,
    SecretCopyError,
    WireFormatError,
)
from shieldfl.rounds.plan import PublicSetup

OPENED_BY_AGGREGATOR = [one for one in opened_by_aggregator(variants()) if not one.noisy]
# One of each kind that an aggregator can open for; the rest is slow.
OTHERS = {one.label.partition("/opened")[0] for one in OPENED_BY_AGGREGATOR} - set(ONE_OF_EACH_KIND)
each_method = pytest.mark.parametrize("variant", each_as_parameter(OPENED_BY_AGGREGATOR, OTHERS))
SEALED = bytes(32)


run_of = partial(run_opened_by, opener="aggregator")


@each_method
def test_the_models_are_those_that_the_authority_opens_whoever_was_in_which_round(variant):
    other = SteppedRun(labelled(variant.label.removesuffix("/opened by the aggregator")))
    check_alike(SteppedRun(variant, restarts_roles=True), other, [*SOME_ABSENT, [0, 1, 2, 3]])


@each_method
def test_the_authority_sees_lists_and_digests_and_clients_no_sum(variant):
    run = SteppedRun(variant)
    seen = []
    honest = run.authority.answer
    run.authority.answer = lambda phase, message: (seen.append(message), honest(phase, message))[1]
    for _ in range(2):
        run.run_round()
    assert seen
    assert all(message.keys() == {"round", "request"} for message in seen)
    assert max(message.nbytes for message in seen) < 600
    model = bytes(run.aggregator.newest_model()["parameters"])
    assert model not in bytes(run.authority.state(SEALED))
    assert bytes(run.model["parameters"]) == model
    assert "total" not in {name for client in range(4) for name in run.method.message_for(client, run.model)}


@pytest.mark.parametrize(
    ("label", "opener", "why"),
    [
        ("dict-pfl", "aggregator", "without the secret that clients keep from it"),
        ("sense-crypt/clusters", "aggregator", "as it is set"),
        *(
            (label, opener, "as it is set")
            for label in ("full-he/ckks", "plain-he", "fedavg")
            for opener in ("aggregator", "clients")
        ),
    ],
)
def test_who_cannot_is_told_so_before_a_key_is_made(label, opener, why):
    with pytest.raises(ParameterError, match=f"cannot open sums {why}"):
        SteppedRun(labelled(label), opener=opener)


def test_an_aggregator_that_opens_needs_the_model_that_the_set_up_pins():
    run = run_of("full-he")
    with pytest.raises(ParameterError, match="give it the initial model"):
        run.method.aggregator_steps(run.setup, run.weights)
    other = type(run.initial)(run.initial.parameters + np.float32(1.0), run.initial.buffers)
    with pytest.raises(KeyMismatchError, match="another model than the federation begins with"):
        run.method.aggregator_steps(run.setup, run.weights, initial=other)
    # A set-up of the same sizes in which clients open is another one, with another digest.
    others = run_opened_by("full-he", "clients")
    assert PublicSetup.from_bytes(run.setup.to_bytes(), run.setup.digest).plan.opener == "aggregator"
    with pytest.raises(ParameterError, match="another method, plan or settings"):
        others.method.aggregator_steps(run.setup, run.weights, initial=run.initial)


def test_states_of_an_aggregator_that_opens_are_sealed_and_bound_to_what_it_is():
    run = run_of("full-he")
    run.run_round()
    with pytest.raises(PolicyError, match="holds secret keys"):
        run.aggregator.state()
    state = run.aggregator.state(SEALED)
    fresh = run.new_aggregator()
    fresh.restore(state, SEALED)
    assert fresh.newest_model() == run.aggregator.newest_model()
    assert fresh.model_digest() == run.aggregator.model_digest()
    others = run_opened_by("full-he", "clients")
    with pytest.raises((KeyMismatchError, WireFormatError)):
        others.new_aggregator().restore(state, SEALED)
    with pytest.raises(SecretCopyError):
        fresh._opening.grant.__reduce_ex__(2)


def test_an_aggregator_that_lost_its_state_gets_no_second_grant():
    """Its identity is vouched for by whoever passes requests on: a second one could be somebody else."""
    run = run_of("full-he")
    with pytest.raises(PolicyError, match="granted the answers of this session before"):
        run.authority.grant(run.new_aggregator().enrolment())
    again = run.authority.grant(run.aggregator.enrolment())
    run.aggregator.enrolled(again)
    elsewhere = sealed_request(run.reader.check.identity, bytes(32), OPENER, bytes(32))
    with pytest.raises(PolicyError, match="granted the answers of this session before"):
        run.authority.keys.enrol(None, elsewhere)
    with pytest.raises(KeyMismatchError, match="another client or session"):
        run.new_aggregator().enrolled(again)


@pytest.mark.parametrize("in_a_file", [False, True])
@pytest.mark.parametrize("turn", range(5))
def test_the_aggregator_may_ask_for_its_grant_before_among_and_after_the_clients(turn, in_a_file, tmp_path):
    run = run_of("full-he")
    method, plan = run.method, run.method.plan
    store = AuthorityStore.create(tmp_path / "store", SEALED) if in_a_file else None
    authority, setup = method.authority_setup(run.initial, store=store)
    clients = [
        method.client_steps(setup, index, run.weights[index], run.initial) for index in range(plan.clients)
    ]
    aggregator = method.aggregator_steps(setup, run.weights, initial=run.initial)
    others = method.aggregator_steps(setup, run.weights, initial=run.initial)
    for at in range(plan.clients + 1):
        if at == turn:
            granted = authority.grant(aggregator.enrolment())
            aggregator.enrolled(granted)
        if at < plan.clients:
            clients[at].enrolled(authority.enrol(at, clients[at].enrolment()))
        if at < max(turn, plan.clients - 1):
            assert authority.keys._owner.enrolment_key is not None
    assert authority.keys._owner.enrolment_key is None
    for _ in range(2):
        state = None if in_a_file else authority.state(SEALED)
        authority.close()
        store = AuthorityStore(tmp_path / "store", SEALED) if in_a_file else None
        authority = method.authority_steps(setup, run.initial, store=store)
        if state is not None:
            authority.restore(state, SEALED)
        assert authority.keys._store.keep_enrolment_key(None) is None
        assert authority.grant(aggregator.enrolment()) == granted
        with pytest.raises(PolicyError, match="granted the answers of this session before"):
            authority.grant(others.enrolment())


def test_before_it_was_granted_anything_it_opens_nothing():
    run = run_of("full-he")
    first = run.begin_round(1)
    aggregator = run.new_aggregator()
    aggregator.begin_round(1, Message())
    aggregator.begin_phase("update", 1, None)
    for index, client in enumerate(run.clients):
        run.train_client(index, 1, 4, first)
        aggregator.receive("update", index, client.step("update", None))
    with pytest.raises(ParameterError, match="close it first"):
        aggregator.request("update")
    aggregator.close("update")
    with pytest.raises(ParameterError, match="phase 'scores' opens no total"):
        aggregator.open("scores", Message())
    answer = run.authority.answer("update", aggregator.request("update"))
    with pytest.raises(PolicyError, match="granted no answers"):
        aggregator.open("update", answer)
    assert aggregator.newest_model() == run.initial.to_message()
