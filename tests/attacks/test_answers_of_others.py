"""Answers of a key authority where they do not belong: in another session, or for what serves another purpose."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import shieldfl as sf
from authority.enrolled_session import PARAMETERS, Session, updates
from encryption.enrolled_clients import total_of
from methods.method_conformance import SteppedRun, run_of
from methods.variants import CLIENTS, every_variant, labelled
from shieldfl.authority.authority_secrets import AuthoritySecrets
from shieldfl.authority.message import Message
from shieldfl.authority.total_opener import AnswerOpener
from shieldfl.encryption import kahe
from shieldfl.encryption.enrolment import open_total, read_answer
from shieldfl.errors import KeyMismatchError, PolicyError
from shieldfl.methods.registry import make_method
from shieldfl.rounds.plan import PublicSetup


def test_what_a_client_was_granted_opens_nothing_of_another_session_of_its_authority():
    """A client that was revoked, and is in no later session, has its grant still, and what travels in the open."""
    owner = AuthoritySecrets()
    first, later = Session(owner=owner), Session(names=(7, 8, 9, 10), owner=owner)
    revoked = first.keys[0]
    first.authority.revoke("clinic-1")
    expected = updates().astype(np.float64).sum(axis=0)
    for session, opens in ((first, True), (later, False)):
        total = session.total((1, 2, 3)) if opens else session.total()
        answer = session.authority.sum_key(total.request())
        public_key, request = session.authority.public_key, total.request()
        granted = public_key.identity.verifying_key, revoked.opening_keys[0], public_key.id, request, answer
        if opens:  # what a grant is for, until the session ends
            sums = open_total(public_key, total, read_answer(*granted))[0]
            np.testing.assert_array_equal(sums, updates()[1:].astype(np.float64).sum(axis=0))
            continue
        with pytest.raises(sf.PolicyError, match="sealed for others"):
            read_answer(*granted)
        np.testing.assert_array_equal(kahe.open(total, answer, session.keys[1]), expected)


def test_a_total_for_one_purpose_is_not_opened_for_another():
    """Where both are encrypted alike, all else fits: an aggregator would have its choice of what becomes the model."""
    session = Session()
    total = session.total(purpose="scores")
    answer = session.authority.sum_key(total.request())
    for purpose in ("scores", "update"):
        opener = AnswerOpener(
            session.authority.public_key, session.keys[0].opening_keys[0], 3, (1.0, 1.0), purpose=purpose
        )
        opener.take(answer)
        if purpose == "scores":
            assert opener.open(total).shape == (300,)
        else:
            with pytest.raises(sf.PolicyError, match="not for 'update'"):
                opener.open(total)
    authority = sf.KeyAuthority(PARAMETERS, purpose="update")
    other = Session()
    other.authority, other.keys = authority, [authority.enrol(number) for number in range(4)]
    with pytest.raises(sf.PolicyError, match="not for 'update'"):
        authority.open(other.total(purpose="scores"))
    assert authority.open(other.total()).shape == (300,)


class GivenUpError(Exception):
    pass


def give_up(phase, aggregator, messages):
    if phase == "update":
        raise GivenUpError


@pytest.mark.parametrize("label", ["fedml-he", "alt-fl-pi"])
def test_scores_are_in_one_sum_that_is_opened_though_the_round_ends_before_its_update(label):
    """The same scores, summed once with a client and once without, would tell that client's to any other."""
    run, twin = run_of(label, "clients"), run_of(label)
    for one in (run, twin):
        with pytest.raises(GivenUpError):
            one.run_round(intrude=give_up)
    # The aggregator asks once more, without one of them.
    first = run.begin_round(2, [0, 1, 2])
    history = bytes(first["earlier answers"])
    sums = kahe.Aggregator(run.reader.check.session_key("scores"), round=2, purpose="scores")
    for client in range(3):
        run.train_client(client, 2, 3, first)
        scores = run.encryptor("scores", client).encrypt(
            np.ones(run.initial.parameters.size), weight=1.0, round=2
        )
        sums.add(scores)
    asked = {"round": Message.from_number(2), "request": sums.total().request(), "earlier answers": history}
    with pytest.raises(sf.PolicyError, match="answered in round 1, and another one would tell"):
        run.authority.answer("scores", Message(asked))
    # And rounds go on, with the mask that was agreed on, for those too that are not in the next one.
    for one in (run, twin):
        one.run_round([0, 1, 2])
        one.run_round()
    assert "scores" not in run.sent
    for client in range(4):
        np.testing.assert_array_equal(run.merged(client).parameters, twin.merged(client).parameters)


