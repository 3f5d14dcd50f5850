"""A served authority under aggregators, clients, disks and operators that do what they should not."""

from __future__ import annotations

import gzip
import sqlite3
import ssl
import threading
from contextlib import closing
from unittest.mock import Mock

import httpx
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from authority_service.served import (
    ANY,
    KAHE,
    KEYS,
    PASSPHRASE,
    made_folder,
    served,
    served_run,
    signed,
    tls_of,
)
from methods.stored_run import asked_over, closed_over, same_in_every_round
from methods.variants import labelled
from shieldfl.authority.authority_store import AuthorityStore
from shieldfl.authority.message import Message
from shieldfl.authority_service import service
from shieldfl.authority_service.authority_client import AuthorityClient
from shieldfl.authority_service.certificates import CertificateFiles, client_tls, make_ca, make_certificate
from shieldfl.authority_service.identity import ClientIdentity, ClientRegistry, ServiceKey, signed_setup_of
from shieldfl.authority_service.served_session import SessionRequest
from shieldfl.authority_service.service import AuthorityFolder, AuthorityPolicy, AuthorityService
from shieldfl.errors import (
    DataError,
    KeyMismatchError,
    ParameterError,
    PolicyError,
    RangeError,
    ShieldError,
    UnreachableError,
    WireFormatError,
)
from shieldfl.privacy.events import OpenedSum
from shieldfl.rounds.plan import GlobalModel


def full_disk(*_):
    raise DataError("the disk is full")


def no_space(*_):
    raise OSError(28, "No space left on device")


def test_an_aggregator_cannot_make_clients_up(strict):
    """With two of its own beside one real client, min_clients = 3 would open that one's update."""
    made_up = ClientIdentity(bytes(range(32)))

    def signing(key, name):
        return lambda setup, index, message: key.signed_enrolment(name.format(index), setup, index, message)

    def of_another_session(setup, index, message):
        return KEYS[index].signed_enrolment(f"clinic-{index}", bytes(32), index, message)

    def relabelled(setup, index, message):
        if index == 1:
            return KEYS[0].signed_enrolment("clinic-0", setup, 0, message)
        return signed(setup, index, message)

    with served(strict) as one, one.client() as client:
        for sign, words in (
            (relabelled, "was not signed by clinic-0"),
            (signing(made_up, "clinic-9"), "clinic-9 is not registered"),
            (signing(made_up, "clinic-{}"), "was not signed by clinic-0"),
            (lambda setup, index, message: message, "gives no name"),
            (
                signing(KEYS[0], "clinic-0"),
                "clinic-0 has enrolled as another client of this session, or client 1 by another name",
            ),
            (of_another_session, "was not signed by clinic-0"),
        ):
            with pytest.raises(PolicyError, match=words):
                served_run(client, KAHE, sign=sign, min_clients=3)


def test_a_revoked_client_is_in_no_list_that_is_answered_from_then_on(strict):
    folder = strict
    with served(folder) as one, one.client() as client:
        run, other = (
            served_run(client, KAHE, sign=signed, min_clients=3, train=same_in_every_round) for _ in "12"
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
            served_run(client, KAHE, sign=signed, min_clients=3)
    # Also by a process that has not seen it before.
    with served(folder) as one, one.client() as client:
        other.authority = client.session(other.authority.session_id)
        first = other.begin_round(1)
        with pytest.raises(PolicyError, match="client 3 was revoked"):
            other.authority.answer("update", asked_over(other, "update", 1, [0, 1, 2, 3], first))


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (
            {"registered_clients_only": True, "schemes": ["ckks"]},
            "do not enrol, so nobody vouches for them",
        ),
        ({"min_clients": 3}, "opens totals of 2 clients, but this authority opens none of fewer than 3"),
        ({"most_clients": 3}, "has 4 clients, but this authority allows 3"),
        ({"most_rounds": 99}, "has 100 rounds, but this authority allows 99"),
        ({"most_values": 337}, "has 338 values, but this authority allows 337"),
        ({"schemes": ["pads"]}, "would encrypt by kahe, but this authority allows pads"),
    ],
)
def test_the_policy_outranks_what_an_aggregator_asks(tmp_path, policy, words):
    folder = made_folder(tmp_path / "authority", **(ANY | policy))
    variant = labelled("full-he/ckks") if "ckks" in policy.get("schemes", ()) else KAHE
    with served(folder) as one, one.client() as client, pytest.raises(PolicyError, match=words):
        served_run(client, variant, min_clients=2)


