"""What of a run stays as it is once it has begun: its method, its public set-up, its key authority, its first model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from shieldfl.authority_service.authority_client import AuthorityConnection, RemoteAuthority
from shieldfl.authority_service.session_request import SessionRequest
from shieldfl.errors import ParameterError, PolicyError
from shieldfl.flower.checkpoint import Progress
from shieldfl.flower.federation_settings import FederationSettings
from shieldfl.flower.planned_run import PlannedRun
from shieldfl.flower.record_layout import RecordLayout
from shieldfl.methods.protocol.global_model import GlobalModel
from shieldfl.methods.protocol.method import Method
from shieldfl.methods.protocol.public_setup import PublicSetup
from shieldfl.methods.protocol.steps import AuthoritySteps
from shieldfl.methods.registry import make_method, method_of
from shieldfl.methods.settings import MethodSettings
from shieldfl.roles.message import Message
from shieldfl.settings import plain_settings

__all__ = ["BegunRun"]


@dataclass(frozen=True)
class BegunRun:
    """Made by :meth:`made`, or read again by :meth:`kept`."""

    method: Method
    setup: PublicSetup
    signed: Message
    """The set-up as clients get it."""
    authority: AuthoritySteps | None
    is_embedded: bool
    """Whether the key authority is in the server's process."""
    layout: RecordLayout
    initial: GlobalModel
    apart: Message
    """The arrays that stay as they are."""
    weights: list[int]
    idle: list[int]
    """Clients with no samples: they count for nothing, and so are in no round."""
    opener: str | None
    """As the settings had it, and so the weighting."""
    weighting: str
    buffers: str
    """As the settings had it: the layout was made by it."""
    method_settings: str
    """The method's own, as they were given, in JSON: with what it makes other settings of, such as a budget."""

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
        return cls(
            method,
            setup,
            signed,
            authority,
            not isinstance(authority, RemoteAuthority),
            planned.layout,
            initial,
            planned.apart,
            weights,
            idle,
            settings.opener,
            settings.weighting,
            settings.buffers,
            _text_of(planned.method_settings, settings.method),
        )

    @classmethod
    def kept(
        cls,
        settings: FederationSettings,
        method_settings: MethodSettings,
        connection: AuthorityConnection | None,
        rounds: int,
        progress: Progress,
        parts: Message,
        key: bytes,
    ) -> BegunRun:
        """Read what :meth:`parts` wrote, and go on with the session.

        Raises PolicyError for settings that the run did not begin with, ParameterError, UnreachableError.
        """
        signed = Message.from_bytes(parts["signed"])
        setup = PublicSetup.trusted(bytes(signed["setup"]))
        method = _same_method(method_of(setup), settings, method_settings, rounds, progress)
        first = Message.from_bytes(parts["initial"])
        initial = GlobalModel.from_message(first, setup.plan.parameters, setup.plan.buffers).kept()
        authority: AuthoritySteps | None = None
        if method.purposes and progress.is_embedded:
            authority = method.authority_steps(setup, initial, threads=settings.threads)
            authority.restore(parts["authority"], key)
        elif method.purposes:
            if connection is None:
                raise ParameterError(
                    "the run began with a key authority that is served: set shieldfl.authority"
                )
            authority = connection.session(bytes(parts["authority"]))
        layout, apart = RecordLayout.from_json(progress.layout), Message.from_bytes(parts["apart"])
        return cls(
            method,
            setup,
            signed,
            authority,
            progress.is_embedded,
            layout,
            initial,
            apart,
            progress.weights,
            progress.idle,
            progress.opener,
            progress.weighting,
            progress.buffers,
            progress.method_settings,
        )

    @property
    def counts_samples(self) -> bool:
        """Whether clients count by their numbers of samples."""
        return self.weighting == "samples" and not self.method.weighs_all_alike

    @property
    def weighted_by(self) -> str:
        """How much clients count, in words."""
        method = self.method
        if not self.counts_samples:
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
            "initial": self.initial.to_message().to_bytes(),
            "apart": self.apart.to_bytes(),
        }
        if isinstance(self.authority, RemoteAuthority):
            parts["authority"] = self.authority.session_id
        elif self.authority is not None:
            parts["authority"] = self.authority.state(key)
        return parts


def _same_method(
    method: Method,
    settings: FederationSettings,
    method_settings: MethodSettings,
    rounds: int,
    progress: Progress,
) -> Method:
    """Return a run's method as its settings make it: its set-up does not say what it has as a budget.

    Raises PolicyError for settings by which another run would have begun, and names them.
    """
    plan = method.plan
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
        same = make_method(method.name, method_settings, plan)
        given = _text_of(method_settings, method.name)
        if same.own_settings == method.own_settings and given == progress.method_settings:
            return same
        other = ["the method's own settings"]
    raise PolicyError(
        f"the checkpoint is of a run that differs in {', '.join(other)}: "
        "a run goes on with the settings that it began with"
    )


def _text_of(method_settings: MethodSettings, name: str) -> str:
    return json.dumps(plain_settings(method_settings.of(name)), sort_keys=True)
