"""Sessions under one, two or three served authorities: what comes of them, and what none can do to an honest one."""

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
    signed,
)
from documentation_pages import ROOT
from methods.method_conformance import SteppedRun
from methods.variants import labelled
from shieldfl.authority.authority_store import AuthorityStore
from shieldfl.authority.message import Message
from shieldfl.authority.round_key_check import ANSWER_DOMAIN, digest_of_parts, signed_bytes
from shieldfl.authority_service.authority_client import SeveralAuthorities
from shieldfl.authority_service.identity import ClientIdentity, checked_public_keys, signed_setup_of
from shieldfl.authority_service.served_session import SessionRequest
from shieldfl.encryption.enrolment import AuthorityGroup, AuthorityIdentity, read_answer, sealed_answer
from shieldfl.errors import DataError, KeyMismatchError, ParameterError, PolicyError, UnreachableError
from shieldfl.rounds.opening_rule import sum_request
from shieldfl.rounds.plan import PublicSetup

VARIANTS = [
    *(("full-he", "clients", encryption, count) for encryption, count in (("kahe", 3), ("pads", 2))),
    ("full-he", "aggregator", "kahe", 2),
    *(("selective-shield/encrypted", opener, "kahe", 2) for opener in ("clients", "aggregator")),
    ("dict-pfl", "clients", "kahe", 2),
    # The default encryption of a method, under one authority.
    *(("full-he", opener, "", 1) for opener in ("clients", "aggregator")),
    ("fedml-he", "aggregator", "", 1),
    *((label, "clients", "", 1) for label in ("selective-shield/clear", "selective-shield/encrypted")),
    *((label, "clients", "", 1) for label in ("alt-fl-pi", "dict-pfl")),
    *((label, "the authority", "", 1) for label in ("mask-crypt", "full-he/ckks", "sense-crypt/ckks")),
]


@pytest.mark.every_run(
    "full-he-clients-kahe-3",
    "selective-shield/encrypted-aggregator-kahe-2",
    "full-he-clients-pads-2",
    "selective-shield/encrypted-clients--1",
    "full-he-aggregator--1",
    "sense-crypt/ckks-the authority--1",
)
@pytest.mark.parametrize(("label", "opener", "encryption", "count"), VARIANTS)
def test_models_and_events_are_those_of_an_embedded_authority(tmp_path, label, opener, encryption, count):
    """Bit for bit, of one authority that is served, and of several."""
    folders = [made_folder(tmp_path / str(number), **ANY) for number in range(count)]
    variant = labelled(label, opener)
    with connected(folders) as (_, connection):
        check_equals_embedded(connection, variant.under(encryption) if encryption else variant)


def test_a_method_that_derives_a_secret_does_so_from_all_authorities(tmp_path):
    variant = labelled("dict-pfl", "clients")
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
        run = SteppedRun(KAHE, min_clients=3)
        request = SessionRequest(run.method, run.initial)
        offers = [client.offer() for client in clients]
        twice = [*offers, clients[0].offer()]
        with services[0].client("other") as other:
            others = [other.offer(), *offers[1:]]
        for group in (offers[1:], others, [twice[0], twice[3]]):
            with pytest.raises(PolicyError, match="has not offered exactly one"):
                clients[0].begun(replace(request, group=AuthorityGroup(tuple(group))))
        group = AuthorityGroup(tuple(offers))
        clients[0].begun(replace(request, group=group))
        clients[0].begun(replace(request, group=group))  # the same one again
        with pytest.raises(PolicyError, match="has not offered exactly one"):
            clients[0].begun(replace(request, group=group, nonce=bytes(16)))
        # An attempt that fails for another reason takes the offer, too.
        monkeypatch.setattr(AuthorityStore, "keep_state", failing)
        with pytest.raises(DataError):
            clients[1].begun(replace(request, group=group))
        monkeypatch.undo()
        with pytest.raises(PolicyError, match="has not offered exactly one"):
            clients[1].begun(replace(request, group=group))
        # The oldest offers make way, and all end with the process.
        newest = [clients[2].offer() for _ in range(256)][-1]
        with pytest.raises(PolicyError, match="has not offered exactly one"):
            clients[2].begun(replace(request, group=group))
        later = AuthorityGroup((offers[0], newest))
    with (
        served(services[2].folder) as again,
        again.client() as client,
        pytest.raises(PolicyError, match="since it was started"),
    ):
        client.begun(replace(request, group=later))


def failing(*_):
    raise DataError("no disk")


