"""The process of one client of a measured fleet: ``python -m shieldfl.fleet.measure.measured_client``.

It is told on standard input where the aggregator listens and with which word to report there, and ends when the
aggregator does.
"""

from __future__ import annotations

import ctypes
import json
import signal
import socket
import sys
import time

from shieldfl.fleet.measure.client_work import ClientTask, ClientWork, RoundTask
from shieldfl.fleet.measure.paced_link import Connection, Letter, Link

__all__ = ["take_part"]

_PR_SET_PDEATHSIG = 1


def take_part(connection: Connection) -> None:
    """Do what the aggregator asks for until it closes the connection."""
    start = connection.receive()
    task = ClientTask.from_json(start.facts)
    work = ClientWork(task, start.parts["public_key"])
    work.warm_up()
    connection.send("ready")
    link = Link(task.upload_bytes_per_second, task.latency_seconds)
    method: RoundTask | None = None
    while True:
        letter = connection.receive()
        if letter.kind == "method":
            method = RoundTask.from_parts(letter.facts, letter.parts, task.parameters)
        elif letter.kind == "probe":
            connection.send("probed", work.probe(letter.facts["seconds"]))
        elif letter.kind == "round" and method is not None:
            _do_round(connection, work, method, letter, link)
        elif letter.kind == "model":
            connection.send("downloaded", {"at": letter.at})


def _do_round(
    connection: Connection, work: ClientWork, method: RoundTask, letter: Letter, link: Link
) -> None:
    parts: dict[str, bytes] = {}
    used = time.process_time()
    for name, step in work.stages(method, letter.facts["number"]):
        result = step()
        end, used_by_now = time.monotonic(), time.process_time()
        connection.send("stage", {"name": name, "end": end, "processor_seconds": used_by_now - used})
        used = used_by_now
        if name == "encrypt":
            parts = result
    connection.send("update", parts=parts, link=link)
    # What the opened sum is checked against; no part of the round, so the link is not asked.
    connection.send("plain", parts={"update": work.update.tobytes()})


def _main() -> None:
    # The aggregator's process ends its clients, also when Ctrl-C reaches the whole group.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # And should it be killed itself, nobody is left who would continue a client that is stopped.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    line = sys.stdin.readline()
    if not line:
        return
    facts = json.loads(line)
    with socket.create_connection(("127.0.0.1", facts["port"])) as stream:
        connection = Connection(stream)
        connection.send("hello", {"client": facts["client"], "word": facts["word"]})
        try:
            take_part(connection)
        except ConnectionError:
            return


if __name__ == "__main__":
    _main()
