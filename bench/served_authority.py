"""A served key authority: how fast it answers over TLS, and whether it grows over many rounds.

python bench/served_authority.py                     # five minutes of two cores, on the loopback
python bench/served_authority.py --rounds 200 --sessions 8

The authority is a process of its own, `shieldfl authority serve`; aggregator and clients are this one. Only calls are
timed: what clients compute in between is theirs.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier

import numpy as np

from shieldfl.authority.message import Message
from shieldfl.authority_service.authority_client import AuthorityClient, RemoteAuthority
from shieldfl.authority_service.certificates import CertificateFiles, client_tls
from shieldfl.authority_service.served_session import SessionRequest
from shieldfl.authority_service.service import AuthorityPolicy
from shieldfl.cli.bench import print_machine
from shieldfl.cli.console import ResultConsole
from shieldfl.lab.bench.comparison import describe_machine
from shieldfl.learning.local_update import contraction
from shieldfl.methods.registry import MethodSettings, make_method
from shieldfl.rounds.collecting_aggregator import CollectingAggregator
from shieldfl.rounds.plan import FederationPlan
from shieldfl.rounds.training_client import TrainingClient
from shieldfl.testing.conformance import initial_model
from target import Target, at_most, print_targets

VALUES = 1_000
COMMAND = [sys.executable, "-m", "shieldfl.cli.main", "authority"]


class ServedProcess:
    """An authority that any client may enrol with, served on a free port."""

    def __init__(self, folder: Path) -> None:
        self._environment = os.environ | {"SHIELDFL_AUTHORITY_PASSPHRASE": secrets.token_hex(16)}
        subprocess.run(
            [*COMMAND, "init", str(folder)], env=self._environment, check=True, capture_output=True
        )
        policy = AuthorityPolicy(registered_clients_only=False, most_rounds=1_000_000)
        (folder / "policy.toml").write_text(policy.to_toml())
        self.folder = folder
        serve = [*COMMAND, "serve", str(folder), "--listen", "127.0.0.1:0", "--figures", ""]
        self._log = Path(f"{folder}.log")
        with self._log.open("w") as log:
            self.process = subprocess.Popen(serve, env=self._environment, stderr=log)
        while not (text := self._lines()):
            time.sleep(0.05)
        self._serving = json.loads(text[0])

    def _lines(self) -> list[str]:
        text = self._log.read_text()
        return text.splitlines() if text.endswith("\n") else []

    def client(self) -> AuthorityClient:
        files = CertificateFiles.in_folder(self.folder / "tls", "aggregator")
        return AuthorityClient(
            f"https://{self._serving['address']}", client_tls(files), self._serving["public_key"]
        )

    def memory_bytes(self) -> int:
        """Resident, as the kernel counts it."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def file_descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def disk_bytes(self) -> int:
        return sum(path.stat().st_size for path in (self.folder / "sessions").rglob("*") if path.is_file())

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)


@dataclass
class Session:
    """All roles but the authority, of `full-he`, each client opening."""

    authority: RemoteAuthority
    clients: list[TrainingClient]
    aggregator: CollectingAggregator
    round: int = 0

    @classmethod
    def begin(cls, connection: AuthorityClient, clients: int, rounds: int) -> Session:
        initial = initial_model(VALUES, 0)
        plan = FederationPlan(
            clients=clients, rounds=rounds, min_clients=3, server_learning_rate=1.0, parameters=VALUES
        )
        method = make_method("full-he", MethodSettings(), plan)
        authority = connection.begin_session(SessionRequest(method, initial))
        made = []
        for index in range(clients):
            steps = method.client_steps(authority.setup, index, 1, initial, threads=1)
            steps.enrolled(authority.enrol(index, steps.enrolment()))
            made.append(steps)
        aggregator = method.aggregator_steps(authority.setup, [1] * clients, threads=1)
        return cls(authority, made, aggregator)

    def request(self) -> Message:
        """Run the next round up to what asks the authority for its answer."""
        self.round += 1
        first = Message.from_bytes(self.authority.begin_round(self.round).to_bytes())
        self.aggregator.begin_round(self.round, Message())
        self.aggregator.begin_phase("update", self.round, None)
        for index, client in enumerate(self.clients):
            start = client.begin_round(self.round, len(self.clients), first)
            client.finish_training(contraction(self.round, index, start))
            self.aggregator.receive(
                "update", index, Message.from_bytes(client.step("update", None).to_bytes())
            )
        self.result = self.aggregator.close("update")
        return self.aggregator.request("update")

    def end(self, asked: Message, answer: Message) -> None:
        """Let all clients open the round's sum."""
        both = Message({**self.result, "earlier answers": asked["earlier answers"], **answer})
        self.aggregator.keep(both, asked, range(len(self.clients)))
        for client in self.clients:
            client.end_round(both)