def test_sessions_are_counted(tmp_path):
    with served(made_folder(tmp_path / "authority", **ANY, most_sessions=1)) as one, one.client() as client:
        run = served_run(client, KAHE)
        request = SessionRequest(run.method, run.initial)
        with pytest.raises(PolicyError, match="has begun 1 sessions, which is its limit"):
            client.begin_session(request)


def test_a_session_is_its_aggregators_alone(folder):
    with served(folder) as one, one.client() as client, one.client("other") as other:
        run = served_run(client, KAHE)
        request = SessionRequest(run.method, run.initial)
        session = client.begin_session(request).session_id
        for attempt in (lambda: other.session(session), lambda: other.begin_session(request)):
            with pytest.raises(PolicyError, match="another aggregator began this session"):
                attempt()


def test_an_aggregators_certificate_of_its_issuer_alone_gets_an_answer_by_the_newest_protocol(
    folder, tmp_path
):
    strangers = made_folder(tmp_path / "strangers", **ANY)
    with served(folder) as one:
        foreign = CertificateFiles.in_folder(strangers.tls, "aggregator")
        believing = CertificateFiles(foreign.certificate, foreign.key, folder.tls / "ca.crt")
        older = tls_of(folder)
        older.minimum_version = older.maximum_version = ssl.TLSVersion.TLSv1_2
        without = ssl.create_default_context(cafile=str(folder.tls / "ca.crt"))
        for context in (without, older, tls_of(folder, "server")):
            with pytest.raises((httpx.TransportError, ssl.SSLError)):
                httpx.post(f"{one.url}/v1/sessions", verify=context)
        with (
            AuthorityClient(one.url, client_tls(believing), one.service.public_key, attempts=1) as client,
            pytest.raises(UnreachableError, match="trusts this side's certificate"),
        ):
            client.session(bytes(16))
        # Nor does it believe a server whose certificate others have issued.
        with (
            AuthorityClient(one.url, client_tls(foreign), one.service.public_key, attempts=1) as client,
            pytest.raises(UnreachableError, match="certificate verify failed"),
        ):
            client.session(bytes(16))


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
        other = asked_over(run, "update", 1, [0, 1, 2], first, trained=[0, 1, 2])
        full = Mock(side_effect=full_disk)
        with monkeypatch.context() as patch:
            patch.setattr(AuthorityStore, "keep_state", full)
            for _ in range(2):
                with pytest.raises(
                    DataError, match="the authority's disk or store failed, and nothing was answered"
                ):
                    run.authority.answer("update", asked)
        assert full.call_count == 2
        # What was not kept was not answered, here or on the disk: another list may be.
        answer = run.authority.answer("update", other)
        assert run.authority.answer("update", other) == answer
        with pytest.raises(PolicyError, match="another answer is not given"):
            run.authority.answer("update", asked)


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
        for phase in (b"x", b"\xff"):
            with pytest.raises(ParameterError, match="there is no phase"):
                client.call(session, "answer", Message({"phase": phase, "message": Message().to_bytes()}))
        with pytest.raises(PolicyError, match="no such session"):
            client.session(bytes(16))
        for path in ("..%2f..%2fkeys", session.hex().upper(), f"{session.hex()}%0a"):
            with pytest.raises(ShieldError, match="status 404"):
                client._posted(f"/v1/sessions/{path}/set-up", Message())
        asked = Message({"round": bytes([255]) * 8, "request": b"", "earlier answers": bytes(32)})
        with pytest.raises(WireFormatError, match="truncated"):
            run.authority.answer("update", asked)
        with pytest.raises(ShieldError, match="status 404"):
            client._posted("/v2", Message())
        with pytest.raises(WireFormatError, match="cannot read the request for a session"):
            client._posted("/v1/sessions", Message({"asked": b"{}"}))
        run.run_round()


