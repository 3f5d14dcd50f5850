"""Two rounds of three clients with a key authority that is served: `python rounds.py AUTHORITY_FOLDER URL KEY...`.

With several authorities, each of which has to answer, give their folders and addresses with commas between. Aggregator
and clients are in this process; the authority is not. It knows the clients by their keys, and the aggregator by its
certificate. In a federation over a network, what goes into ``authority.enrol`` and ``SteppedClients`` travels.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from shieldfl.authority.message import Message
from shieldfl.authority_service.authority_client import (
    AuthorityClient,
    AuthorityConnection,
    RemoteAuthority,
    SeveralAuthorities,
)
from shieldfl.authority_service.certificates import CertificateFiles, client_tls
from shieldfl.authority_service.identity import ClientIdentity
from shieldfl.authority_service.served_session import SessionRequest
from shieldfl.methods.registry import MethodSettings, make_method
from shieldfl.rounds.driver import RoundDriver
from shieldfl.rounds.method import Method
from shieldfl.rounds.plan import FederationPlan, GlobalModel
from shieldfl.rounds.training_client import TrainingClient

VALUES = 1_000

MessageOf = Callable[[int], Message]
"""What a client is sent, by its number."""


class SteppedClients:
    """How a round reaches its clients: here they are objects."""

    def __init__(self, clients: list[TrainingClient]) -> None:
        self.clients = clients

    def begin_round(
        self, clients: Sequence[int], round_number: int, participants: int, message_of: MessageOf
    ) -> None:
        """Give each client the round's first message, and train."""
        for index in clients:
            start = self.clients[index].begin_round(round_number, participants, message_of(index))
            # Training would stand here: every client moves the model by a number of its own.
            moved = start.parameters + np.float32(index + 1)
            self.clients[index].finish_training(start.trained(moved, start.buffers))

    def step(
        self, clients: Sequence[int], phase: str, message_of: MessageOf | None
    ) -> Iterator[tuple[int, bytes]]:
        """Yield each client's message of a phase."""
        for index in clients:
            answer = None if message_of is None else message_of(index)
            yield index, self.clients[index].step(phase, answer).to_bytes()

    def end_round(self, clients: Sequence[int], message_of: MessageOf) -> None:
        """Give each client what it opens."""
        for index in clients:
            self.clients[index].end_round(message_of(index))


def enrolled_clients(
    method: Method, authority: RemoteAuthority, initial: GlobalModel, keys: list[Path]
) -> list[TrainingClient]:
    """Return clients that the authority knows, each by a key that its operator has enrolled under the file's name."""
    made = []
    for index, path in enumerate(keys):
        steps = method.client_steps(authority.setup, index, 1, initial)
        identity = ClientIdentity.load(path)
        asked = identity.signed_enrolment(path.stem, authority.setup.digest, index, steps.enrolment())
        steps.enrolled(authority.enrol(index, asked))
        made.append(steps)
    return made


def connected(folders: list[Path], urls: list[str]) -> AuthorityConnection:
    """Return what reaches the key authority, or all of them, by the certificates that they have issued."""
    clients = []
    for folder, url in zip(folders, urls, strict=True):
        tls = client_tls(CertificateFiles.in_folder(folder / "tls", "aggregator"))
        clients.append(AuthorityClient(url, tls, (folder / "authority.pub").read_text().strip()))
    return clients[0] if len(clients) == 1 else SeveralAuthorities(clients)


def main(folders: list[Path], urls: list[str], keys: list[Path]) -> None:
    """Run two rounds and print what came of them."""
    initial = GlobalModel(np.zeros(VALUES, np.float32), np.zeros(0, np.float32))
    plan = FederationPlan(
        clients=len(keys), rounds=2, min_clients=3, server_learning_rate=1.0, parameters=VALUES
    )
    method = make_method("full-he", MethodSettings(), plan)
    with connected(folders, urls) as connection:
        authority = connection.begin_session(SessionRequest(method, initial))
        clients = enrolled_clients(method, authority, initial, keys)
        aggregator = method.aggregator_steps(authority.setup, [1] * len(clients))
        driver = RoundDriver(method, authority, aggregator, SteppedClients(clients), method.account())
        for round_number in (1, 2):
            driver.run_round(round_number, range(len(clients)), min_clients=3)
            model = clients[0].merged_model(clients[0].global_model(driver.model))
            print(f"round {round_number}: every value of the model is {model.parameters.mean():.4f}")


if __name__ == "__main__":
    given, addresses, *files = sys.argv[1:]
    main([Path(one) for one in given.split(",")], addresses.split(","), [Path(one) for one in files])
