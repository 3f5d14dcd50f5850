"""How clients come to share a key with the authority; whom it answers, once, and what its answers are good for."""

from __future__ import annotations

import copy
import os
import pickle

import numpy as np
import pytest

import shieldfl as sf
from authority.enrolled_session import OF_SCHEMES, SIZE, Session, updates
from encryption.enrolled_clients import total_of
from shieldfl.authority import authority_secrets
from shieldfl.authority.authority_secrets import AuthoritySecrets
from shieldfl.authority.total_opener import AnswerOpener
from shieldfl.encryption import kahe
from shieldfl.encryption.enrolment import (
    AuthorityIdentity,
    ClientKey,
    client_number,
    read_request,
    request_frame,
    sealed_request,
)
from shieldfl.errors import (
    KeyMismatchError,
    ParameterError,
    PolicyError,
    RangeError,
    SecretCopyError,
    ShieldError,
    WireFormatError,
)


@pytest.fixture
def session():
    return Session()


def test_clients_enrol_across_a_network_once(session):
    authority = session.authority
    public_key = kahe.PublicKey.from_bytes(authority.public_key.to_bytes())
    with pytest.raises(ParameterError, match="does not say whose it is"):
        kahe.ClientKey.request(public_key, "clinic-9")
    with pytest.raises(KeyMismatchError, match="another key authority"):
        kahe.ClientKey.request(public_key, "clinic-9", AuthoritySecrets().identity)
    key, request = kahe.ClientKey.request(public_key, "clinic-9", authority.public_key.identity)
    assert authority.accept(request) == "clinic-9"
    key.take_grant(authority.grant("clinic-9"))
    assert key.opening_keys[0] == session.keys[0].opening_keys[0]
    for again in (request, kahe.ClientKey.request(authority.public_key, "clinic-9")[1]):
        with pytest.raises(PolicyError, match="was enrolled in the session before"):
            authority.accept(again)
    with pytest.raises(PolicyError, match="was enrolled"):
        authority.enrol("clinic-1")
    session.keys.append(key)
    frames = [session.frame(0, 5), session.frame(1, 5), session.frame(-1, 5, updates()[2])]
    sums = authority.open(session.total(frames=frames))
    np.testing.assert_array_equal(sums, updates()[:3].astype(np.float64).sum(axis=0))


def enrolment_request(public_key, client, identity=None):
    return ClientKey.request(public_key, client, identity)[1]


@pytest.mark.parametrize("params", OF_SCHEMES.values(), ids=OF_SCHEMES)
def test_a_public_key_enrols_clients_whatever_way_it_was_carried(params, tmp_path):
    authority = sf.KeyAuthority(params)
    key = authority.public_key
    pickled = tmp_path / "pickled"
    pickled.write_bytes(pickle.dumps(key))
    frame, identity = key.to_bytes(), key.identity.to_bytes()
    carried = {
        "copy": copy.copy(key),
        "deepcopy": copy.deepcopy([key])[0],
        "pickle": pickle.loads(pickle.dumps(key)),
        "file": pickle.loads(pickled.read_bytes()),
        "bytes": type(key).from_bytes(frame, identity=identity),
    }
    for name, one in carried.items():
        assert (one, hash(one), one.identity) == (key, hash(key), key.identity)
        assert authority.accept(enrolment_request(one, name)) == name
    alone = type(key).from_bytes(frame)
    assert authority.accept(enrolment_request(alone, "frame", identity)) == "frame"
    with pytest.raises(ParameterError, match=r"from_bytes\(frame, identity=\.\.\.\)"):
        enrolment_request(alone, "nobody")
    with pytest.raises(KeyMismatchError, match="another key authority"):
        type(key).from_bytes(frame, sf.KeyAuthority(params).public_key.identity)
    with pytest.raises(WireFormatError):
        type(key).from_bytes(frame, identity[:-1])


def test_requests_and_grants_for_others_are_refused(session):
    authority, other = session.authority, Session().authority
    _, request = kahe.ClientKey.request(other.public_key, "clinic-9")
    with pytest.raises(KeyMismatchError, match="sealed to another key authority"):
        authority.accept(request)
    _, frame = kahe.ClientKey.request(authority.public_key, "clinic-9")
    client, sealed = read_request(frame)
    for changed in (("clinic-8", sealed), (9, sealed), (client, sealed[:-1]), (client, b"")):
        with pytest.raises(KeyMismatchError):
            authority.accept(request_frame(*changed))
    for damaged in (
        b"",
        frame[:5],
        b"XXXX" + frame[4:],
        frame[:4] + b"\2" + frame[5:],
        frame[:5] + bytes(4) + frame[9:],
    ):
        with pytest.raises(WireFormatError):
            authority.accept(damaged)
    for grant in (authority.grant("clinic-2"), other.grant("clinic-1"), b"", bytes(60)):
        with pytest.raises(KeyMismatchError, match="for another client or session"):
            session.keys[0].take_grant(grant)
    with pytest.raises(PolicyError, match="made at enrolment"):
        kahe.ClientKey(authority.public_key, 1, bytes(32)).take_grant(authority.grant("clinic-1"))


