"""What one of several authorities can do that is dishonest, with the aggregator: nothing, where another is honest."""

from __future__ import annotations

import numpy as np
import pytest

from authority_service.served import ANY, KAHE, begun, connected, made_folder, served, served_run, signed
from authority_service.test_served_rounds import variant_of
from shieldfl.authority_service.authority_client import RemoteAuthority
from shieldfl.errors import KeyMismatchError, ParameterError, PolicyError
from shieldfl.methods.protocol.messages import sum_request
from shieldfl.roles.message import Message
from shieldfl.roles.round_key_check import digest_of_parts, signed_answer
from shieldfl.scheme.sealed_answer import read_answer, sealed_answer


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

    def __init__(self, services, connection, run):
        client = connection._clients[1]
        (self.service,) = (one.service for one in services if one.url == client.address)
        (place,) = self.service._places.values()
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
        own = signed_answer(
            self.check.session, end.number("answered round"), phase, digest_of_parts(Message(signed))
        )
        signatures = bytes(end["round answer"])[:64] + self.owner.signing_key.sign(own)
        return Message({**lie, "round answer": signatures}), digest_of_parts(Message(signed))


@pytest.mark.parametrize("encryption", ["kahe", "pads"])
def test_what_an_authority_tells_one_client_alone_is_not_taken(folders, encryption):
    """Else that client would go on from a model of its own, and be alone with it in the next sum."""
    with connected(folders[:2]) as (services, connection):
        run = served_run(connection, KAHE.under(encryption), sign=signed, min_clients=3)
        dishonest = Dishonest(services, connection, run)
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
        dishonest, ends = Dishonest(services, connection, run), []
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
        run = served_run(connection, variant_of("selective-shield/encrypted", "clients"), sign=signed)
        dishonest, step, refused = Dishonest(services, connection, run), run.clients[0].step, []

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


def test_an_authority_that_was_put_back_signs_nothing_else(folders, monkeypatch):
    kept = {}
    with connected(folders[:2]) as (_, connection):
        run = begun(connection)
        sign_answer = RemoteAuthority.sign_answer

        def keep_states(*asked):
            for folder in folders[:2]:
                (state,) = folder.sessions.glob("*/state")
                kept[state] = state.read_bytes()
            return sign_answer(*asked)

        monkeypatch.setattr(RemoteAuthority, "sign_answer", keep_states)
        run.run_round()
        monkeypatch.undo()
        session = run.authority.session_id
    for state, content in kept.items():
        state.write_bytes(content)
    with connected(folders[:2]) as (_, connection), pytest.raises(PolicyError, match="another reply"):
        connection.session(session).sign_answer("update", 1, bytes(32))