def test_what_is_larger_than_any_message_is_not_read(tmp_path):
    policy = ANY | {"most_values": 338}
    with served(made_folder(tmp_path / "authority", **policy)) as one, one.client(attempts=1) as client:
        served_run(client, KAHE)
        with pytest.raises(ParameterError, match="more than 1,049,928 bytes, which is its limit"):
            client._posted("/v1/sessions", Message({"asked": bytes(2**20 + 2**14)}))


def test_a_folder_is_served_by_one_process(folder):
    with served(folder), pytest.raises(PolicyError, match="held by another process"):
        AuthorityService(folder, PASSPHRASE)
    AuthorityService(folder, PASSPHRASE).close()
    with pytest.raises(KeyMismatchError, match="wrong passphrase"):
        AuthorityService(folder, "another")
    AuthorityService(folder, PASSPHRASE).close()


def test_a_model_that_is_not_on_the_disk_does_not_leave(folder, monkeypatch):
    """Else the old state, after a restart, would answer another list, and the difference be one client's update."""
    with served(folder) as one, one.client(attempts=1) as client:
        run = served_run(client, labelled("full-he/ckks"), min_clients=2, train=same_in_every_round)
        first = run.begin_round(1)
        _, total = closed_over(run, "update", 1, [0, 1, 2, 3], first)
        before = run.authority.newest_model()
        with monkeypatch.context() as patch:
            patch.setattr(AuthorityStore, "keep_state", full_disk)
            with pytest.raises(DataError, match="the authority's disk or store failed"):
                run.authority.answer("update", total)
            assert run.authority.newest_model() == before
        run.authority.answer("update", total)
        assert run.authority.newest_model() != before


def test_a_session_keeps_who_may_enrol_whatever_the_policy_says_later(strict):
    with served(strict) as one, one.client() as client:
        run = served_run(client, KAHE, sign=signed, min_clients=3, train=same_in_every_round)
        begun = client.begin_session(SessionRequest(run.method, run.initial)).session_id
    strict.policy.write_text(AuthorityPolicy(registered_clients_only=False).to_toml())
    strict.registry.revoke("clinic-3")
    with served(strict) as one, one.client() as client:
        with pytest.raises(PolicyError, match="gives no name"):
            client.session(begun).enrol(0, run.clients[0].enrolment())
        run.authority = client.session(run.authority.session_id)
        first = run.begin_round(1)
        with pytest.raises(PolicyError, match="client 3 was revoked"):
            run.authority.answer("update", asked_over(run, "update", 1, [0, 1, 2, 3], first))


@pytest.mark.parametrize("file", ["facts.json", "store"])
def test_who_enrolled_and_what_a_session_keeps_are_not_altered_unseen(strict, file):
    with served(strict) as one, one.client() as client:
        run = served_run(client, KAHE, sign=signed, min_clients=3)
        session = run.authority.session_id
    path = strict.sessions / session.hex() / file
    content = path.read_bytes()
    if file == "facts.json":
        altered = b'"registered_clients_only":false'
        path.write_bytes(content.replace(b'"registered_clients_only":true', altered))
    else:
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("UPDATE records SET sealed = zeroblob(60) WHERE kind = 'state'")
    assert path.read_bytes() != content
    with served(strict) as one, one.client() as client:
        with pytest.raises(ShieldError, match=r"store or its facts were altered|the store was altered"):
            client.session(session)
        path.write_bytes(content)
        assert client.session(session)