def answers(connection: AuthorityClient, clients: int, sessions: int, rounds: int) -> Iterator[Target]:
    """Yield how many answers a second many sessions get at once, and how long one takes that is alone."""
    running = [Session.begin(connection, clients, rounds) for _ in range(sessions)]
    rates: list[float] = []
    alone: list[float] = []
    together: list[float] = []

    def timed(session: Session, asked: Message, seconds: list[float]) -> Message:
        begun = time.perf_counter()
        given = session.authority.answer("update", asked)
        seconds.append(time.perf_counter() - begun)
        return given

    all_threads = Barrier(sessions)

    def connected(session: Session) -> None:
        all_threads.wait()
        session.authority.newest_model()

    with ThreadPoolExecutor(sessions) as pool:
        list(pool.map(connected, running))  # aggregators keep their connections open between rounds
        for number in range(rounds):
            asked = [session.request() for session in running]
            begun = time.perf_counter()
            if number % 2:
                given = list(pool.map(lambda one, ask: timed(one, ask, together), running, asked))
                rates.append(sessions / (time.perf_counter() - begun))
            else:
                given = [timed(one, ask, alone) for one, ask in zip(running, asked, strict=True)]
            for session, ask, answer in zip(running, asked, given, strict=True):
                session.end(ask, answer)
    name = f"answers to {clients} clients over TLS"
    at_once = f"{name}, {sessions} sessions at once"
    yield Target(at_once, statistics.median(rates), 400.0, None, "/s", True)
    in_turn = f"{name}, one after the other"
    for how, seconds, most, most_slow in ((at_once, together, None, 80.0), (in_turn, alone, 6.0, None)):
        median, slow = np.percentile(np.array(seconds) * 1e3, [50, 99])
        yield at_most(f"{how}: median", median, most, unit="ms")
        yield at_most(f"{how}: 99th percentile", slow, most_slow, unit="ms")


def growth(served: ServedProcess, connection: AuthorityClient, rounds: int) -> Iterator[Target]:
    """Yield what a session of three clients takes, and how it grows, over many rounds."""
    session = Session.begin(connection, 3, rounds)
    before: tuple[int, int, int] | None = None
    seconds = []
    for number in range(1, rounds + 1):
        asked = session.request()
        begun = time.perf_counter()
        answer = session.authority.answer("update", asked)
        seconds.append(time.perf_counter() - begun)
        session.end(asked, answer)
        if number == max(rounds // 10, 1):
            before = served.memory_bytes(), served.file_descriptors(), served.disk_bytes()
    assert before is not None
    after = served.memory_bytes(), served.file_descriptors(), served.disk_bytes()
    passed = rounds - max(rounds // 10, 1)
    name = f"{rounds:,} rounds of 3 clients"
    tenth = max(rounds // 10, 1)
    yield at_most(f"{name}: memory, last nine tenths", (after[0] - before[0]) / 1e6, None, unit="MB more")
    yield at_most(f"{name}: file descriptors", float(after[1] - before[1]), 0.0, unit="more")
    yield at_most(f"{name}: store and state", (after[2] - before[2]) / passed, None, unit="bytes a round")
    first, last = statistics.median(seconds[:tenth]) * 1e3, statistics.median(seconds[-tenth:]) * 1e3
    yield at_most(f"{name}: an answer, first tenth", first, None, unit="ms")
    yield at_most(f"{name}: an answer, last tenth", last, None, unit="ms")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--sessions", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=10_000)
    given = parser.parse_args(arguments)
    machine, console = describe_machine(), ResultConsole()
    with tempfile.TemporaryDirectory() as folder:
        served = ServedProcess(Path(folder, "authority"))
        try:
            with served.client() as connection:
                figures = list(answers(connection, given.clients, given.sessions, 20))
                figures += growth(served, connection, given.rounds)
        finally:
            served.end()
    print_machine(machine, console)
    print_targets(figures, console)


if __name__ == "__main__":
    main()
