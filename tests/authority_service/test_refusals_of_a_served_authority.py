"""A served authority and those who would cheat it: aggregators, clients, and whoever stands in between."""

from __future__ import annotations

import ssl

import httpx
import pytest

from authority_service.served import ANY, KAHE, PASSPHRASE, made_folder, served, served_run, tls_of
from methods.stored_run import asked_over, same_in_every_round
from methods.variants import labelled
from shieldfl.authority_service import session_folder
from shieldfl.authority_service.authority_client import AuthorityClient
from shieldfl.authority_service.certificates import CertificateFiles, client_tls, make_certificate
from shieldfl.authority_service.identity import ClientIdentity, ServiceKey, signed_setup_of
from shieldfl.authority_service.service import AuthorityService
from shieldfl.authority_service.session_request import SessionRequest
from shieldfl.errors import (
    DataError,
    KeyMismatchError,
    ParameterError,
    PolicyError,
    ShieldError,
    UnreachableError,
    WireFormatError,
)
from shieldfl.roles.message import Message


@pytest.fixture
def strict(tmp_path):
    """An authority that enrols registered clients alone, and four of them."""
    made = made_folder(tmp_path / "authority")
    keys = [ClientIdentity.create(tmp_path / f"clinic-{index}.pem") for index in range(4)]
    for index, key in enumerate(keys):
        made.registry.register(f"clinic-{index}", key.public_key)
    return made, keys


def signing(keys):
    return lambda setup, index, message: keys[index].signed_enrolment(
        f"clinic-{index}", setup, index, message
    )


def test_registered_clients_enrol(strict):
    folder, keys = strict
    with served(folder) as one, one.client() as client:
        run = served_run(client, KAHE, sign=signing(keys), min_clients=3)
        run.run_round()
        assert run.authority.newest_model()


def test_an_aggregator_cannot_make_clients_up(strict):
    """With two of its own beside one real client, min_clients = 3 would open that one's update."""
    folder, keys = strict
    made_up = ClientIdentity(bytes(range(32)))

    def as_itself(setup, index, message):
        return made_up.signed_enrolment("clinic-9", setup, index, message)

    def in_the_name_of_another(setup, index, message):
        return made_up.signed_enrolment(f"clinic-{index}", setup, index, message)

    def unsigned(setup, index, message):
        return message

    def twice(setup, index, message):
        return keys[0].signed_enrolment("clinic-0", setup, index, message)

    def of_another_session(setup, index, message):
        return keys[index].signed_enrolment(f"clinic-{index}", bytes(32), index, message)

    with served(folder) as one, one.client() as client:
        for sign, words in (
            (as_itself, "clinic-9 is not registered"),
            (in_the_name_of_another, "was not signed by clinic-0"),
            (unsigned, "does not say who it is"),
            (twice, "clinic-0 or client 1 has enrolled in this session with another one"),
            (of_another_session, "was not signed by clinic-0"),
        ):
            with pytest.raises(PolicyError, match=words):
                served_run(client, KAHE, sign=sign, min_clients=3)


def test_what_a_client_signed_is_not_taken_for_another_client(strict):
    folder, keys = strict

    def relabelled(setup, index, message):
        return (
            keys[0].signed_enrolment("clinic-0", setup, 0, message)
            if index == 1
            else signing(keys)(setup, index, message)
        )

    with (
        served(folder) as one,
        one.client() as client,
        pytest.raises(PolicyError, match="was not signed by clinic-0"),
    ):
        served_run(client, KAHE, sign=relabelled, min_clients=3)


