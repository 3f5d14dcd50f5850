"""A server hands clients another federation than the one that they joined: its set-up, its rounds, its models."""

from __future__ import annotations

from dataclasses import replace

import pytest

from methods.method_conformance import SteppedRun, contraction, run_of
from methods.variants import CLIENTS, every_variant, labelled
from shieldfl.authority.message import Message
from shieldfl.errors import KeyMismatchError, PolicyError
from shieldfl.methods.registry import make_method
from shieldfl.rounds.public_setup import PublicSetup


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
    start = client.begin_round(3, CLIENTS, later)
    client.finish_training(contraction(3, 0, start))
