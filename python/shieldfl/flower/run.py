"""What a run is to be, before any client is asked; what stays as it is once it has begun; how far it has come."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import msgspec
from flwr.app import ArrayRecord

from shieldfl.authority.message import Message
from shieldfl.authority.role_state import RunFolder
from shieldfl.authority.round_key_check import SESSION_BYTES
from shieldfl.authority_service.authority_client import AuthorityConnection, RemoteAuthority
from shieldfl.authority_service.session_request import SessionRequest
from shieldfl.errors import DataError, ParameterError, PolicyError, WireFormatError
from shieldfl.flower.record_layout import RecordLayout
from shieldfl.flower.settings import FederationSettings
from shieldfl.methods.registry import make_method, method_of
from shieldfl.methods.settings import MethodSettings
from shieldfl.rounds.global_model import GlobalModel
from shieldfl.rounds.method import Method
from shieldfl.rounds.plan import FederationPlan
from shieldfl.rounds.public_setup import PublicSetup
from shieldfl.rounds.steps import AuthoritySteps
from shieldfl.settings import plain_settings

_MOST_SKEW = 2.0
"""Of the largest weight and the mean: its binary logarithm is how many bits longer values get, at some percent of bytes
each. A larger skew costs the mean precision instead. A ``most-weight`` above all weights costs further bits."""

_VERY_MANY = 10**6


@dataclass(frozen=True)
class PlannedRun:
    """Made by :meth:`of`."""

    settings: FederationSettings
    method_settings: MethodSettings
    rounds: int
    layout: RecordLayout
    initial: GlobalModel
    apart: Message
    """The arrays that stay as they are."""

    @classmethod
    def of(
        cls,
        settings: FederationSettings,
        method_settings: MethodSettings,
        arrays: ArrayRecord,
        rounds: int,
    ) -> PlannedRun:
        """Plan a run from a first model. Raises ParameterError for one that cannot be protected."""
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
        """Whether clients count by their numbers of samples."""
        return self.settings.weighting == "samples" and not self.method_of_equals.weighs_all_alike

    @property
    def text_of_settings(self) -> str:
        """The method's own settings as they were given, in JSON: with what it makes others of, such as a budget."""
        return json.dumps(plain_settings(self.method_settings.of(self.settings.method)), sort_keys=True)

    def first_training(self) -> Message:
        """Return what a client needs to train from the first model, and to know what for, before anything is signed."""
        method = self.method_of_equals
        preview = PublicSetup(
            method.name, method.own_settings, method.plan, self.initial.digest, bytes(SESSION_BYTES)
        )
        return Message({"planned": preview.to_bytes(), **self.initial.to_message(), **self.apart})

    def method(self, weights: Sequence[int] | None = None, samples: int | None = None) -> Method:
        """Return the method for clients that count so much, None for all alike, and have so many samples together.

        Raises ParameterError for what does not fit together.
        """
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
        """Return a run's method as its settings make it: its set-up does not say what it has as a budget.

        Raises PolicyError for settings by which another run would have begun, and names them.
        """
        plan, settings, rounds = method.plan, self.settings, self.rounds
        pairs = {
            "method": (method.name, settings.method),
            "clients": (plan.clients, settings.clients),
            "min-clients": (plan.min_clients, settings.min_clients),
            "max-clients": (plan.max_clients, settings.max_clients),
            "opener": (progress.opener, settings.opener),
            "server-learning-rate": (plan.server_learning_rate, settings.server_learning_rate),
            "rounds": (plan.rounds, rounds),
            "weighting": (progress.weighting, settings.weighting),
            "buffers": (progress.buffers, settings.buffers),
        }
        if settings.most_weight is not None and settings.weighting == "samples":
            pairs["most-weight"] = plan.most_weight, settings.most_weight
        other = [name for name, (began, given) in pairs.items() if began != given]
        if not other:
            same = make_method(method.name, self.method_settings, plan)
            is_same = self.text_of_settings == progress.method_settings
            if is_same and same.own_settings == method.own_settings:
                return same
            other = ["the method's own settings"]
        raise PolicyError(
            f"the checkpoint is of a run that differs in {', '.join(other)}: "
            "a run goes on with the settings that it began with"
        )


@dataclass(frozen=True)
class Progress:
    """How far a run has come, as plain data."""

    round: int
    """The last that ended, or was given up."""
    session: bytes
    weights: list[int]
    layout: str
    is_embedded: bool
    """Whether the key authority is in the server's process."""
    weighting: str
    """As the settings had it, ``buffers`` and ``opener`` too."""
    buffers: str
    method_settings: str
    """The method's own, as they were given, in JSON."""
    opener: str | None = None
    idle: list[int] = field(default_factory=list)
    """Clients with no samples, which are in no round."""
    metrics: dict[int, dict[str, dict[str, Any]]] = field(default_factory=dict)
    """By round and kind, what the app's own strategy made of metrics."""
    ended: dict[int, int] = field(default_factory=dict)
    """By client, the round whose end it is not known to have."""
    nodes: dict[int, int] = field(default_factory=dict)
    """By client, which node it was."""
    positions: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By client, how far its store had come."""
    events: dict[int, int] = field(default_factory=dict)
    """By client, how many of its privacy events the account has."""
    format: Literal["shieldfl checkpoint 1"] = "shieldfl checkpoint 1"


class Checkpoint(RunFolder):
    """The folder of one run, which holds what the server holds."""

    @property
    def nodes(self) -> str:
        """Where the nodes of a simulation keep their stores."""
        return str(self.folder.absolute() / "nodes")

    def keep(self, progress: Progress, parts: Mapping[str, bytes]) -> None:
        """Write how far the run has come, and the roles' states, in one step. Raises DataError."""
        self.write(Message({"progress": msgspec.msgpack.encode(progress), **parts}))

    def kept(self) -> tuple[Progress, Message]:
        """Return what was kept last. Raises DataError for nothing, WireFormatError for what was altered."""
        if not self.is_begun:
            raise DataError(f"there is no checkpoint in {self.folder}: begin the run without shieldfl.resume")
        message = self.read()
        try:
            progress = msgspec.msgpack.decode(message["progress"], type=Progress)
        except msgspec.MsgspecError as error:
            raise WireFormatError("the checkpoint is of another version of shieldfl") from error
        return progress, message


