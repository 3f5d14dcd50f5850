"""All roles of one federation in one process, each with what it would be given on a machine of its own."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import partial
from typing import Any

from shieldfl.authority.message import Message
from shieldfl.rounds.account import Account
from shieldfl.rounds.authorities import AuthoritySteps
from shieldfl.rounds.collecting_aggregator import CollectingAggregator
from shieldfl.rounds.global_model import GlobalModel
from shieldfl.rounds.method import Method
from shieldfl.rounds.named_method import naming_own_method
from shieldfl.rounds.opening_rule import OpenedTogether
from shieldfl.rounds.plan import checked_weights
from shieldfl.rounds.public_setup import PublicSetup
from shieldfl.rounds.reports import Reporter
from shieldfl.rounds.training_client import TrainingClient


class EmbeddedRoles:
    """Sets a federation up; the authority's set-up is passed to the other roles as the bytes that it would be.

    ``shared_secret``, of clients and key authority, is drawn where it is None. ``kept`` is what :meth:`parts`
    returned in another process, and the key: the roles go on where they stood there. ``together`` is what
    clients that open sums share of it; None for each to do all of it.
    """

    def __init__(
        self,
        method: Method,
        initial: GlobalModel,
        weights: Sequence[int] | None = None,
        *,
        threads: int | None = None,
        shared_secret: bytes | None = None,
        kept: tuple[Message, bytes] | None = None,
        together: OpenedTogether | None = None,
    ) -> None:
        if method.needs_shared_secret and shared_secret is None:
            shared_secret = secrets.token_bytes(32)
        self.method = method
        self.initial = initial.kept()  # once for all roles
        self.weights = checked_weights(weights, method.plan.clients)
        self.shared_secret = shared_secret
        self._threads = threads
        self._together = together
        self.authority: AuthoritySteps | None
        self.setup: PublicSetup
        self.clients: list[TrainingClient]
        self.aggregator: CollectingAggregator
        with naming_own_method(method.name, type(method)):
            if kept is None:
                self._set_up()
            else:
                self._go_on(*kept)

    def _set_up(self) -> None:
        self.authority, made = self._made_authority()
        self.setup = PublicSetup.from_bytes(made.to_bytes(), made.digest)
        self.clients = [self.new_client(index) for index in range(self.method.plan.clients)]
        self.aggregator = self.new_aggregator()
        if self.authority is None:
            return
        enrolling: list[tuple[Any, Any]] = [(self.aggregator, self.authority.grant)]
        enrolling += [(one, partial(self.authority.enrol, index)) for index, one in enumerate(self.clients)]
        for role, grant in enrolling:
            request = role.enrolment()
            if request:
                granted = grant(Message.from_bytes(request.to_bytes()))
                role.enrolled(Message.from_bytes(granted.to_bytes()))

    def _made_authority(self, **how: Any) -> tuple[AuthoritySteps | None, PublicSetup]:
        return self.method.authority_setup(
            self.initial, threads=self._threads, shared_secret=self.shared_secret, **how
        )

    def _go_on(self, parts: Message, key: bytes) -> None:
        self.setup = PublicSetup.trusted(bytes(parts["setup"]))
        self.authority = self.new_authority() if self.method.purposes else None
        self.clients = [self.new_client(index) for index in range(self.method.plan.clients)]
        self.aggregator = self.new_aggregator()
        for name, role in self._roles().items():
            role.restore(parts[name], key if role.needs_sealing else None)

    def _roles(self) -> dict[str, Reporter]:
        roles: dict[str, Reporter] = {f"client {index}": client for index, client in enumerate(self.clients)}
        roles["aggregator"] = self.aggregator
        return roles if self.authority is None else roles | {"authority": self.authority}

    def parts(self, key: bytes) -> Message:
        """Return, between rounds, the public set-up and every role's state, sealed: ``kept``."""
        roles = self._roles().items()
        states = {name: role.state(key if role.needs_sealing else None) for name, role in roles}
        return Message({"setup": self.setup.to_bytes(), **states})

    def new_client(self, index: int) -> TrainingClient:
        client = self.method.client_steps(
            self.setup,
            index,
            self.weights[index],
            self.initial,
            threads=self._threads,
            shared_secret=self.shared_secret,
        )
        if self._together is not None:
            client.open_together(self._together)
        return client

    def new_authority(self) -> AuthoritySteps:
        return self.method.authority_steps(
            self.setup, self.initial, threads=self._threads, shared_secret=self.shared_secret
        )

    def new_aggregator(self) -> CollectingAggregator:
        initial = self.initial if self.method.aggregator_has_model else None
        return self.method.aggregator_steps(self.setup, self.weights, initial=initial, threads=self._threads)

    def report_to(self, account: Account) -> None:
        for role in self._roles().values():
            account.take(role.report())
