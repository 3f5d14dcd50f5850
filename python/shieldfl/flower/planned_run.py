"""What a run is to be, before any client is asked: its method under the plan that settings and first model make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from flwr.app import ArrayRecord

from shieldfl.errors import ParameterError
from shieldfl.flower.federation_settings import FederationSettings
from shieldfl.flower.record_layout import RecordLayout
from shieldfl.methods.protocol.global_model import GlobalModel
from shieldfl.methods.protocol.method import Method
from shieldfl.methods.protocol.plan import FederationPlan
from shieldfl.methods.protocol.public_setup import PublicSetup
from shieldfl.methods.registry import make_method
from shieldfl.methods.settings import MethodSettings
from shieldfl.roles.message import Message
from shieldfl.roles.round_key_check import SESSION_BYTES

__all__ = ["PlannedRun"]


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