def test_an_authority_takes_part_with_no_key_that_nothing_can_be_sealed_to(folders):
    with served(folders[0]) as one, one.client() as client:
        run, own = SteppedRun(KAHE, min_clients=3), client.offer()
        for enrolment_key in (bytes(1216), own.enrolment_key[:1184] + bytes(32), b"\xff" * 1216):
            other = AuthorityIdentity(bytes(range(32)), enrolment_key)
            request = SessionRequest(run.method, run.initial, group=AuthorityGroup((own, other)))
            with pytest.raises(ParameterError, match="no public key"):
                client.begun(request)


def test_the_same_request_begins_one_session_and_a_refused_one_another(folders):
    with connected(folders[:2]) as (services, connection):
        run = SteppedRun(KAHE, min_clients=3)
        request = SessionRequest(run.method, run.initial)
        session = connection.begin_session(request).session_id
        assert connection.begin_session(request).session_id == session
        assert [len(one.folder.session_folders()) for one in services] == [1, 1]
        last = services[1]
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
        served_run(connection, labelled(label, "the authority"))


def test_each_authority_keeps_to_its_own_policy_and_clients(folders):
    with connected(folders[:2]) as ((first, last), connection):
        last.folder.registry.revoke("clinic-3")
        with pytest.raises(PolicyError, match=f"{last.url}.*clinic-3"):
            begun(connection)
        run, other = (begun(connection, clients=3, weights=[1, 1, 1], min_clients=2) for _ in "12")
        run.run_round()
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
    assert (done.returncode, done.stderr) == (0, "")
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


def test_a_list_that_one_authority_was_not_asked_for_opens_nothing(folders, monkeypatch):
    with connected(folders[:2]) as (_, connection):
        run = begun(connection)
        model = run.merged(0).parameters
        asked_instead = []

        def ask_for_fewer(phase, aggregator, messages):
            twin = run.method.aggregator_steps(run.setup, [1] * 4)
            twin.begin_round(1, Message())
            twin.begin_phase(phase, 1, None)
            for index in range(3):
                twin.receive(phase, index, messages[index])
            twin.close(phase)
            asked_instead.append(twin.request(phase).to_bytes())

        first, second = connection._clients
        call = second.call

        def lie(session, name, message):
            if name == "newest-model":
                return first.call(session, name, message)  # an aggregator that lies does not compare
            other = {"message": asked_instead[-1]} if name == "answer" else {}
            return call(session, name, Message({**message, **other}))

        monkeypatch.setattr(second, "call", lie)
        with pytest.raises(KeyMismatchError, match="not signed"):
            run.run_round(intrude=ask_for_fewer)
        assert asked_instead
        np.testing.assert_array_equal(run.merged(0).parameters, model)


def test_what_one_authority_alone_says_is_not_taken(folders):
    with connected(folders[:2]) as (_, connection):
        run = begun(connection)
        first = run.authority.begin_round(1, [0, 1, 2, 3])
        for altered in (
            bytes(first["round model"])[:64],
            bytes(first["round model"])[:64] * 2,
            bytes(first["round model"])[64:] + bytes(first["round model"])[:64],
            bytes(first["round model"]) + bytes(64),
            b"",
        ):
            with pytest.raises(KeyMismatchError, match="not signed"):
                run.clients[0].begin_round(1, 4, Message({**first, "round model": altered}))
        run.clients[0].begin_round(1, 4, first)