def test_bodies_are_bounded_before_they_are_read(folder):
    with served(folder) as one, one.client() as client:
        run = served_run(client, KAHE)
        own = f"{one.url}/v1/sessions/{run.authority.session_id.hex()}/answer"
        unknown = f"{one.url}/v1/sessions/{bytes(16).hex()}/answer"
        context = tls_of(folder)
        packed = gzip.compress(bytes(2**24))
        for url, body, headers, words in (
            (own, packed, {"Content-Encoding": "gzip"}, "uncompressed"),
            (f"{one.url}/v1/sessions", packed, {"Content-Encoding": "gzip"}, "uncompressed"),
            (unknown, bytes(2**22), {}, "no such session"),
            (own, bytes(2**21), {}, "more than 1,048,832 bytes"),
        ):
            answer = httpx.post(url, content=body, headers=headers, verify=context)
            assert words in answer.json()["message"]
        run.run_round()


def test_a_body_that_comes_too_slowly_is_refused(folder, monkeypatch):
    monkeypatch.setattr("shieldfl.authority_service.http_server.BODY_SECONDS", 0.2)
    with served(folder) as one:
        go_on = threading.Event()

        def slow():
            yield b"SHMS"
            go_on.wait(10.0)

        threading.Timer(1.0, go_on.set).start()
        answer = httpx.post(f"{one.url}/v1/sessions", content=slow(), verify=tls_of(folder))
        assert "did not arrive within" in answer.json()["message"]


@pytest.mark.parametrize(("most_open", "most_values"), [(2, 2**28), (64, 700)])
def test_more_sessions_than_are_open_at_once_are_served(folder, monkeypatch, most_open, most_values):
    """As many, or as many values: those of two sessions."""
    monkeypatch.setattr(service, "_MOST_OPEN", most_open)
    folder.policy.write_text(folder.policy.read_text().replace(str(2**28), str(most_values)))
    with served(folder) as one, one.client() as client:
        runs = [served_run(client, KAHE, min_clients=3) for _ in range(5)]
        for _ in range(2):
            for run in runs:
                run.run_round()
                assert one.service.open_sessions <= 3
        folder.end_sessions()
        with pytest.raises(PolicyError, match="was ended"):
            runs[0].run_round()


def test_a_certificate_that_was_renewed_counts_no_more(folder):
    stolen = tls_of(folder)
    with served(folder) as one:
        answer = httpx.post(f"{one.url}/v1/sessions", verify=stolen)
        assert answer.status_code == 400
        make_certificate(folder.tls, PASSPHRASE, "aggregator", 30)
        answer = httpx.post(f"{one.url}/v1/sessions", verify=stolen)
        assert "this certificate was renewed, or withdrawn" in answer.json()["message"]
        assert httpx.post(f"{one.url}/v1/sessions", verify=tls_of(folder)).status_code == 400
        (folder.tls / "aggregator.newest").unlink()
        assert httpx.post(f"{one.url}/v1/sessions", verify=tls_of(folder)).status_code == 403


@pytest.mark.parametrize("name", ["ca", "server", "../authority", "", "a" * 64])
def test_no_certificate_takes_the_place_of_another_file(folder, name):
    before = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
    with pytest.raises(ParameterError, match="an aggregator's name"):
        make_certificate(folder.tls, PASSPHRASE, name, 30)
    assert before == {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}


def test_an_authority_is_made_as_a_whole_or_not_at_all(tmp_path):
    with pytest.raises(OSError, match="No space"):
        AuthorityFolder.create(tmp_path / "authority", PASSPHRASE, AuthorityPolicy(), no_space)
    with pytest.raises(ParameterError, match="passphrase is empty"):
        AuthorityFolder.create(tmp_path / "authority", "", AuthorityPolicy())
    assert list(tmp_path.iterdir()) == []

    def made_meanwhile(_):
        AuthorityFolder.create(tmp_path / "authority", "another", AuthorityPolicy())

    for certify in (made_meanwhile, no_space):  # then it is there from the beginning
        with pytest.raises(DataError, match="has a key authority already"):
            AuthorityFolder.create(tmp_path / "authority", PASSPHRASE, AuthorityPolicy(), certify)
    assert ServiceKey.load(tmp_path / "authority" / "authority.key", "another")
    assert [path.name for path in tmp_path.iterdir()] == ["authority"]


