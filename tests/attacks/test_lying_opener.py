"""The aggregator opens sums, and so has the model: what it still cannot do by a lie, and what it cannot pass on."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from attacks.test_tampering_client import ATTACKER, spoil
from methods.method_conformance import SteppedRun
from methods.method_conformance import run_of as run_opened_by
from methods.variants import CLIENTS
from shieldfl.authority.message import Message
from shieldfl.authority.round_key_check import digest_of_parts
from shieldfl.authority.total_opener import AnswerOpener, GrantRequest
from shieldfl.encryption.registry import scheme_of
from shieldfl.errors import KeyMismatchError, ParameterError, PolicyError, WireFormatError
from shieldfl.rounds.opening_rule import ANSWER

OTHER = bytes(range(32))


run_of = partial(run_opened_by, opener="aggregator")


def closed_round(run: SteppedRun) -> Message:
    """All clients send; the aggregator has closed the update phase of round 1 and asked nothing yet."""
    first = run.begin_round(1)
    run.aggregator.begin_phase("update", 1, None)
    for index, client in enumerate(run.clients):
        run.train_client(index, 1, CLIENTS, first)
        run.aggregator.receive("update", index, client.step("update", None))
    return run.aggregator.close("update")


@pytest.mark.parametrize("restarts", [False, True])
def test_a_round_has_one_model_whatever_the_aggregator_asks_again(restarts):
    run = run_of("full-he", restarts_roles=restarts)
    run.run_round()
    authority, model = run.authority, run.aggregator.model_digest()
    first = authority.begin_round(2, None, model)
    assert authority.begin_round(2, None, model) == first
    for number in (2, 3, 50):
        with pytest.raises(PolicyError, match="no round was answered since another model was signed"):
            authority.begin_round(number, None, OTHER)
    # Nor does a round that was given up make room for another model.
    authority.begin_round(3, None, model)
    with pytest.raises(PolicyError, match="no round was answered since"):
        authority.begin_round(4, None, OTHER)
    for wrong in (b"", bytes(31), bytes(33), None, 5, "x" * 32):
        with pytest.raises(ParameterError, match="give its digest"):
            authority.begin_round(4, None, wrong)


@pytest.mark.parametrize("label", ["full-he", "fedml-he", "selective-shield/encrypted", "alt-fl-mp"])
def test_before_the_first_answer_every_round_begins_with_the_initial_model(label):
    """The set-up pins it: an aggregator that trained its own for one client could not have it signed."""
    run = run_of(label)
    for number in (1, 2):
        with pytest.raises(PolicyError, match="or with the initial one"):
            run.authority.begin_round(number, None, OTHER)
    run.begin_round(1)
    with pytest.raises(PolicyError, match="or with the initial one"):
        run.authority.begin_round(2, None, OTHER)
    run.begin_round(2)


def test_no_client_takes_a_model_that_was_swapped_after_it_was_signed_or_is_of_another_round():
    run = run_of("full-he")
    earlier = run.begin_round(1)
    run.run_round()
    first = run.begin_round(2)
    moved = np.frombuffer(first["parameters"], np.float32) + np.float32(1.0)
    before = run.clients[0].changed()
    for lie in (
        {**first, "parameters": moved.tobytes()},
        {**first, "parameters": earlier["parameters"], "buffers": earlier["buffers"]},
        {**first, "round model": earlier["round model"]},
        {**first, "zone": b"anything"},
        earlier,
    ):
        with pytest.raises(KeyMismatchError, match="model was not signed"):
            run.clients[0].begin_round(2, CLIENTS, Message(lie))
    assert run.clients[0].changed().keys() == before.keys()
    assert run.clients[0].round == 1
    starts = [client.begin_round(2, CLIENTS, first) for client in run.clients]
    for start in starts:
        np.testing.assert_array_equal(start.parameters, starts[0].parameters)


def test_the_answer_to_one_list_opens_no_other_total():
    """The aggregator asks for three of four clients, and wants the sum of all, whose difference is one update."""
    run = run_of("full-he")
    whole = closed_round(run)
    three = run.new_aggregator()
    three.begin_round(1, Message())
    three.begin_phase("update", 1, None)
    for index in range(3):
        three.receive("update", index, run.clients[index].step("update", None))
    three.close("update")
    answer = run.authority.answer("update", three.request("update"))
    before = run.aggregator.newest_model()
    with pytest.raises(KeyMismatchError, match="not signed by this session's key authority for this total"):
        run.aggregator.open("update", answer)
    # The authority has answered this round: there is no second answer, whoever is in it.
    with pytest.raises(PolicyError, match="has been answered"):
        run.authority.answer("update", run.aggregator.request("update"))
    assert run.aggregator.newest_model() == before
    assert whole == run.aggregator.close("update")


def test_what_stands_beside_a_total_is_bound_to_its_answer_too():
    run = run_of("full-he")
    whole = closed_round(run)
    answer = run.authority.answer("update", run.aggregator.request("update"))
    opening = run.aggregator._opening
    with pytest.raises(KeyMismatchError):
        opening.open("update", "update", Message({**whole, "more": b"1"}), answer)
    with pytest.raises(PolicyError, match="no answer to phase"):
        opening.open("scores", "scores", whole, answer)
    run.aggregator.open("update", answer)


@pytest.mark.parametrize("opener", ["aggregator", "clients", "authority"])
def test_who_only_relays_opens_nothing_whoever_opens(opener):
    """It has every message between the roles, and can ask the authority in whatever name."""
    run = run_opened_by("full-he", opener)
    relayed: list[Message] = []
    honest = run.authority.answer
    if opener != "authority":
        # An authority that opens sends its answer, the model, to clients: its channel with them is not the relay's.
        run.authority.answer = lambda phase, message: relayed.append(honest(phase, message)) or relayed[-1]
    run.run_round()
    model = bytes(run.model["parameters"])
    assert not any(model in bytes(part) for message in relayed for part in message.values())
    # What asks for a grant is taken from nobody but the one aggregator that opens.
    request = GrantRequest(run.reader.check)
    with pytest.raises(PolicyError if opener == "aggregator" else ParameterError):
        run.authority.grant(Message({"enrolment": request.request}))
    # Nor as a client's: what requests are sealed to was erased when the last client had enrolled.
    with pytest.raises(PolicyError, match="enrolment has ended"):
        run.authority.enrol(0, Message({"enrolment": request.request}))
    scheme = scheme_of(run.reader.check.parameters["update"])
    total = scheme.Total.from_bytes(run.closed["update"]["total"])
    assert len(relayed) == (0 if opener == "authority" else 1)
    for message in relayed:
        sealed = AnswerOpener(run.reader.check.session_key("update"), bytes(32), 2, (1.0, 1.0))
        sealed.take(message[ANSWER])
        with pytest.raises((PolicyError, KeyMismatchError)):
            sealed.open(total)
    if opener != "aggregator":
        with pytest.raises(ParameterError, match="opens nothing"):
            run.aggregator.open("update", Message())
        with pytest.raises(ParameterError, match="does not see the model"):
            run.aggregator.newest_model()


def test_clients_open_nothing_with_an_answer_that_is_passed_on_to_them():
    run = run_of("full-he")
    result = closed_round(run)
    answer = run.authority.answer("update", run.aggregator.request("update"))
    own = run.clients[0]
    assert own._opening is None
    own.end_round(Message({**result, **answer}))
    keys = run.method._granted_keys(own.context)
    keys.begin_round(1)
    with pytest.raises(PolicyError, match="granted no answers"):
        keys.take("update", answer[ANSWER], b"")
    # Nor does the grant of the aggregator open itself to a client.
    grant = run.authority.grant(run.aggregator.enrolment())
    with pytest.raises(KeyMismatchError, match="another client or session"):
        own._own_keys.enrolment.granted(grant["grant"])
    assert run.authority.grant(run.aggregator.enrolment()) == grant


@pytest.mark.parametrize("label", ["fedml-he", "selective-shield/encrypted", "alt-fl-mp"])
def test_one_answer_alone_says_what_a_round_encrypts(label):
    """Whoever told two clients of different positions would read at one what the other encrypts."""
    run = run_of(label)
    run.begin_round(1)
    (phase, *_) = run.method.phases_of(run.model, 1)
    with pytest.raises(PolicyError, match="was not answered"):
        run.authority.sign_answer(phase.name, 1, OTHER)
    run.run_round()
    answer = run.answers[phase.name]
    unsigned = {name: part for name, part in answer.items() if name != "round answer"}
    digest = digest_of_parts(Message(unsigned))
    assert Message({**unsigned, **run.authority.sign_answer(phase.name, 1, digest)}) == answer
    with pytest.raises(PolicyError, match="another answer"):
        run.authority.sign_answer(phase.name, 1, OTHER)
    for wrong, number in (("update", 1), ("no phase", 1)):
        with pytest.raises(ParameterError):
            run.authority.sign_answer(wrong, number, OTHER)
    with pytest.raises(ParameterError):
        run.authority.sign_answer(phase.name, 1, b"short")
    run.begin_round(2)
    with pytest.raises(PolicyError, match=r"does not run|for the whole run"):
        run.authority.sign_answer(phase.name, 2, OTHER)


@pytest.mark.parametrize("label", ["fedml-he", "selective-shield/encrypted"])
def test_a_client_goes_on_with_no_positions_but_those_that_were_signed(label):
    run, state = run_of(label), {}

    def lie(phase, aggregator, messages):
        if phase == "update":
            (before, _) = run.method.phases_of(run.model, 1)
            name = next(name for name in run.answers[before.name] if name != "round answer")
            altered = {**run.answers[before.name], name: bytes(run.answers[before.name][name])[::-1]}
            fresh = run.new_client(0)
            fresh.restore(state["negotiating"], bytes(32))
            with pytest.raises(KeyMismatchError, match="answer was not signed"):
                fresh.step("update", Message(altered))
        else:
            state["negotiating"] = run.clients[0].state(bytes(32))

    run.run_round(intrude=lie)


@pytest.mark.parametrize("label", ["full-he", "selective-shield/clear"])
def test_a_round_that_a_client_spoils_is_followed_by_others(label):
    run = run_of(label)
    with pytest.raises(WireFormatError, match="does not open to sums of values in range"):
        run.run_round(intrude=partial(spoil, run))
    np.testing.assert_array_equal(run.parameters, run.initial.parameters)
    run.run_round()
    assert not np.array_equal(run.parameters, run.initial.parameters)
    assert ATTACKER in run.sent["update"]


def test_what_the_aggregator_reads_has_no_epsilon():
    """Under the other openers ciphertexts alone leave a client, and there is no figure at all."""
    run, others = run_of("full-he"), run_opened_by("full-he", "clients")
    for one in (run, others):
        one.run_round()
    assert np.isinf(run.account.spent().epsilon)
    assert "an opened sum" in run.account.spent().reason
    assert np.isnan(others.account.spent().epsilon)
    assert "what sums open to" in run.method.all_that_the_aggregator_sees
    assert "open" not in others.method.all_that_the_aggregator_sees