class Dishonest:
    """What an authority can do that has all its secrets: here the one that is asked last."""

    def __init__(self, services, run):
        (place,) = services[1].service._places.values()
        self.owner = place.session._steps.keys._owner
        self.check = run.clients[0].context.keys
        self.purposes = run.clients[0].context.answered

    def other_end(self, end):
        """Return a phase's end with another answer to the same request, and another signature of it."""
        phase = bytes(end["answered phase"]).decode()
        purpose = self.purposes[phase]
        answer, public_key = bytes(end["answer"]), self.check.session_key(purpose)
        apart = {"answer", "answered round", "answered phase", "earlier answers", "round answer"}
        result = Message({name: end[name] for name in end.keys() - apart})
        asked = sum_request(self.check.parameters[purpose], result, end["earlier answers"])
        request, opening_key = bytes(asked["request"]), self.owner.opening_key(public_key.manifest_digest)
        own = answer[len(answer) // 2 :]
        sum_key = bytearray(
            read_answer(self.owner.identity.verifying_key, opening_key, public_key.id, request, own)
        )
        sum_key[-200] ^= 1
        sealed = sealed_answer(self.owner.signing_key, opening_key, public_key.id, request, bytes(sum_key))
        lie = {**end, "answer": answer[: len(answer) // 2] + sealed}
        signed = {name: lie[name] for name in ("answer", "answered round", "answered phase")}
        number, digest = end.number("answered round"), digest_of_parts(Message(signed))
        own = signed_bytes(ANSWER_DOMAIN, self.check.session, number, phase, digest)
        signatures = bytes(end["round answer"])[:64] + self.owner.signing_key.sign(own)
        return Message({**lie, "round answer": signatures}), digest


@pytest.mark.parametrize("encryption", ["kahe", "pads"])
def test_what_an_authority_tells_one_client_alone_is_not_taken(folders, encryption):
    """Else that client would go on from a model of its own, and be alone with it in the next sum."""
    with connected(folders[:2]) as (services, connection):
        run = served_run(connection, KAHE.under(encryption), sign=signed, min_clients=3)
        dishonest = Dishonest(services, run)
        end_round, refused = run.clients[0].end_round, []

        def lied_to(end):
            lie, digest = dishonest.other_end(end)
            for without in (lie, Message({name: lie[name] for name in lie.keys() - {"round answer"}})):
                with pytest.raises(
                    (KeyMismatchError, PolicyError), match=r"not signed|no signature"
                ) as error:
                    end_round(without)
                refused.append(error)
            with pytest.raises(PolicyError, match="another answer"):
                run.authority.sign_answer("update", 1, digest)
            end_round(end)

        run.clients[0].end_round = lied_to
        run.run_round()
        assert len(refused) == 2
        del run.clients[0].end_round
        run.run_round()
        np.testing.assert_array_equal(run.merged(0).parameters, run.merged(3).parameters)


def test_nothing_is_signed_together_that_was_not_answered(folders):
    with connected(folders[:2]) as (_, connection):
        run = begun(connection)
        run.authority.begin_round(1, [0, 1, 2, 3])
        for phase, number, digest, error in (
            ("update", 1, bytes(32), PolicyError),
            ("update", 2, bytes(32), PolicyError),
            ("another", 1, bytes(32), ParameterError),
        ):
            with pytest.raises(error):
                run.authority.sign_answer(phase, number, digest)
        run.run_round()
        with pytest.raises(ParameterError, match="length"):
            run.authority.sign_answer("update", 1, bytes(31))
    with served(made_folder(folders[0].path.with_name("alone"), **ANY)) as one, one.client() as client:
        run = served_run(client, KAHE, min_clients=3)
        run.run_round()
        with pytest.raises(ParameterError, match="no answers to sign"):
            run.authority.sign_answer("update", 1, bytes(32))


def test_a_client_that_was_not_in_a_round_is_told_what_the_others_were(folders):
    with connected(folders[:2]) as (services, connection):
        run = begun(connection)
        dishonest, ends = Dishonest(services, run), []
        end_round = run.clients[0].end_round
        run.clients[0].end_round = lambda end: (ends.append(end), end_round(end))
        run.run_round([0, 1, 2])
        lie, _ = dishonest.other_end(ends[0])
        with pytest.raises(KeyMismatchError, match="not signed"):
            run.clients[3].catch_up([lie])
        run.clients[3].catch_up(ends)
        np.testing.assert_array_equal(run.merged(0).parameters, run.merged(3).parameters)


def test_a_tally_is_opened_as_all_have_it(folders):
    """Else one client would send in the clear what the others encrypt."""
    with connected(folders[:2]) as (services, connection):
        run = served_run(connection, labelled("selective-shield/encrypted", "clients"), sign=signed)
        dishonest, step, refused = Dishonest(services, run), run.clients[0].step, []

        def lied_to(phase, message=None):
            if message is not None and "answer" in message:
                with pytest.raises(KeyMismatchError, match="not signed"):
                    step(phase, dishonest.other_end(message)[0])
                refused.append(phase)
            return step(phase, message)

        run.clients[0].step = lied_to
        run.run_round()
        assert refused == ["opened"]


def test_a_round_that_was_left_unsigned_is_signed_no_more_once_another_has_begun(folders):
    with connected(folders[:2]) as (_, connection):
        run = begun(connection)
        run.authority._signs_together = False
        with pytest.raises(PolicyError, match="no signature"):
            run.run_round()
        run.authority.begin_round(2, [0, 1, 2, 3])
        with pytest.raises(PolicyError, match="does not run"):
            run.authority.sign_answer("update", 1, bytes(32))


def test_an_authority_that_was_restarted_signs_nothing_else(folders):
    with connected(folders[:2]) as (_, connection):
        run = begun(connection)
        run.run_round()
        session = run.authority.session_id
    with connected(folders[:2]) as (_, connection), pytest.raises(PolicyError, match="another answer"):
        connection.session(session).sign_answer("update", 1, bytes(32))
