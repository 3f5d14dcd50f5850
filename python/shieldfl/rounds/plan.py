"""What a federation is to do, settled before its first round, and the phases that a round goes through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta

from shieldfl.array_view import as_unsigned
from shieldfl.errors import ParameterError
from shieldfl.rounds.messages import OPENED
from shieldfl.settings import Count, Positive, Settings, about

__all__ = [
    "TELL_OPENED",
    "FederationPlan",
    "Opener",
    "Phase",
    "SyntheticDemand",
    "checked_weights",
    "stated_weights",
]


@dataclass(frozen=True)
class Phase:
    """One exchange of messages in a round."""

    name: str
    answered_by_authority: bool
    """Whether the aggregator's message goes to the key authority, whose answer the clients get."""
    opens: str | None = "update"
    """The purpose of the total that the answer comes of, where the authority answers; None where it opens none."""
    signs_answer: bool = True
    """Whether the authority then signs its answer, and nobody goes on with another one: not the last phase's, which is
    signed as the next round's model, and not where the method itself tells a true answer from others."""
    once: bool = False
    """Whether one total is opened in the whole run: what clients send in it would be the same in a later round, so that
    two sums, of which one lacks a client, would tell what that one sent."""


TELL_OPENED = Phase(OPENED, answered_by_authority=False, opens=None)
"""Behind a phase whose total clients open, where another one follows: they tell the aggregator what it has to know."""


@dataclass(frozen=True)
class SyntheticDemand:
    """What synthetic data set a method's rounds train on, if nobody brings one."""

    epsilon: float
    """What it may cost the real data."""
    delta: float
    samples: int | None
    """For all clients together; None for as many as there are real ones."""


_Size = Annotated[int, Meta(ge=1)]

Opener = Annotated[
    Literal["authority", "clients", "aggregator"] | None,
    about(
        "Who opens sums. authority: the key authority, which gets them. clients: each client, with the authority's "
        "answer to a list of participants; neither aggregator nor authority then sees an opened value. aggregator: it "
        "alone, with such answers; it has the model, and the authority signs one for all clients. None: clients where "
        "they enrol, else the authority."
    ),
]
"""Who opens sums."""


@dataclass(frozen=True)
class FederationPlan(Settings):
    """Sizes and policies that every role knows. Raises ParameterError where they contradict each other too."""

    clients: Count
    rounds: Count
    min_clients: Annotated[
        Count, about("Clients begin no round of fewer, and the key authority opens no total of fewer.")
    ]
    server_learning_rate: Annotated[Positive, about("1 is FedAvg.")]
    parameters: Annotated[_Size, about("Of the model.", symbol="P")]
    buffers: Annotated[
        int,
        Meta(ge=0),
        about("Float buffer values of the model, such as BatchNorm's statistics.", symbol="B"),
    ] = 0
    layer_offsets: Annotated[
        tuple[int, ...],
        about(
            "Where the model's parameter tensors begin in the flat vector, and where the last one ends; () for one "
            "layer."
        ),
    ] = ()
    most_weight: Annotated[
        int,
        Meta(ge=1, lt=2**32),
        about("The largest weight of a client, such as its number of samples."),
    ] = 1
    mean_weight: Annotated[float, Meta(ge=1.0), about("Of all clients.")] = 1.0
    samples: Annotated[
        _Size | None,
        about(
            "Of all clients together, where it is known: 1/N is the delta of what is private for each sample."
        ),
    ] = None

    layout_digest: Annotated[
        str,
        Meta(pattern="^([0-9a-f]{64})?$"),
        about(
            "Of where whoever trains finds the model's arrays in the flat vector: 64 hexadecimal digits, which all "
            "clients compare; empty where they know it otherwise."
        ),
    ] = ""

    opener: Opener = None
    max_clients: Annotated[
        Count | None,
        about(
            "No round is of more. Sums have room for so many: a smaller bound takes fewer bytes. None: all."
        ),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_clients > self.clients:
            raise ParameterError("min_clients must not be above the number of clients: no round could end")
        if self.max_clients is not None and not self.min_clients <= self.max_clients <= self.clients:
            raise ParameterError(
                f"max_clients must be from min_clients, {self.min_clients}, to the number of clients, {self.clients}, "
                f"got {self.max_clients}"
            )
        if self.mean_weight > self.most_weight:
            raise ParameterError("mean_weight must not be above most_weight, which is the largest")
        ends = (self.offsets[0], self.offsets[-1])
        if ends != (0, self.parameters) or list(self.offsets) != sorted(self.offsets):
            raise ParameterError(
                f"layer_offsets must ascend from 0 to the model's {self.parameters:,} parameters: take "
                "ParameterLayout.offsets"
            )

    @classmethod
    def for_weights(cls, weights: Sequence[int] | None, *, clients: int, **others: Any) -> FederationPlan:
        """Return the plan for clients of these weights, None for all alike; the other arguments are its fields.

        Raises ParameterError for another number of weights, or one that is no whole number from 1 to 2^32 - 1.
        """
        known = checked_weights(weights, clients)
        return cls(clients=clients, most_weight=max(known), mean_weight=sum(known) / len(known), **others)

    def client(self, number: int) -> int:
        """Return a client's number. Raises ParameterError for one that the plan does not have."""
        if as_unsigned(number, "client") >= self.clients:
            raise ParameterError(f"there is no client {number}: the plan has clients 0 to {self.clients - 1}")
        return int(number)

    def weight(self, weight: int) -> int:
        """Return a client's weight. Raises ParameterError for one that the plan does not have."""
        if not 1 <= as_unsigned(weight, "weight") <= self.most_weight:
            raise ParameterError(f"the plan has weights from 1 to {self.most_weight}")
        return int(weight)

    @property
    def most_participants(self) -> int:
        return self.clients if self.max_clients is None else self.max_clients

    @property
    def update_size(self) -> int:
        return self.parameters + self.buffers

    @property
    def offsets(self) -> tuple[int, ...]:
        return self.layer_offsets or (0, self.parameters)


def checked_weights(weights: Sequence[int] | None, clients: int) -> tuple[int, ...]:
    """Return a weight for each client, 1 where all count alike. Raises ParameterError as ``for_weights`` does."""
    count = as_unsigned(clients, "clients")
    known = (
        (1,) * max(count, 1) if weights is None else tuple(as_unsigned(one, "a weight") for one in weights)
    )
    if (weights is not None and len(known) != count) or not 1 <= min(known) <= max(known) < 2**32:
        raise ParameterError("give each client a weight of at least 1 that fits 32 bits")
    return known


def stated_weights(weights: Sequence[int]) -> str | list[int]:
    """Return weights for reports: ``"uniform"`` where all are 1."""
    return "uniform" if max(weights) == 1 else list(weights)
