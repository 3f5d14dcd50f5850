"""Connections, bodies and requests of a size or number that nobody honest sends, and what others get meanwhile."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import socket
import sys
import threading
import time

import httpx
import numpy as np
import pytest

from authority_service.served import ANY, KAHE, PASSPHRASE, made_folder, served, served_run, tls_of
from authority_service.test_served_process import Process
from shieldfl.authority.message import Message
from shieldfl.authority_service.certificates import CertificateFiles, client_tls
from shieldfl.authority_service.http_server import FewAlike, LogLines, RequestBodies
from shieldfl.authority_service.service import AuthorityService
from shieldfl.encryption.enrolment import AuthorityGroup, AuthorityIdentity
from shieldfl.errors import PolicyError


def asked(method, plan, **settings):
    """A request for a session, as bytes that no method was made for."""
    sizes = {"clients": 4, "rounds": 3, "min_clients": 3, "server_learning_rate": 1.0, "parameters": 3}
    text = json.dumps({"method": method, "settings": settings, "plan": sizes | plan}).encode()
    size = min(plan.get("parameters", 3), 300)
    model = {"parameters": np.zeros(size, np.float32).tobytes(), "buffers": b""}
    return Message({"asked": text, "nonce": bytes(16), **model}).to_bytes()


def context_of(folder):
    return client_tls(CertificateFiles.in_folder(folder / "tls", "aggregator"))


def connected(process, data=b"", *, tls=True):
    plain = socket.create_connection(("127.0.0.1", process.port), timeout=10)
    if not tls:
        return plain
    own = context_of(process.folder).wrap_socket(plain, server_hostname="127.0.0.1")
    own.sendall(data)
    return own


def head(path, *lines, length=0):
    every = [f"POST {path} HTTP/1.1", "Host: a", f"Content-Length: {length}", *lines]
    return "\r\n".join(every).encode() + b"\r\n\r\n"


def posted(process, body, path="/v1/sessions", seconds=20.0):
    return httpx.post(
        f"https://127.0.0.1:{process.port}{path}",
        content=body,
        verify=context_of(process.folder),
        timeout=seconds,
        trust_env=False,
    )


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({"rounds": 2**31 - 1}, "2,147,483,647 rounds, but this authority allows 10,000"),
        ({"clients": 2**31 - 1}, "2,147,483,647 clients"),
        ({"parameters": 2**62}, "values, but this authority allows"),
        ({"buffers": 2**62}, "values, but this authority allows"),
        ({"min_clients": 2}, "plan with min_clients = 3 or more"),
        ({"layer_offsets": [0] * 2**19}, "at most 1,048,576 bytes as JSON"),
    ],
)
def test_a_plan_is_refused_before_anything_is_made_of_its_numbers(folder, monkeypatch, plan, words):
    def made(*arguments):
        raise AssertionError("a method was made of a plan that is not allowed")

    monkeypatch.setattr("shieldfl.authority_service.served_session.make_method", made)
    folder.policy.write_text(folder.policy.read_text().replace("min_clients = 2", "min_clients = 3"))
    with served(folder) as one:
        answer = httpx.post(f"{one.url}/v1/sessions", content=asked("alt-fl-pi", plan), verify=tls_of(folder))
    assert words in answer.json()["message"]


def test_it_ends_in_time_while_connections_are_open(process):
    """A body of which half has come, and two connections that may ask once more: none is waited for."""
    half = connected(process, head("/v1/sessions", length=300) + b"SHMS")
    sent = connected(process, head("/v1/offers", length=6) + b"SHMS\0\0")
    bare = connected(process, tls=False)
    assert b"200 OK" in sent.recv(4096)
    begun = time.monotonic()
    assert process.stop() == 0
    assert time.monotonic() - begun < 5.0
    for one in (half, sent, bare):
        one.close()


SLOW = """
import runpy, time
from shieldfl.authority_service import service
service.AuthorityService.begin_session = lambda *of_whom: time.sleep(60)
runpy.run_module("shieldfl.cli.main", run_name="__main__")
"""


def test_a_thread_that_is_at_work_does_not_keep_it_from_ending(operators, tmp_path, monkeypatch):
    (tmp_path / "slow.py").write_text(SLOW)
    monkeypatch.setattr(
        "authority_service.test_served_process.COMMAND",
        [sys.executable, str(tmp_path / "slow.py"), "authority"],
    )
    process = Process(operators)
    with connected(process, head("/v1/sessions", length=6) + b"SHMS\0\0"):
        time.sleep(0.3)
        begun = time.monotonic()
        assert process.stop() == 0
        assert time.monotonic() - begun < 5.0
    assert [json.loads(line)["event"] for line in process.lines[-2:]] == ["stopping", "cut off"]


def test_many_connections_that_say_nothing_keep_nobody_out(operators):
    """They show no certificate; there are more than this process may have of file descriptors."""
    process, idle = Process(operators, ["sh", "-c", 'ulimit -n 300; exec "$@"', "sh"]), []
    try:
        for _ in range(330):
            idle.append(connected(process, tls=False))
        begun = time.monotonic()
        assert posted(process, b"SHMS\0\0", "/v1/offers").status_code == 200
        assert time.monotonic() - begun < 5.0
        assert sum(len(line) for line in process.lines) < 20_000
    finally:
        for one in idle:
            one.close()
        process.kill()


def test_idle_connections_to_the_figures_keep_nobody_from_its_health(process):
    """A supervisor that gets no answer would start the authority again."""
    host, port = process.serving["figures"].rsplit(":", 1)
    idle = [socket.create_connection((host, int(port)), timeout=10) for _ in range(40)]
    for _ in range(3):
        answer = httpx.get(f"http://{host}:{port}/health", timeout=10.0, trust_env=False)
        assert answer.text == "ok\n"
    begun = time.monotonic()
    assert process.stop() == 0
    assert time.monotonic() - begun < 5.0
    for one in idle:
        one.close()


def test_an_unfinished_head_and_an_unfinished_handshake_are_not_waited_for(folder, monkeypatch):
    monkeypatch.setattr("shieldfl.authority_service.http_server._IDLE_SECONDS", 0.3)
    monkeypatch.setattr("shieldfl.authority_service.http_server._HANDSHAKE_SECONDS", 0.3)
    with served(folder) as one:
        address = one.address
        bare = socket.create_connection(address, timeout=5)
        half = tls_of(folder).wrap_socket(
            socket.create_connection(address, timeout=5), server_hostname="127.0.0.1"
        )
        half.sendall(b"POST /v1/offers HTTP/1.1\r\nHost: ")
        again = tls_of(folder).wrap_socket(
            socket.create_connection(address, timeout=5), server_hostname="127.0.0.1"
        )
        again.sendall(head("/v1/offers", length=6) + b"SHMS\0\0" + b"POST /v1/offers HTTP/1.1\r\nX: ")
        assert b"200 OK" in again.recv(4096)
        for connection in (bare, half, again):
            with contextlib.suppress(ConnectionError), connection:
                assert ends(connection)
        with one.client() as client:
            assert client.offer()


def ends(connection):
    """Read a connection to its end, which comes within its time-out."""
    while connection.recv(4096):
        pass
    return True


def test_bodies_of_all_requests_together_are_bounded(tmp_path, monkeypatch):
    folder = made_folder(tmp_path / "authority", **ANY, most_bytes_in_progress=2**20)
    bodies = recorded_bodies(monkeypatch)
    with served(folder) as one, one.client("other", attempts=2, pause_seconds=0.0) as other:
        run = served_run(other, KAHE)
        whole, most = bytes(2**20), 2**20 + 2**17
        with one.unfinished_body(itertools.repeat(whole[: 2**16], most // 2**16)):
            deadline = time.monotonic() + 30.0
            # A body that comes meanwhile could be the one that is taken, and this one refused.
            while bodies[0].counted_bytes < 2**20:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            answer = post(one, folder, bytes(2**18))
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
            assert answer.json()["error"] == "UnreachableError"
            run.run_round()  # small bodies are answered
        assert post(one, folder, bytes(2**18)).status_code == 400
        assert one.service.open_sessions == 1


def recorded_bodies(monkeypatch):
    """Return a list that will hold what counts the bodies of the server that is made next."""
    made = []
    monkeypatch.setattr(
        "shieldfl.authority_service.http_server.RequestBodies",
        lambda most: made.append(RequestBodies(most)) or made[0],
    )
    return made


def post(one, folder, body):
    return httpx.post(f"{one.url}/v1/sessions", content=body, verify=tls_of(folder, "other"), timeout=60.0)


def test_calls_of_one_session_do_not_pile_up(folder, monkeypatch):
    """The next body of a session is read when the call before was answered."""
    made = recorded_bodies(monkeypatch)
    body = Message({"more": bytes(2**20 - 2**10)}).to_bytes()
    with served(folder) as one, one.client() as client:
        run = served_run(client, KAHE)
        session = one.service._places[run.authority.session_id].session
        url = f"{one.url}/v1/sessions/{run.authority.session_id.hex()}/newest-model"
        answers = []

        def ask():
            answers.append(httpx.post(url, content=body, verify=tls_of(folder), timeout=60.0).status_code)

        asking = [threading.Thread(target=ask) for _ in range(6)]
        with session._lock:
            for one_of_them in asking:
                one_of_them.start()
            deadline = time.monotonic() + 30.0
            while not made[0].counted_bytes and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(0.3)
            assert 0 < made[0].counted_bytes < len(body)
        for one_of_them in asking:
            one_of_them.join()
        assert len(answers) == 6
        assert made[0].counted_bytes == 0


@pytest.mark.parametrize("of", ["another", "nobody"])
def test_a_body_for_a_session_that_is_not_its_senders_is_not_waited_for(folder, monkeypatch, of):
    """It would hold the turn of the session's own aggregator, or bytes that count."""
    made = recorded_bodies(monkeypatch)
    with served(folder) as one, one.client() as client:
        run = served_run(client, KAHE)
        session = run.authority.session_id.hex() if of == "another" else "ab" * 16
        port = int(one.url.rsplit(":", 1)[1])
        plain = socket.create_connection(("127.0.0.1", port), timeout=10)
        with tls_of(folder, "other").wrap_socket(plain, server_hostname="127.0.0.1") as own:
            own.sendall(head(f"/v1/sessions/{session}/answer", length=1_000) + b"1")
            assert b"403" in own.recv(2**12)
        assert made[0].counted_bytes == 0
        run.run_round()