def test_a_revoked_client_is_in_no_list_that_is_answered_from_then_on(strict):
    folder, keys = strict
    with served(folder) as one, one.client() as client:
        run, other = (
            served_run(client, KAHE, sign=signing(keys), min_clients=3, train=same_in_every_round)
            for _ in "12"
        )
        first = run.begin_round(1)
        asked = asked_over(run, "update", 1, [0, 1, 2, 3], first)
        folder.registry.revoke("clinic-3")
        with pytest.raises(PolicyError, match="client 3 was revoked"):
            run.authority.answer("update", asked)
        assert run.authority.answer(
            "update", asked_over(run, "update", 1, [0, 1, 2], first, trained=range(4))
        )
        with pytest.raises(PolicyError, match="clinic-3 was revoked at this key authority"):
            served_run(client, KAHE, sign=signing(keys), min_clients=3)
    # Also by a process that has not seen it before.
    with served(folder) as one, one.client() as client:
        other.authority = client.session(other.authority.session_id)
        first = other.begin_round(1)
        with pytest.raises(PolicyError, match="client 3 was revoked"):
            other.authority.answer("update", asked_over(other, "update", 1, [0, 1, 2, 3], first))


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ({"min_clients": 3}, "opens totals of 2 clients, and this authority none of fewer than 3"),
        ({"most_clients": 3}, "has 4 clients, and this authority allows 3"),
        ({"most_rounds": 99}, "has 100 rounds, and this authority allows 99"),
        ({"most_values": 337}, "has 338 values, and this authority allows 337"),
        ({"schemes": ["pads"]}, "would encrypt by kahe, and this authority allows pads"),
    ],
)
def test_the_policy_outranks_what_an_aggregator_asks(tmp_path, policy, words):
    folder = made_folder(tmp_path / "authority", **(ANY | policy))
    with served(folder) as one, one.client() as client, pytest.raises(PolicyError, match=words):
        served_run(client, KAHE, min_clients=2)


def test_methods_whose_clients_nobody_vouches_for_need_a_policy_that_says_so(tmp_path):
    policy = {"schemes": ["kahe", "ckks"]}
    folder, words = made_folder(tmp_path / "authority", **policy), "do not enrol, so nobody vouches for them"
    with served(folder) as one, one.client() as client, pytest.raises(PolicyError, match=words):
        served_run(client, labelled("full-he/ckks"), min_clients=3)


def test_sessions_are_counted(tmp_path):
    with served(made_folder(tmp_path / "authority", **ANY, most_sessions=1)) as one, one.client() as client:
        run = served_run(client, KAHE)
        request = SessionRequest(run.method, run.initial)
        with pytest.raises(PolicyError, match="begins 1 sessions, and it has"):
            client.begin_session(request)


def test_the_same_request_begins_one_session(folder):
    with served(folder) as one, one.client() as client:
        run = served_run(client, KAHE)
        request = SessionRequest(run.method, run.initial)
        first, again = client.begin_session(request), client.begin_session(request)
        assert first.session_id == again.session_id == request.id
        assert first.signed_setup == again.signed_setup
        assert client.begin_session(SessionRequest(run.method, run.initial)).session_id != request.id


def test_a_session_is_its_aggregators_alone(folder):
    with served(folder) as one, one.client() as client, one.client("other") as other:
        run = served_run(client, KAHE)
        request = SessionRequest(run.method, run.initial)
        session = client.begin_session(request).session_id
        for attempt in (lambda: other.session(session), lambda: other.begin_session(request)):
            with pytest.raises(PolicyError, match="another aggregator began this session"):
                attempt()


def test_without_a_certificate_of_its_issuer_nobody_gets_an_answer(folder, tmp_path):
    strangers = made_folder(tmp_path / "strangers", **ANY)
    with served(folder) as one:
        foreign = CertificateFiles.in_folder(strangers.tls, "aggregator")
        believing = CertificateFiles(foreign.certificate, foreign.key, folder.tls / "ca.crt")
        context = ssl.create_default_context(cafile=str(folder.tls / "ca.crt"))
        with pytest.raises(httpx.TransportError):
            httpx.post(f"{one.url}/v1/sessions", verify=context)
        with (
            AuthorityClient(one.url, client_tls(believing), one.service.public_key, attempts=1) as client,
            pytest.raises(UnreachableError, match="believes this side's certificate"),
        ):
            client.session(bytes(16))
        # Nor does it believe a server whose certificate others have issued.
        with (
            AuthorityClient(one.url, client_tls(foreign), one.service.public_key, attempts=1) as client,
            pytest.raises(UnreachableError, match="certificate verify failed"),
        ):
            client.session(bytes(16))


def test_an_expired_certificate_is_refused(folder):
    make_certificate(folder.tls, PASSPHRASE, "aggregator", 0)
    with (
        served(folder) as one,
        one.client(attempts=1) as client,
        pytest.raises(UnreachableError, match="does not answer"),
    ):
        client.session(bytes(16))


def test_older_protocols_are_refused(folder):
    with served(folder) as one:
        context = tls_of(folder)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(httpx.TransportError):
            httpx.post(f"{one.url}/v1/sessions", verify=context)


