"""A small federation of one method, all roles its own, in which an aggregator may lie."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from shieldfl.audit.audit_config import AuditConfig
from shieldfl.errors import ShieldError
from shieldfl.methods.discovery import method_class
from shieldfl.methods.protocol.collecting_aggregator import CollectingAggregator
from shieldfl.methods.protocol.driver import RoundDriver
from shieldfl.methods.protocol.embedded_roles import EmbeddedRoles
from shieldfl.methods.protocol.global_model import GlobalModel
from shieldfl.methods.protocol.plan import FederationPlan
from shieldfl.methods.protocol.training_client import TrainingClient
from shieldfl.methods.registry import make_method
from shieldfl.methods.settings import MethodSettings
from shieldfl.roles.message import Message
from shieldfl.roles.role_state import SEALING_KEY_BYTES
from shieldfl.training.drawn_update import contraction
from shieldfl.training.local_update import FloatVector

__all__ = ["PlayedFederation"]

_SHARES_OF_LAYERS = (0.6, 0.95, 1.0)
"""Where the model's three layers end."""
_SHARED = bytes(range(32))
"""Of clients and key authority, in methods in which these share a secret."""
_ROUNDS = 100
"""Of the plan: more than are ever played."""


class PlayedFederation(EmbeddedRoles):
    """Rounds of one method, whose clients train without data: lies do not depend on what is learned.

    Parameters
    ----------
    name, settings : of the method.
    config : of the audit: how many clients, the fewest of a round, who opens sums.
    parameters : how many the model has.

    kept : what another one's roles were before their first round, and the key, as for :class:`EmbeddedRoles`.

    Raises ParameterError for what the method refuses.
    """

    def __init__(
        self,
        name: str,
        settings: MethodSettings,
        config: AuditConfig,
        parameters: int,
        kept: tuple[Message, bytes] | None = None,
    ) -> None:
        drawn = np.random.default_rng(config.seed).normal(0.0, 0.3, parameters).astype(np.float32)
        plan = FederationPlan.for_weights(
            None,
            clients=config.clients,
            rounds=_ROUNDS,
            min_clients=config.min_clients,
            server_learning_rate=1.0,
            parameters=parameters,
            layer_offsets=(0, *(int(share * parameters) for share in _SHARES_OF_LAYERS)),
            samples=config.clients * config.samples,
            opener=config.opener if method_class(name).schemes else None,
        )
        model = GlobalModel(drawn, np.empty(0, np.float32))
        super().__init__(
            make_method(name, settings, plan), model, threads=1, shared_secret=_SHARED, kept=kept
        )
        self.changes: dict[int, FloatVector] = {}
        """By client: what its training has changed of the global model in the round that runs, (P,)."""
        self.round = 0
        self._seed = config.seed
        self._account = self.method.account()

    @classmethod
    def set_up(
        cls, name: str, settings: MethodSettings, config: AuditConfig, parameters: int
    ) -> PlayedFederation:
        """Return one before its first round, with the keys of an earlier one of the same: some take seconds to make.

        Raises as making one does.
        """
        return cls(name, settings, config, parameters, _kept(name, settings, config, parameters))

    def unplayable(self) -> str | None:
        """Say in one sentence why a liar cannot play these roles, which another package may have made; None if it can.

        It opens answers by code of its own, which follows that of this package's roles.
        """
        clients_fit = all(isinstance(one, TrainingClient) for one in self.clients)
        if clients_fit and isinstance(self.aggregator, CollectingAggregator):
            return None
        return "the roles of this method are none of this package's, for which lies are written"

    def run_round(self) -> ShieldError | None:
        """Run the next round with all clients; return what ended it, where something did."""
        self.round += 1
        driver = RoundDriver(self.method, self.authority, self.aggregator, self, self._account)
        try:
            driver.run_round(self.round, range(len(self.clients)), min_clients=0)
        except ShieldError as error:
            return error
        return None

    def begin_round(
        self,
        clients: Sequence[int],
        round_number: int,
        participants: int,
        message_of: Callable[[int], Message],
    ) -> None:
        """Let each client train."""
        for index in clients:
            client, first = self.clients[index], message_of(index)
            start = client.begin_round(round_number, participants, first)
            update = contraction(round_number, self._seed + index, start)
            if (trained := self.method.trained) is not None:
                frozen = ~trained
                frozen.scatter(frozen.gather(start.parameters), update.parameters)
            client.finish_training(update)
            known = client.global_model(first)
            held = (
                known.vector("parameters", np.float32, start.parameters.size)
                if "parameters" in known
                else start.parameters
            )
            self.changes[index] = update.parameters - held

    def step(
        self, clients: Sequence[int], phase: str, message_of: Callable[[int], Message] | None
    ) -> Iterator[tuple[int, bytes]]:
        """Let each client make the phase's message."""
        for index in clients:
            answer = None if message_of is None else message_of(index)
            yield index, self.clients[index].step(phase, answer).to_bytes()

    def end_round(self, clients: Sequence[int], message_of: Callable[[int], Message]) -> None:
        """Let each client take the round's end."""
        for index in clients:
            self.clients[index].end_round(message_of(index))

    def encrypts(self, client: int) -> Any:
        """Return which parameters (P,) the client has encrypted in the round that runs, as bools."""
        return self.clients[client].disclosure.encrypted.to_bool()


@functools.lru_cache(maxsize=32)
def _kept(name: str, settings: MethodSettings, config: AuditConfig, parameters: int) -> tuple[Message, bytes]:
    key = secrets.token_bytes(SEALING_KEY_BYTES)
    return PlayedFederation(name, settings, config, parameters).parts(key), key