def test_an_aggregators_calls_that_wait_leave_a_thread_to_others(folder):
    """In as many sessions as there are threads."""
    with served(folder) as one, one.client() as client, contextlib.ExitStack() as stack:
        runs = [served_run(client, KAHE) for _ in range(4)]
        for run in runs:
            stack.enter_context(one.service._places[run.authority.session_id].session._lock)
        asking = [threading.Thread(target=run.authority.newest_model) for run in runs]
        for one_of_them in asking:
            one_of_them.start()
        time.sleep(0.3)
        assert post(one, folder, b"no message").status_code == 400
        stack.close()
        for one_of_them in asking:
            one_of_them.join()


def test_no_aggregator_makes_the_offers_of_another_forgotten(folder):
    with contextlib.closing(AuthorityService(folder, PASSPHRASE)) as service:

        def offer(aggregator):
            return AuthorityIdentity(*map(bytes, service.offer(Message(), aggregator).values()))

        honest = offer("aggregator")
        first, *_, last = [offer("other") for _ in range(40)]
        assert service._taken("aggregator", AuthorityGroup((honest, last)))
        with pytest.raises(PolicyError, match="has not offered exactly one of these keys"):
            service._taken("other", AuthorityGroup((first, honest)))
        assert service._taken("other", AuthorityGroup((last, honest)))