@pytest.mark.parametrize("label", ["fedml-he", "alt-fl-pi"])
def test_nor_is_there_a_second_one_where_the_aggregator_opens(label):
    run, twin = run_of(label, "aggregator"), run_of(label)
    for one in (run, twin):
        with pytest.raises(GivenUpError):
            one.run_round(intrude=give_up)
    # Scores are sent again, and nobody asks for what opens them: the mask is the one that there is.
    phases = []
    run.run_round([0, 1, 2], intrude=lambda phase, aggregator, messages: phases.append(phase))
    assert phases == ["scores", "update"]
    run.run_round()
    for participants in ([0, 1, 2], None):
        twin.run_round(participants)
    for client in range(4):
        np.testing.assert_array_equal(run.merged(client).parameters, twin.merged(client).parameters)


@pytest.mark.parametrize("opener", ["authority", "clients"])
def test_methods_open_each_total_for_its_own_purpose(opener):
    """FedML-HE whose updates are encrypted as its scores are: the keys of both are the same."""
    run = SteppedRun(labelled("fedml-he", opener).with_others(value_bits=40, fraction_bits=36))
    check = run.reader.check
    assert check.session_key("scores") == check.session_key("update")
    run.run_round()
    scores = [message["scores"] for message in run.sent["scores"].values()]
    total = total_of(check.session_key("scores"), scores, round=1, purpose="scores")
    if opener == "authority":
        keys = run.authority.keys
        assert keys.opener(1, "scores").open(total).shape == (run.initial.parameters.size,)
        with pytest.raises(sf.PolicyError, match="not for 'update'"):
            keys.opener(1, "update").open(total)
    else:
        keys = run.clients[0]._opening.keys
        keys.begin_round(1)
        for purpose, refusal in (("scores", "not signed"), ("update", "not for 'update'")):
            keys.take(purpose, b"", b"")
            with pytest.raises(sf.ShieldError, match=refusal):
                keys.opener(1, purpose).open(total)


@pytest.mark.parametrize(("label", "fewest"), [("full-he/ckks", 1), ("full-he", 2)])
def test_a_server_cannot_set_the_federation_up_itself(label, fewest):
    """With a set-up of its own it would hold the secret keys, and let a client be alone, or with one, in a round."""
    run = run_of(label, min_clients=3)
    plan = replace(run.method.plan, min_clients=fewest)
    settings = labelled(label).all_settings()
    _, servers = make_method("full-he", settings, plan).authority_setup(run.initial)
    mixed = (
        replace(run.setup, session=servers.session),
        replace(run.setup, verifying_key=servers.verifying_key),
        replace(run.setup, enrolment_key=servers.enrolment_key[::-1] or b"1" * 1216),
    )
    for handed in (servers, *mixed, replace(run.setup, plan=plan)):
        with pytest.raises(KeyMismatchError, match="pinned"):
            PublicSetup.from_bytes(handed.to_bytes(), run.setup.digest)


def test_keys_of_another_session_are_not_encrypted_under():
    run, other = run_of("full-he"), run_of("full-he")
    with pytest.raises(KeyMismatchError, match="not signed"):
        run.clients[0].begin_round(1, CLIENTS, other.begin_round(1))


@every_variant
def test_no_client_takes_part_in_a_round_that_the_plan_does_not_have(variant):
    """A target epsilon is spread over the plan's rounds: a server that went on would overspend it."""
    run = SteppedRun(variant, rounds=2)
    client = run.clients[0]
    for number, participants, words in ((3, CLIENTS, "plan's 2"), (2, CLIENTS + 1, f"of {CLIENTS}")):
        first = run.method.message_for(0, run.begin_round(2))
        with pytest.raises(PolicyError, match=words):
            client.begin_round(number, participants, first)
    client.begin_round(2, CLIENTS, run.method.message_for(0, run.begin_round(2)))


def test_a_cluster_s_client_is_not_sent_back_to_the_initial_model_by_cutting_a_message():
    run = run_of("sense-crypt/dense")
    run.run_round()
    client = run.clients[0]
    whole = run.method.message_for(0, run.begin_round(2))
    client.begin_round(2, CLIENTS, whole)
    later = run.method.message_for(0, run.begin_round(3))
    cut = Message({name: part for name, part in later.items() if name not in ("parameters", "buffers")})
    with pytest.raises(KeyMismatchError, match="model was not signed"):
        client.begin_round(3, CLIENTS, cut)
    run.train_client(0, 3, CLIENTS, later)
