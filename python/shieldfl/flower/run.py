"""What a run is to be, before any client is asked, and how far it has come."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import msgspec
from flwr.app import ArrayRecord

from shieldfl.authority.message import Message
from shieldfl.authority.role_state import RunFolder
from shieldfl.authority.round_key_check import SESSION_BYTES
from shieldfl.errors import DataError, ParameterError, PolicyError, WireFormatError
from shieldfl.flower.clients import Participant
from shieldfl.flower.record_layout import RecordLayout
from shieldfl.flower.settings import FederationSettings
from shieldfl.methods.registry import MethodSettings, make_method
from shieldfl.rounds.method import Method
from shieldfl.rounds.plan import FederationPlan, GlobalModel, PublicSetup
from shieldfl.settings import plain_settings

_MOST_SKEW = 2.0
"""Of the largest weight and the mean: its binary logarithm is how many bits longer values get, at some percent of bytes
each. A larger skew costs the mean precision instead. A ``most-weight`` above all weights costs further bits."""

_VERY_MANY = 10**6
_OF_ONE_PROCESS = ("checkpoint", "resume", "threads")
"""Settings, and those of the authority, that may be others where a run is gone on with."""


@dataclass(frozen=True)
class PlannedRun:
    settings: FederationSettings
    method_settings: MethodSettings
    rounds: int
    layout: RecordLayout
    initial: GlobalModel
    apart: Message

    @classmethod
    def of(
        cls, settings: FederationSettings, method_settings: MethodSettings, arrays: ArrayRecord, rounds: int
    ) -> PlannedRun:
        layout = RecordLayout.of(arrays, settings.buffers)
        apart = layout.apart_to_message(layout.apart_of(arrays))
        return cls(settings, method_settings, rounds, layout, layout.model_of(arrays).kept(), apart)

    @cached_property
    def method_of_equals(self) -> Method:
        """The method for clients that all count alike: who opens, and whether it knows weights, is the same for others.

        How many samples there are is not known by then; where a delta follows from it, this one's is of very many.
        """
        return self.method(samples=_VERY_MANY)

    @property
    def counts_samples(self) -> bool:
        return self.settings.weighting == "samples" and not self.method_of_equals.weighs_all_alike

    @property
    def identity(self) -> dict[str, Any]:
        """What a run stays with, in JSON's types: settings but those of where and how it runs, and the method's own."""
        settings = plain_settings(self.settings)
        kept = {
            name: value
            for name, value in settings.items()
            if not name.startswith(("authority", *_OF_ONE_PROCESS))
        }
        own = plain_settings(self.method_settings.of(self.settings.method))
        return {**kept, "rounds": self.rounds, "the method's own settings": json.dumps(own, sort_keys=True)}

    def first_training(self) -> Message:
        """Return what a client needs to train from the first model, and to know what for, before anything is signed."""
        method, digest = self.method_of_equals, self.initial.digest
        preview = PublicSetup(method.name, method.own_settings, method.plan, digest, bytes(SESSION_BYTES))
        return Message({"planned": preview.to_bytes(), **self.initial.to_message(), **self.apart})

    def weights(self, samples: Sequence[int | None]) -> tuple[list[int], list[int]]:
        if not self.counts_samples:
            return [1] * self.settings.clients, []
        counted = [one for one in samples if one is not None]
        idle = [index for index, one in enumerate(counted) if one == 0]
        if len(idle) == len(counted):
            raise ParameterError("no client has any samples: there is nothing to train on")
        return [max(one, 1) for one in counted], idle

    def method(self, weights: Sequence[int] | None = None, samples: int | None = None) -> Method:
        settings, initial = self.settings, self.initial
        plan = FederationPlan.for_weights(
            weights,
            clients=settings.clients,
            rounds=self.rounds,
            min_clients=settings.min_clients,
            server_learning_rate=settings.server_learning_rate,
            parameters=initial.parameters.size,
            buffers=initial.buffers.size,
            layer_offsets=self.layout.layout.offsets,
            samples=samples,
            opener=settings.opener or "aggregator",
            max_clients=settings.max_clients,
            layout_digest=self.layout.digest(self.apart),
        )
        plan = replace(plan, mean_weight=max(plan.mean_weight, plan.most_weight / _MOST_SKEW))
        if settings.most_weight is not None and weights is not None and self.counts_samples:
            plan = replace(plan, most_weight=settings.most_weight)
        method = make_method(settings.method, self.method_settings, plan)
        if settings.opener is None and not method.aggregator_opens:
            method = make_method(settings.method, self.method_settings, replace(plan, opener=None))
        method.check_opener()
        if method.needs_shared_secret and not method.clients_open:
            raise ParameterError(
                f"clients of {method.name} share a secret, which they are granted where they open sums: leave "
                "shieldfl.opener out"
            )
        return method

    def same_method(self, method: Method, progress: Progress) -> Method:
        """Return a run's method as its settings make it: its set-up does not say what it has as a budget."""
        other = [name for name, given in self.identity.items() if progress.identity.get(name) != given]
        if other:
            raise PolicyError(
                f"the checkpoint is of a run that differs in {', '.join(other)}: "
                "a run goes on with the settings that it began with"
            )
        return make_method(method.name, self.method_settings, method.plan)


@dataclass(frozen=True)
class Progress:
    round: int
    session: bytes
    weights: list[int]
    layout: str
    is_embedded: bool
    """Whether the key authority is in the server's process."""
    identity: dict[str, Any]
    idle: list[int]
    metrics: dict[int, dict[str, dict[str, Any]]]
    clients: dict[int, Participant]
    events: dict[int, int]
    """By client, how many of its privacy events the account has."""
    format: Literal["shieldfl checkpoint 3"] = "shieldfl checkpoint 3"

    def to_bytes(self) -> bytes:
        return msgspec.msgpack.encode(self)

    @classmethod
    def kept_in(cls, checkpoint: RunFolder) -> tuple[Progress, Message]:
        if not checkpoint.is_begun:
            raise DataError(
                f"there is no checkpoint in {checkpoint.folder}: begin the run without shieldfl.resume"
            )
        message = checkpoint.read()
        try:
            # To the encoder a role's message is a dict, which it asks no hook for.
            progress = msgspec.msgpack.decode(
                message["progress"], type=cls, dec_hook=lambda kind, parts: kind(parts)
            )
        except msgspec.MsgspecError as error:
            raise WireFormatError("the checkpoint is of another version of shieldfl") from error
        return progress, message
