"""Calls of a served authority that a disk, a process or a connection cuts off, and what others get meanwhile."""

from __future__ import annotations

import threading

import httpx
import pytest

from authority_service.served import KAHE, KEYS, served, served_run, signed, tls_of
from methods.stored_run import same_in_every_round
from methods.variants import labelled
from shieldfl.authority_service import session_folder
from shieldfl.authority_service.session_request import SessionRequest
from shieldfl.errors import DataError, PolicyError


@pytest.mark.parametrize("writes", [1, 2])
def test_a_disk_that_fails_in_an_enrolment_makes_no_client_two(strict, monkeypatch, writes):
    """The store has the client, or has not; either way it is nobody else, and revoked with its name."""
    with served(strict) as one, one.client(attempts=1) as client:
        run = served_run(client, KAHE, sign=signed, min_clients=3, train=same_in_every_round)
        remote = client.begin_session(SessionRequest(run.method, run.initial))
        own, other = (run.method.client_steps(remote.setup, index, 1, run.initial) for index in (0, 1))
        asked = signed(remote.setup.digest, 0, own.enrolment())
        write, written = session_folder.write_private_file, []

        def fails(path, content):
            written.append(path)
            if len(written) == writes:
                raise OSError(28, "No space left on device")
            write(path, content)

        with monkeypatch.context() as patch:
            patch.setattr(session_folder, "write_private_file", fails)
            with pytest.raises(DataError):
                remote.enrol(0, asked)
        session = remote.session_id
    with served(strict) as one, one.client(attempts=1) as client:
        remote = client.session(session)
        as_another = KEYS[0].signed_enrolment("clinic-0", remote.setup.digest, 1, other.enrolment())
        if writes == 2:  # the name was on the disk before the store was asked
            with pytest.raises(PolicyError, match="clinic-0 or client 1 has enrolled"):
                remote.enrol(1, as_another)
        assert remote.enrol(0, asked)
        with pytest.raises(PolicyError, match="clinic-0 or client 1 has enrolled"):
            remote.enrol(1, as_another)


def test_a_slow_body_of_one_aggregator_lets_another_begin(folder):
    with served(folder) as one, one.client("other") as other:
        go_on = threading.Event()

        def slow():
            yield b"SHMS"
            go_on.wait(20.0)

        def hold():
            httpx.post(f"{one.url}/v1/sessions", content=slow(), verify=tls_of(folder), timeout=30.0)

        held = threading.Thread(target=hold)
        held.start()
        try:
            assert served_run(other, KAHE).authority.newest_model()
        finally:
            go_on.set()
            held.join()


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
