"""Sessions in which two or three served authorities have to answer: what each of them keeps from the others."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from authority_service.served import (
    ANY,
    KAHE,
    begun,
    check_equals_embedded,
    connected,
    made_folder,
    served,
    served_run,
)
from authority_service.test_served_rounds import variant_of
from documentation_pages import ROOT
from methods.method_conformance import SteppedRun
from shieldfl.authority_service.identity import ClientIdentity, checked_public_keys, signed_setup_of
from shieldfl.authority_service.served_session import ServedSession
from shieldfl.authority_service.session_request import SessionRequest
from shieldfl.authority_service.several_authorities import SeveralAuthorities
from shieldfl.errors import (
    DataError,
    KeyMismatchError,
    ParameterError,
    PolicyError,
    UnreachableError,
)
from shieldfl.methods.protocol.public_setup import PublicSetup
from shieldfl.roles.message import Message
from shieldfl.scheme.enrolment import AuthorityGroup, AuthorityIdentity


@pytest.mark.every_run(
    "full-he-clients-kahe-3", "selective-shield/encrypted-aggregator-kahe-2", "full-he-clients-pads-2"
)
@pytest.mark.parametrize(
    ("label", "opener", "encryption", "count"),
    [
        ("full-he", "clients", "kahe", 3),
        ("full-he", "aggregator", "kahe", 2),
        ("full-he", "clients", "pads", 2),
        ("selective-shield/encrypted", "clients", "kahe", 2),
        ("selective-shield/encrypted", "aggregator", "kahe", 2),
        ("dict-pfl", "clients", "kahe", 2),
    ],
)
def test_models_are_those_of_one_embedded_authority(tmp_path, label, opener, encryption, count):
    folders = [made_folder(tmp_path / str(number), **ANY) for number in range(count)]
    with connected(folders) as (_, connection):
        check_equals_embedded(connection, variant_of(label, opener).under(encryption))


def test_a_method_that_derives_a_secret_does_so_from_all_authorities(tmp_path):
    variant = variant_of("dict-pfl", "clients")
    folders = [made_folder(tmp_path / str(number), **ANY) for number in range(2)]
    with connected(folders) as (_, connection):
        run = served_run(connection, variant, shared_secret=None)
        first, second = (client.granted_secret() for client in run.clients[:2])
        keys = run.clients[0]._opening.keys
        held = keys._opening_key
        with pytest.raises(PolicyError, match="granted other answers before"):
            keys.grant(bytes(32) + held[32:])
        keys._opening_key = bytes(32) + held[32:]
        assert keys.shared_secret() != first == second
        keys._opening_key = held[:32] + bytes(32)
        assert keys.shared_secret() != first


def test_a_set_up_is_taken_from_all_that_are_pinned_and_no_others(folders):
    with connected(folders) as (services, connection):
        run = begun(connection)
        signed_setup = run.authority.signed_setup
        keys = [one.service.public_key for one in services]
        setup = signed_setup_of(signed_setup, b"".join(keys))
        assert setup == signed_setup_of(signed_setup, ", ".join(key.hex() for key in reversed(keys)))
        assert PublicSetup.trusted(setup) == run.setup
        for pinned in (keys[:2], keys[1:], keys[:1], [*keys[:2], bytes(range(32))]):
            with pytest.raises(KeyMismatchError, match="all of them"):
                signed_setup_of(signed_setup, b"".join(pinned))
        signatures = bytes(signed_setup["signature"])
        for altered in (signatures[:128], signatures[:64] * 3, signatures + bytes(64), signatures[:-1], b""):
            with pytest.raises(KeyMismatchError):
                signed_setup_of(Message({**signed_setup, "signature": altered}), b"".join(keys))


def test_an_authority_signs_no_session_that_it_has_not_offered_a_key_for(folders, monkeypatch):
    with connected(folders, attempts=1) as (services, connection):
        clients = connection._clients
        (first,) = (one for one in services if one.url == clients[0].address)
        run = SteppedRun(KAHE, min_clients=3)
        request = SessionRequest(run.method, run.initial)
        offers = [client.offer() for client in clients]
        twice = [*offers, clients[0].offer()]
        with first.client("other") as other:
            others = [other.offer(), *offers[1:]]
        for group in (offers[1:], others, [twice[0], twice[3]]):
            with pytest.raises(PolicyError, match="was offered here"):
                clients[0].begun(replace(request, group=AuthorityGroup(tuple(group))))
        group = AuthorityGroup(tuple(offers))
        clients[0].begun(replace(request, group=group))
        clients[0].begun(replace(request, group=group))  # the same one again
        with pytest.raises(PolicyError, match="was offered here"):
            clients[0].begun(replace(request, group=group, nonce=bytes(16)))
        # An attempt that fails for another reason takes the offer, too.
        monkeypatch.setattr(ServedSession, "_keep", failing)
        with pytest.raises(DataError):
            clients[1].begun(replace(request, group=group))
        monkeypatch.undo()
        with pytest.raises(PolicyError, match="was offered here"):
            clients[1].begun(replace(request, group=group))
        # The oldest offers make way, and all end with the process.
        newest = [clients[2].offer() for _ in range(256)][-1]
        with pytest.raises(PolicyError, match="was offered here"):
            clients[2].begun(replace(request, group=group))
        later, third = AuthorityGroup((offers[0], newest)), clients[2].address
        (folder,) = (one.folder for one in services if one.url == third)
    with served(folder) as again, again.client() as client, pytest.raises(PolicyError, match="since this"):
        client.begun(replace(request, group=later))


def failing(session):
    raise DataError("no disk")


def test_an_authority_takes_part_with_no_key_that_nothing_can_be_sealed_to(folders):
    with served(folders[0]) as one, one.client() as client:
        run, own = SteppedRun(KAHE, min_clients=3), client.offer()
        for enrolment_key in (bytes(1216), own.enrolment_key[:1184] + bytes(32), b"\xff" * 1216):
            other = AuthorityIdentity(bytes(range(32)), enrolment_key)
            request = SessionRequest(run.method, run.initial, group=AuthorityGroup((own, other)))
            with pytest.raises(ParameterError, match="no public key"):
                client.begun(request)


def test_an_offer_is_asked_for_with_nothing_else(folders):
    with served(folders[0]) as one, one.client() as client:
        for message in (Message({"a": b""}), Message({"a": bytes(1000)})):
            with pytest.raises(ParameterError, match=r"nothing else|more than"):
                client._posted("/v1/offers", message)


def test_the_same_request_begins_one_session_and_a_refused_one_another(folders):
    with connected(folders[:2]) as (services, connection):
        run = SteppedRun(KAHE, min_clients=3)
        request = SessionRequest(run.method, run.initial)
        session = connection.begin_session(request).session_id
        assert connection.begin_session(request).session_id == session
        assert [len(one.folder.session_folders()) for one in services] == [1, 1]
        (last,) = (one for one in services if one.url == connection._clients[1].address)
        last.service.policy = replace(last.service.policy, min_clients=4)
        other = SessionRequest(run.method, run.initial)
        with pytest.raises(PolicyError, match=f"{last.url}.*fewer than 4"):
            connection.begin_session(other)
        last.service.policy = replace(last.service.policy, min_clients=3)
        assert connection.begin_session(other).session_id != session


def test_authorities_that_answer_differently_are_told(folders, monkeypatch):
    with connected(folders[:2]) as (_, connection):
        run = begun(connection)
        first = connection._clients[0]
        call = first.call
        for altered in ({"newest answer update": b"8 bytes."}, {"more": b""}):
            monkeypatch.setattr(
                first, "call", lambda *asked, with_=altered: Message({**call(*asked), **with_})
            )
            with pytest.raises(PolicyError, match="have not answered the same"):
                run.authority.begin_round(1, [0, 1, 2, 3])


@pytest.mark.parametrize("label", ["full-he/ckks", "mask-crypt"])
def test_where_one_key_opens_all_there_is_one_authority(tmp_path, label):
    folders = [made_folder(tmp_path / str(number), **ANY) for number in range(2)]
    with connected(folders) as (_, connection), pytest.raises(ParameterError, match="several"):
        served_run(connection, variant_of(label, "the authority"))


def test_each_authority_keeps_to_its_own_policy_and_clients(folders):
    folders[1].registry.revoke("clinic-3")
    with connected(folders[:2]) as (services, connection):
        with pytest.raises(PolicyError, match=f"{services[1].url}.*clinic-3"):
            begun(connection)
        run, other = (begun(connection, clients=3, weights=[1, 1, 1], min_clients=2) for _ in "12")
        run.run_round()
        first, last = (
            next(one for one in services if one.url == client.address) for client in connection._clients
        )
        first.folder.registry.revoke("clinic-2")
        with pytest.raises(PolicyError, match=first.url):
            run.run_round()
        run.run_round([0, 1])  # the last was not asked
        last.folder.registry.revoke("clinic-1")
        with pytest.raises(PolicyError, match=last.url):
            other.run_round([0, 1])
        # The first has answered, the last does not: nobody opens that sum, and there is no next round.
        with pytest.raises(PolicyError, match="begin another session from the newest model"):
            other.authority.begin_round(3, [0, 1])


@pytest.mark.parametrize("lost", ["begin-round", "answer"])
def test_a_call_that_one_authority_did_not_get_is_repeated(folders, lost):
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(served(folders[0]))
        ending = stack.enter_context(contextlib.ExitStack())
        second = ending.enter_context(served(folders[1]))
        own = stack.enter_context(SeveralAuthorities([first.client(), second.client(attempts=1)]))
        run = begun(own)
        run.run_round()
        session = run.authority.session_id

        def end_the_second(*_):
            own.close()  # before the server does
            own._clients = [first.client(), second.client(attempts=1)]
            ending.close()

        if lost == "begin-round":
            end_the_second()
        with pytest.raises(UnreachableError):
            run.run_round(intrude=end_the_second)
        again = stack.enter_context(served(folders[1]))
        other = stack.enter_context(SeveralAuthorities([first.client(), again.client()]))
        run.authority = other.session(session)
        if lost == "begin-round":
            run._round -= 1
            run.run_round()
        else:
            ended = run.answer_again("update")
            run.aggregator.keep(ended, run.aggregator.request("update"), range(4))
            for client in run.clients:
                client.end_round(ended)
        run.run_round()
        embedded = SteppedRun(KAHE, min_clients=3)
        for _ in range(3):
            embedded.run_round()
        np.testing.assert_array_equal(run.merged(0).parameters, embedded.merged(0).parameters)


def test_the_example_runs_with_two_authorities(folders, tmp_path):
    keys = []
    for index in range(3):
        path = tmp_path / f"clinic-{index}.pem"
        ClientIdentity.create(path)
        for folder in folders[:2]:
            folder.registry.register(path.stem + "-new", ClientIdentity.load(path).public_key)
        keys.append(path.rename(tmp_path / f"clinic-{index}-new.pem"))
    with served(folders[0]) as first, served(folders[1]) as second:
        places = [
            ",".join(str(folder.path) for folder in folders[:2]),
            f"{first.url},{second.url}",
            *map(str, keys),
        ]
        done = subprocess.run(
            [sys.executable, ROOT / "examples/served_authority/rounds.py", *places],
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.endswith("round 2: every value of the model is 4.0000\n")


def test_public_keys_are_one_to_three_different_ones():
    one, two = bytes(32), bytes([1]) * 32
    assert checked_public_keys(one.hex()) == one
    assert checked_public_keys(f"{one.hex()},{two.hex()}") == one + two
    for clients in ([], [None], [None] * 4):
        with pytest.raises(ParameterError, match="two to 3"):
            SeveralAuthorities(clients)
    for wrong in (b"", one[:-1], one + one, one.hex() + ",", "", bytes(range(128))):
        with pytest.raises(ParameterError):
            checked_public_keys(wrong)