def test_what_is_refused_leaves_no_session(folder, monkeypatch):
    with served(folder) as one, one.client(attempts=1) as client:
        run = served_run(client, KAHE)
        broken = GlobalModel(np.full_like(run.initial.parameters, np.nan), run.initial.buffers)
        with pytest.raises(RangeError, match="NaN"):
            client.begin_session(SessionRequest(run.method, broken))
        with monkeypatch.context() as patch:
            patch.setattr(AuthorityStore, "keep_state", lambda *_: 1 / 0)
            with pytest.raises(ShieldError, match="see its log"):
                client.begin_session(SessionRequest(run.method, run.initial))
        assert [path.name for path in folder.sessions.iterdir()] == [run.authority.session_id.hex()]
        assert one.service.open_sessions == 1


def test_an_enrolment_that_fails_takes_no_name(strict):
    with served(strict) as one, one.client() as client:
        run = served_run(client, KAHE, sign=signed, min_clients=3)
        remote = client.begin_session(SessionRequest(run.method, run.initial))
        junk = Message({"enrolment": b"junk"})
        for index in (1, 99):
            with pytest.raises(ShieldError):
                remote.enrol(index, KEYS[0].signed_enrolment("clinic-0", remote.setup.digest, index, junk))
        own = run.method.client_steps(remote.setup, 0, 1, run.initial)
        assert remote.enrol(0, signed(remote.setup.digest, 0, own.enrolment()))


def test_one_aggregator_that_waits_keeps_no_other_from_being_answered(folder, monkeypatch):
    with served(folder) as one, one.client() as client, one.client("other") as other:
        run, theirs = served_run(client, KAHE), served_run(other, KAHE)
        go_on, answer = threading.Event(), type(run.authority).newest_model
        steps = one.service._places[run.authority.session_id].session._steps

        def waits():
            go_on.wait(20.0)
            return Message()

        monkeypatch.setattr(steps, "newest_model", waits)
        waiting = [threading.Thread(target=answer, args=(run.authority,)) for _ in range(12)]
        for one_of_them in waiting:
            one_of_them.start()
        try:
            assert theirs.authority.newest_model()
        finally:
            go_on.set()
            for one_of_them in waiting:
                one_of_them.join()


def test_a_session_that_is_gone_on_with_reports_the_round_that_is_opened(folder):
    with served(folder) as one, one.client() as client:
        run = served_run(client, KAHE, min_clients=3)
        run.run_round()
        again = client.session(run.authority.session_id)
        again.answer("update", run.aggregator.request("update"))
        assert again.report().events == (OpenedSum(1),)
        with pytest.raises(PolicyError, match="the authority's operator revokes clients"):
            again.revoke(1)


def test_a_client_is_registered_once_and_revoked_for_good(tmp_path):
    folder = tmp_path / "clients"
    with pytest.raises(DataError, match="restore the folder"):
        ClientRegistry(folder)
    folder.mkdir()
    registry, key = ClientRegistry(folder), KEYS[0].public_key
    registry.register("one", key)
    registry.register("one", key)
    with pytest.raises(PolicyError, match="there is a client one with another key"):
        registry.register("one", KEYS[1].public_key)
    with pytest.raises(PolicyError, match="the key belongs to one"):
        registry.register("two", key)
    registry.revoke("one")
    with pytest.raises(PolicyError, match="one was revoked"):
        registry.register("one", KEYS[1].public_key)
    with pytest.raises(PolicyError, match="the key belongs to one"):
        registry.register("two", key)
    # A file that is put back beside it changes nothing.
    (folder / "one.pub").write_text(key.hex())
    with pytest.raises(PolicyError, match="one was revoked"):
        registry.public_key("one")
    assert (registry.names(), registry.revoked()) == ([], {"one"})


def test_a_key_of_another_kind_is_no_identity(tmp_path):
    path = tmp_path / "clinic.pem"
    form = Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    path.write_bytes(X25519PrivateKey.generate().private_bytes(*form))
    with pytest.raises(WireFormatError, match="no private Ed25519 key"):
        ClientIdentity.load(path)