def test_numbers_and_names_are_apart():
    assert client_number(7) == 7
    assert 2**31 <= client_number("7") < 2**32
    for wrong in (-1, 2**31, "", "x" * 256, "\ud800", 1.5, None, b"clinic"):
        with pytest.raises(ParameterError):
            client_number(wrong)


def test_a_request_that_is_being_opened_when_enrolment_ends_is_opened_or_refused(monkeypatch):
    owner, context = AuthoritySecrets(), bytes(16)
    request = sealed_request(owner.identity, context, 7, bytes(range(32)))
    real = authority_secrets.hpke

    def ends_meanwhile():
        owner.take_enrolment_key(None)
        return real()

    monkeypatch.setattr(authority_secrets, "hpke", ends_meanwhile)
    assert owner.unseal(request, context) == (7, bytes(range(32)))
    with pytest.raises(PolicyError, match="enrolment has ended"):
        owner.unseal(request, context)


def test_the_sums_are_right_whoever_opens(session):
    total = session.total()
    expected = updates().astype(np.float64).sum(axis=0)
    answer = session.authority.sum_key(total.request())
    for sums in (
        session.authority.open(total),
        session.authority.open(total.to_bytes()),
        *(kahe.open(total, answer, key) for key in session.keys),
    ):
        np.testing.assert_array_equal(sums, expected)
    np.testing.assert_array_equal(session.authority.open_mean(total), expected / 4)
    opener = AnswerOpener(session.authority.public_key, session.keys[0].opening_keys[0], 3, (0.5, 1.0))
    with pytest.raises(PolicyError, match="no answer to this total"):
        opener.open(total)
    opener.take(answer)
    assert not opener.has_opened(total)
    np.testing.assert_array_equal(opener.open_mean(total), expected / 4)
    assert opener.has_opened(total)
    assert "clinic" not in repr(session.authority) + repr(session.keys)


def test_encrypted_weights_are_looked_at_wherever_a_total_is_opened():
    session = Session(weight_bounds=(0.5, 1.0))
    frames = [session.frame(client, weight=0.75) for client in range(4)]
    total = session.total(frames=frames)
    answer = session.authority.sum_key(total.request())
    mean = session.authority.open_mean(total, stated_weight=3.0)
    np.testing.assert_allclose(mean, updates().mean(axis=0), atol=2.0**-19)
    for bounds, stated in (((0.9, 1.0), None), ((0.5, 1.0), 2.5)):
        opener = AnswerOpener(session.authority.public_key, session.keys[1].opening_keys[0], 3, bounds)
        opener.take(answer)
        with pytest.raises(RangeError, match="weights"):
            opener.open_mean(total, stated_weight=stated)


def test_the_same_request_gets_the_same_bytes_and_no_other_of_these_clients_is_answered(session):
    frames = [session.frame(client) for client in range(4)]
    total = session.total(frames=frames)
    first = session.authority.sum_key(total.request())
    assert session.authority.sum_key(total.request()) == first
    assert session.authority.has_opened(total)
    for others in (frames[:3], [*frames[:3], session.frame(3)]):
        other = session.total(frames=others)
        assert not session.authority.has_opened(other)
        with pytest.raises(PolicyError, match="answered for in round 1 with another list or total"):
            session.authority.sum_key(other.request())
    with pytest.raises(PolicyError, match="with another list or total"):
        session.authority.sum_key(total.request(bytes(32)))
    # Another purpose or part has secrets of its own; so has the next round.
    for options in ({"purpose": "votes"}, {"part": 1}, {"round": 2}):
        assert session.authority.open(session.total(**options)).shape == (SIZE,)


