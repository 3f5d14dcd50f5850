"""One client that shares a key with the authority and alters its own frames; aggregator and authority are honest."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import shieldfl as sf
from encryption.wire_twin import reseal
from methods.method_conformance import SteppedRun
from methods.variants import CLIENTS, labelled
from shieldfl.authority.message import Message

ATTACKER = CLIENTS - 1


@pytest.mark.parametrize(
    ("label", "weight"), [("full-he", 0.5), ("full-he/ckks", 0.5), ("full-he", 2.0**-10)]
)
def test_a_weight_that_is_encrypted_otherwise_than_stated_is_refused(label, weight):
    """All weigh 2, the largest, and one encrypts half of that, or next to nothing: the sums tell, and nobody else."""
    run = SteppedRun(labelled(label), weights=(2,) * CLIENTS)

    def forge(phase, aggregator, messages):
        size = run.initial.parameters.size + run.initial.buffers.size
        forged = run.encryptor("update", ATTACKER).encrypt(np.zeros(size, np.float32), weight=weight, round=1)
        messages[ATTACKER] = Message({**messages[ATTACKER], "ciphertexts": forged.to_bytes()})

    with pytest.raises(sf.RangeError, match="stated"):
        run.run_round(intrude=forge)
    np.testing.assert_array_equal(run.parameters, run.initial.parameters)
    run.run_round()
    assert not np.array_equal(run.parameters, run.initial.parameters)


def spoil(run: SteppedRun, phase: str, aggregator: object, messages: dict[int, Message]) -> None:
    """In place of the attacker's frame of round 1: one that does not fit the secret which the authority has."""
    if phase == "update":
        public_key = run.reader.check.session_key("update")
        stranger = sf.kahe.ClientKey(public_key, ATTACKER, bytes(range(32)), 1)
        own = run.batch(messages[ATTACKER]["ciphertexts"])
        forged = sf.kahe.Encryptor(stranger).encrypt(np.zeros(own.count, np.float32), round=1).to_bytes()
        named = reseal(forged.replace(run.batch(forged).parsed.mask_id, own.parsed.mask_id))
        messages[ATTACKER] = Message({**messages[ATTACKER], "ciphertexts": named})


@pytest.mark.parametrize("label", ["full-he", "selective-shield/clear", "dict-pfl", "sense-crypt/clusters"])
def test_a_frame_that_no_secret_of_its_client_fits_spoils_its_round_and_tells_nothing(label):
    """Elsewhere it could read a key out of the sum: here a sum opens by what is made for its frames, or not at all."""
    run = SteppedRun(labelled(label))
    with pytest.raises(sf.WireFormatError, match="does not open to sums of values in range"):
        run.run_round(intrude=partial(spoil, run))
    np.testing.assert_array_equal(run.parameters, run.initial.parameters)
    # The same list was answered: no other one is, in which this client is left out.
    asked = kahe_request_without(run, ATTACKER)
    with pytest.raises(sf.PolicyError, match="with another list"):
        run.authority.keys._authorities["update"].sum_key(asked)
    run.run_round()
    assert not np.array_equal(run.parameters, run.initial.parameters)


def kahe_request_without(run: SteppedRun, left_out: int) -> bytes:
    """Ask for what opens the sum of the others' updates of the newest round."""
    sums = sf.kahe.Aggregator(run.reader.check.session_key("update"))
    for client, message in run.sent["update"].items():
        if client != left_out:
            sums.add(message["ciphertexts"])
    return sums.total().request()


def test_a_vote_against_a_position_is_refused_where_clients_enrol():
    run = SteppedRun(labelled("selective-shield/encrypted"))

    def forge(phase, aggregator, messages, vote):
        if phase == "negotiate":
            votes = np.full(run.initial.parameters.size, vote, np.float32)
            number = run.batch(messages[ATTACKER]["votes"], "votes").round
            forged = run.encryptor("votes", ATTACKER).encrypt(votes, round=number).to_bytes()
            messages[ATTACKER] = Message({**messages[ATTACKER], "votes": forged})

    with pytest.raises(sf.RangeError, match="a vote was forged"):
        run.run_round(intrude=partial(forge, vote=-1.0))
    assert "update" not in run.sent
    run.run_round(intrude=partial(forge, vote=1.0))
    assert not np.array_equal(run.parameters, run.initial.parameters)