def test_a_set_up_of_another_authority_is_refused(folder):
    with served(folder) as one:
        pinned = ServiceKey(bytes(32)).public_key
        with (
            AuthorityClient(one.url, tls_of(folder), pinned) as client,
            pytest.raises(KeyMismatchError, match="was not signed by the key authority that is pinned here"),
        ):
            served_run(client, KAHE)
    key = ServiceKey(bytes(32))
    signed = key.sign_setup(b"a set-up")
    assert signed_setup_of(signed, key.public_key) == b"a set-up"
    for altered in ({"setup": b"another"}, {"signature": bytes(64)}, {"signature": b""}):
        with pytest.raises(KeyMismatchError):
            signed_setup_of(Message({**signed, **altered}), key.public_key)


def test_nothing_is_answered_before_its_state_is_on_the_disk(folder, monkeypatch):
    with served(folder) as one, one.client(attempts=1) as client:
        run = served_run(client, KAHE, min_clients=3)
        first = run.begin_round(1)
        asked = asked_over(run, "update", 1, [0, 1, 2, 3], first)
        write, fails = session_folder.write_private_file, []

        def full(path, content):
            fails.append(path.name)
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(session_folder, "write_private_file", full)
        for _ in range(2):
            with pytest.raises(
                DataError, match="the authority's disk or store failed, and nothing was answered"
            ):
                run.authority.answer("update", asked)
        monkeypatch.setattr(session_folder, "write_private_file", write)
        answer = run.authority.answer("update", asked)
        assert fails == ["state", "state"]
        assert run.authority.answer("update", asked) == answer


def test_an_ended_session_answers_nothing_and_ends_for_good(folder):
    with served(folder) as one, one.client() as client:
        run = served_run(client, KAHE)
        assert folder.end_sessions() == 1
        assert folder.end_sessions() == 0
        with pytest.raises(PolicyError, match="was ended by the authority's operator"):
            run.authority.begin_round(1)
    with served(folder) as one, one.client() as client, pytest.raises(PolicyError, match="was ended"):
        client.session(run.authority.session_id)


def test_bytes_that_are_no_call_are_refused_by_name(folder):
    with served(folder) as one, one.client() as client:
        run = served_run(client, KAHE)
        session = run.authority.session_id
        with pytest.raises(WireFormatError, match="no shieldfl message"):
            client._posted("/v1/sessions", type("Bytes", (), {"to_bytes": lambda _: bytes(64)})())
        with pytest.raises(WireFormatError, match="has no part"):
            client.call(session, "begin-round", Message())
        with pytest.raises(ParameterError, match="a session has no call 'open'"):
            client.call(session, "open", Message())
        with pytest.raises(WireFormatError):
            client.call(session, "answer", Message({"phase": b"\xff", "message": b""}))
        with pytest.raises(ParameterError, match="there is no phase"):
            client.call(session, "answer", Message({"phase": b"x", "message": Message().to_bytes()}))
        with pytest.raises(PolicyError, match="no such session"):
            client.session(bytes(16))
        for path in ("..%2f..%2fkeys", session.hex().upper(), f"{session.hex()}%0a"):
            with pytest.raises(ShieldError, match="status 404"):
                client._posted(f"/v1/sessions/{path}/set-up", Message())
        asked = Message({"round": bytes([255]) * 8, "request": b"", "earlier answers": bytes(32)})
        with pytest.raises(ParameterError, match="round_number"):
            run.authority.answer("update", asked)
        with pytest.raises(ShieldError, match="status 404"):
            client._posted("/v2", Message())
        with pytest.raises(WireFormatError, match="ask for no session"):
            client._posted("/v1/sessions", Message({"asked": b"{}"}))
        run.run_round()


def test_what_is_larger_than_any_message_is_not_read(tmp_path):
    policy = ANY | {"most_values": 338}
    with served(made_folder(tmp_path / "authority", **policy)) as one, one.client(attempts=1) as client:
        served_run(client, KAHE)
        with pytest.raises(ParameterError, match="more than the 1,049,928 bytes that any takes"):
            client._posted("/v1/sessions", Message({"asked": bytes(2**20 + 2**14)}))


def test_a_folder_is_served_by_one_process(folder):
    with served(folder), pytest.raises(PolicyError, match="held by another process"):
        AuthorityService(folder, PASSPHRASE)
    AuthorityService(folder, PASSPHRASE).close()
    with pytest.raises(KeyMismatchError, match="wrong passphrase"):
        AuthorityService(folder, "another")
    AuthorityService(folder, PASSPHRASE).close()
