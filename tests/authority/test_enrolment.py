"""How clients come to share a key with the authority, and what is refused on the way."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import shieldfl as sf
from authority.enrolled_session import OF_SCHEMES, Session, updates
from shieldfl.authority import authority_secrets
from shieldfl.authority.authority_secrets import AuthoritySecrets
from shieldfl.encryption import kahe
from shieldfl.encryption.enrolment import (
    ClientKey,
    client_number,
    read_request,
    request_frame,
    sealed_request,
)
from shieldfl.errors import KeyMismatchError, ParameterError, PolicyError, WireFormatError


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
    aggregator = kahe.Aggregator(authority.public_key)
    for index in (0, 1):
        aggregator.add(session.frame(index, 5))
    aggregator.add(kahe.Encryptor(key).encrypt(updates()[2], round=5))
    np.testing.assert_array_equal(
        authority.open(aggregator.total()), updates()[:3].astype(np.float64).sum(axis=0)
    )


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
        with pytest.raises(KeyMismatchError, match="of another client or session"):
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
