from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from shieldfl.errors import WireFormatError
from shieldfl.fleet.measure.paced_link import Connection, Link
from shieldfl.roles.message import Message


@pytest.fixture
def streams() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        other, _ = server.accept()
    with one, other:
        yield one, other


def test_a_letter_arrives_as_it_was_sent(streams):
    sender, receiver = Connection(streams[0]), Connection(streams[1], clock=lambda: 7.0)
    sender.send("update", {"number": 3}, {"frame": b"\0\1", "empty": b""})
    letter = receiver.receive()
    assert (letter.kind, letter.facts, letter.at) == ("update", {"number": 3}, 7.0)
    assert letter.parts == {"frame": b"\0\1", "empty": b""}


def test_a_link_delays_by_its_latency_and_its_rate(streams):
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    sender = Connection(streams[0], lambda: now[0], sleep)
    received = []
    reader = threading.Thread(target=lambda: received.append(Connection(streams[1]).receive()))
    reader.start()
    sender.send("update", parts={"frame": bytes(1_000_000)}, link=Link(250_000.0, 0.5))
    reader.join()
    assert len(received[0].parts["frame"]) == 1_000_000
    # The parts' names and lengths travel too.
    assert 4.5 <= now[0] < 4.501


def test_without_a_link_nobody_waits(streams):
    def sleep(seconds: float) -> None:
        raise AssertionError("slept")

    Connection(streams[0], sleep=sleep).send("ready")
    assert Connection(streams[1]).receive().kind == "ready"


def test_the_other_side_has_gone(streams):
    Connection(streams[0]).close()
    with pytest.raises(ConnectionError, match="closed"):
        Connection(streams[1]).receive()


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (struct.pack("<Q", 2**40), "announced"),
        (struct.pack("<Q", 4) + b"nope", "message"),
        (None, "kind"),
    ],
)
def test_what_is_no_letter(streams, sent, said):
    if sent is None:
        encoded = Message({"kind": b"update"}).to_bytes()
        sent = struct.pack("<Q", len(encoded)) + encoded
    streams[0].sendall(sent)
    with pytest.raises(WireFormatError, match=said):
        Connection(streams[1]).receive()


def test_closing_twice_is_no_error(streams):
    connection = Connection(streams[0])
    connection.close()
    connection.close()