def test_lists_that_are_not_to_be_answered_are_not(session):
    authority = session.authority
    with pytest.raises(PolicyError, match="fewer than min_clients = 3"):
        authority.sum_key(session.total((0, 1)).request())
    with pytest.raises(PolicyError, match="fewer than min_clients"):
        authority.open(session.total((0, 1)))
    stranger = kahe.ClientKey(authority.public_key, 77, bytes(32))
    frames = [
        *(session.frame(client) for client in range(3)),
        kahe.Encryptor(stranger).encrypt(updates()[0], round=1),
    ]
    with pytest.raises(PolicyError, match="client 77 is not enrolled"):
        authority.sum_key(session.total(frames=frames).request())
    authority.revoke("clinic-2")
    with pytest.raises(PolicyError, match="was revoked"):
        authority.sum_key(session.total().request())
    with pytest.raises(PolicyError, match="not enrolled: accept its request first"):
        authority.grant("clinic-2")
    assert authority.open(session.total((0, 2, 3))).shape == (SIZE,)
    few = Session(most_values=SIZE - 1)
    with pytest.raises(PolicyError, match="more than the 299 that the session allows"):
        few.authority.sum_key(few.total().request())


def test_a_request_of_another_session_is_refused(session):
    other = Session()
    request = other.total().request()
    with pytest.raises(KeyMismatchError, match="another session"):
        session.authority.sum_key(request)


def test_rounds_go_up_and_closed_ones_stay_closed(session):
    authority = session.authority
    recorded = [session.frame(client, 2) for client in range(4)]
    assert authority.newest_closed_round == -1
    authority.close_round(2)
    authority.close_round(1)
    assert authority.newest_closed_round == 2
    with pytest.raises(PolicyError, match="round 2 is over"):
        authority.sum_key(session.total(frames=recorded).request())
    for key in session.keys:
        with pytest.raises(PolicyError, match="round 1 is over"):
            kahe.Encryptor(key).encrypt(updates()[0], round=1)
    assert authority.open(session.total(round=3)).shape == (SIZE,)


def test_an_answer_opens_one_total_for_those_with_a_grant(session):
    total, later = session.total(), session.total(round=2)
    answer = session.authority.sum_key(total.request())
    key = session.keys[0]
    damaged = [answer[:-1], answer + b"1", b"", bytes(len(answer)), bytes([answer[0] ^ 1]) + answer[1:]]
    for one in damaged:
        with pytest.raises(KeyMismatchError, match="not signed by this session's key authority"):
            kahe.open(total, one, key)
    with pytest.raises(KeyMismatchError):
        kahe.open(later, answer, key)
    with pytest.raises(PolicyError, match="never a single client's batch"):
        kahe.open(kahe.CiphertextBatch.from_bytes(session.frame(0, 3)), answer, key)
    # Whoever relays answers, such as an aggregator, has nothing that opens them.
    relaying, _ = kahe.ClientKey.request(session.authority.public_key, "aggregator")
    with pytest.raises(PolicyError, match="granted no answers"):
        kahe.open(total, answer, relaying)
    relaying._opening_keys[0] = os.urandom(32)
    with pytest.raises(PolicyError, match="sealed for others"):
        kahe.open(total, answer, relaying)
    with pytest.raises(ParameterError, match="does not say whose it is"):
        kahe.open(
            total, answer, kahe.ClientKey(kahe.PublicKey.from_bytes(key.public_key.to_bytes()), 1, bytes(32))
        )


def test_what_is_no_request_is_refused(session):
    frame = session.frame(0)
    total = session.total()
    for wrong in (b"", frame, total.to_bytes(), total.request()[:-1], total.request() + b"1"):
        with pytest.raises(WireFormatError):
            session.authority.sum_key(wrong)
    for wrong in (None, "request", 5):
        with pytest.raises(ShieldError):
            session.authority.sum_key(wrong)
    ckks = sf.KeyAuthority(sf.ckks.Parameters(), 1)
    other = total_of(ckks.public_key, [sf.ckks.Encryptor(ckks.public_key).encrypt(updates()[0])])
    with pytest.raises(ParameterError, match="another encryption scheme"):
        session.authority.open(other)


def test_secrets_are_neither_copied_nor_shown(session):
    secrets = AuthoritySecrets()
    for one in (session.authority, session.keys[0], secrets):
        for take in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(SecretCopyError):
                take(one)
    again = AuthoritySecrets(secrets.export())
    assert again.identity == secrets.identity
    assert again.store_key == secrets.store_key
    assert again.opening_key(bytes(32)) == secrets.opening_key(bytes(32)) != again.opening_key(b"1" * 32)
    with pytest.raises(ParameterError):
        AuthoritySecrets(secrets.export()[:-1])
    for lengths in ((31, 1216), (32, 1215)):
        with pytest.raises(ParameterError):
            AuthorityIdentity(*map(bytes, lengths))