@dataclass(frozen=True)
class BegunRun:
    """What stays as it is once a run has begun; made by :meth:`made`, or read again by :meth:`kept`."""

    planned: PlannedRun
    method: Method
    setup: PublicSetup
    signed: Message
    """The set-up as clients get it."""
    authority: AuthoritySteps | None
    weights: list[int]
    idle: list[int]
    """Clients with no samples: they count for nothing, and so are in no round."""

    @classmethod
    def made(
        cls,
        planned: PlannedRun,
        connection: AuthorityConnection | None,
        samples: Sequence[int | None],
    ) -> BegunRun:
        """Begin a session at the key authority.

        ``samples`` are the clients', None where one does not say. Raises ParameterError for what does not fit together,
        PolicyError for what the authority does not allow, UnreachableError.
        """
        settings, initial = planned.settings, planned.initial
        said = [one for one in samples if one is not None]
        weights, idle = [1] * settings.clients, []
        if planned.counts_samples:
            weights = [max(one, 1) for one in said]
            idle = [index for index, one in enumerate(said) if one == 0]
        if len(idle) == settings.clients:
            raise ParameterError("no client has any samples: there is nothing to train on")
        method = planned.method(weights, sum(said) if len(said) == len(samples) and all(said) else None)
        authority: AuthoritySteps | None
        if connection is not None and method.purposes:
            remote = connection.begin_session(SessionRequest(method, initial))
            setup, signed, authority = remote.setup, remote.signed_setup, remote
        else:
            authority, setup = method.authority_setup(initial, threads=settings.threads)
            signed = Message({"setup": setup.to_bytes()})
        return cls(planned, method, setup, signed, authority, weights, idle)

    @classmethod
    def kept(
        cls,
        planned: PlannedRun,
        connection: AuthorityConnection | None,
        progress: Progress,
        parts: Message,
        key: bytes,
    ) -> BegunRun:
        """Read what :meth:`parts` wrote, and go on with the session.

        Raises PolicyError for settings that the run did not begin with, ParameterError, UnreachableError.
        """
        signed = Message.from_bytes(parts["signed"])
        setup = PublicSetup.trusted(bytes(signed["setup"]))
        method, threads = planned.same_method(method_of(setup), progress), planned.settings.threads
        first = Message.from_bytes(parts["initial"])
        initial = GlobalModel.from_message(first, setup.plan.parameters, setup.plan.buffers).kept()
        authority: AuthoritySteps | None = None
        if method.purposes and progress.is_embedded:
            authority = method.authority_steps(setup, initial, threads=threads)
            authority.restore(parts["authority"], key)
        elif method.purposes:
            if connection is None:
                raise ParameterError(
                    "the run began with a key authority that is served: set shieldfl.authority"
                )
            authority = connection.session(bytes(parts["authority"]))
        layout, apart = RecordLayout.from_json(progress.layout), Message.from_bytes(parts["apart"])
        planned = replace(planned, layout=layout, initial=initial, apart=apart)
        return cls(planned, method, setup, signed, authority, progress.weights, progress.idle)

    @property
    def weighted_by(self) -> str:
        """How much clients count, in words."""
        method = self.method
        if not self.planned.counts_samples:
            why = (
                f"{method.name} knows no weights"
                if method.weighs_all_alike
                else "shieldfl.weighting is uniform"
            )
            return f"all clients count alike, since {why}"
        counted = [one for index, one in enumerate(self.weights) if index not in self.idle]
        words = f"clients count by their samples, {min(counted):,} to {max(counted):,}"
        bits = getattr(method.purposes.get("update"), "value_bits", 0)
        usual = method.own_settings.get("value_bits", bits)
        if bits > usual:
            words += f"; encrypted values have {bits} bits instead of {usual}, since these differ"
        if self.idle:
            who = ", ".join(map(str, self.idle))
            words += f"; clients without samples, which count for nothing, are in no round: {who}"
        return words

    def parts(self, key: bytes) -> dict[str, bytes]:
        """Return what it takes to go on, an embedded authority's state sealed under the key."""
        parts = {
            "signed": self.signed.to_bytes(),
            "initial": self.planned.initial.to_message().to_bytes(),
            "apart": self.planned.apart.to_bytes(),
        }
        if isinstance(self.authority, RemoteAuthority):
            parts["authority"] = self.authority.session_id
        elif self.authority is not None:
            parts["authority"] = self.authority.state(key)
        return parts