MALFORMED = {
    "no request": b"\0\1 nothing of HTTP\r\n\r\n",
    "long header": head("/v1/offers", "X: " + "a" * 100_000),
    "many headers": head("/v1/offers", *(f"X{number}: a" for number in range(1_000))),
    "two lengths": head("/v1/offers", "Content-Length: 7"),
    "huge length": b"POST /v1/offers HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999999999999999999\r\n\r\n",
    "no chunk": b"POST /v1/offers HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "no gzip": head("/v1/offers", "Content-Encoding: gzip", length=3) + b"abc",
    "upgrade": head("/v1/offers", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"),
    "no address": head("http://[::1"),
}


def test_a_malformed_message_is_one_line_in_the_log(process):
    for name, data in MALFORMED.items():
        before = len(process.lines)
        with connected(process, data) as connection:
            connection.settimeout(5)
            assert b" 400 " in connection.recv(4096)
        deadline = time.monotonic() + 5.0
        while len(process.lines) == before and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.05)
        assert len(process.lines) == before + 1, name
        assert "traceback" not in process.lines[-1], name
        assert json.loads(process.lines[-1])["event"] == "call"


def test_lines_that_are_alike_are_counted(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("shieldfl.authority_service.http_server.time.monotonic", lambda: now[0])
    few, lines = FewAlike(), LogLines()

    def logged(result, call="enrol"):
        record = logging.makeLogRecord({"msg": "call", "levelno": logging.INFO, "name": "x"})
        record.fields = {"call": call, "result": result}
        return json.loads(lines.format(record)) if few.filter(record) else None

    assert sum(logged("PolicyError") is not None for _ in range(1_000)) == 10
    assert logged("PolicyError", "answer")
    assert all(logged("ok") for _ in range(1_000))
    now[0] = 11.0
    assert logged("PolicyError")["left_out_before"] == 990
    assert "left_out_before" not in logged("PolicyError")