def test_addresses_without_tls_and_no_attempts_are_refused(folder):
    with served(folder) as one:
        for options in ({"attempts": 0}, {"url": "http://127.0.0.1:1"}):
            with pytest.raises(ParameterError):
                one.client(**options)
        with one.client(url="https://127.0.0.1:1", attempts=1) as client, pytest.raises(UnreachableError):
            client.session(bytes(16))


def test_a_disk_that_fails_in_an_enrolment_makes_no_client_two(strict, monkeypatch):
    """Neither client nor name is kept; what enrols next has both."""
    with served(strict) as one, one.client(attempts=1) as client:
        run = served_run(client, KAHE, sign=signed, min_clients=3, train=same_in_every_round)
        remote = client.begin_session(SessionRequest(run.method, run.initial))
        own, other = (run.method.client_steps(remote.setup, index, 1, run.initial) for index in (0, 1))
        asked = signed(remote.setup.digest, 0, own.enrolment())
        with monkeypatch.context() as patch:
            patch.setattr(AuthorityStore, "keep_state", full_disk)
            with pytest.raises(DataError):
                remote.enrol(0, asked)
        session = remote.session_id
    with served(strict) as one, one.client(attempts=1) as client:
        remote = client.session(session)
        as_another = KEYS[0].signed_enrolment("clinic-0", remote.setup.digest, 1, other.enrolment())
        assert remote.enrol(1, as_another)
        with pytest.raises(PolicyError, match="clinic-0 has enrolled as another client"):
            remote.enrol(0, asked)


def test_a_name_is_revoked_whoever_had_its_number_in_an_enrolment_that_failed(strict, monkeypatch):
    with served(strict) as one, one.client(attempts=1) as client:
        run = served_run(client, KAHE, sign=signed, min_clients=3, train=same_in_every_round)
        remote = client.begin_session(SessionRequest(run.method, run.initial))
        steps = [run.method.client_steps(remote.setup, index, 1, run.initial) for index in range(4)]

        def enrol(name, index):
            asked = KEYS[name].signed_enrolment(
                f"clinic-{name}", remote.setup.digest, index, steps[index].enrolment()
            )
            return steps[index].enrolled(remote.enrol(index, asked))

        with monkeypatch.context() as patch:
            patch.setattr(AuthorityStore, "keep_state", full_disk)
            with pytest.raises(DataError):
                enrol(1, 0)
        strict.registry.revoke("clinic-1")
        asked = Message({"round": Message.from_number(1), "request": b"", "earlier answers": bytes(32)})
        with pytest.raises(ShieldError):
            remote.answer("update", asked)
        for name, index in ((0, 0), (2, 1), (3, 2)):
            enrol(name, index)
        strict.registry.revoke("clinic-0")
        with one.service.session(remote.session_id, "aggregator") as session:
            session._drop_revoked()
            keys = session._steps.keys
            with pytest.raises(PolicyError, match="client 0 was revoked"):
                keys._store.revoke(keys._session_id, 0)


def test_a_slow_body_of_one_aggregator_lets_another_begin(folder):
    with served(folder) as one, one.client("other") as other, one.unfinished_body([b"SHMS"]):
        assert served_run(other, KAHE).authority.newest_model()


def test_what_a_begin_that_was_cut_off_has_left_is_removed(folder):
    left = folder.sessions / ("ab" * 16)
    left.mkdir()
    (left / "request").write_bytes(b"")
    with served(folder):
        assert not left.exists()


def test_honest_calls_are_smaller_than_what_is_refused(folder):
    """Votes in the clear, encrypted positions all, opened by the authority: what goes beside a total is the most."""
    with served(folder) as one, one.client() as client:
        run = served_run(client, labelled("selective-shield/clear"), min_clients=3)
        run.run_round()
        session = one.service._places[run.authority.session_id].session
        assert session.facts.carries_totals
        values = run.closed["update"].nbytes
        assert values < session.most_body_bytes - 2**20


def test_a_folder_has_one_issuer_of_certificates(tmp_path):
    make_ca(tmp_path, PASSPHRASE)
    with pytest.raises(DataError, match="has an issuer of certificates already"):
        make_ca(tmp_path, PASSPHRASE)
