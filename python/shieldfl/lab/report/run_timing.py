"""What a round costs, so that methods can be compared.

- Training is timed once for all methods that train alike: what differs between them is noise of the machine, and it
  would drown what protection costs.
- What happens once is not averaged in: making keys and clients, and what the first round takes beyond the later ones,
  such as scoring and agreeing on a mask.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import Any

from shieldfl.lab.simulation.results import MethodResult, RoundRecord


@dataclass(frozen=True)
class Timing:
    """One method's costs. Means over ``MethodResult.repeated_rounds``; seconds add up the clients."""

    trained_alike: tuple[str, ...]
    """The methods whose training was timed together with this one's, itself among them."""
    train_seconds: float
    """The median over ``trained_alike`` of a round's training."""
    stage_seconds: dict[str, float]
    """This method's own, of every stage but training."""
    protection_seconds: float
    """All that a round takes but for training; in a method without protection, plain averaging."""
    setup_seconds: float
    """Once: making keys and clients, and what the first round takes beyond the later ones, without training."""
    bytes_up: float
    bytes_down: float
    setup_bytes_up: float
    """Once: what the first round sends beyond the later ones."""
    setup_bytes_down: float
    first_round_apart: bool
    """Whether there were later rounds to tell the first from; else it is all that there is."""

    @property
    def other_seconds(self) -> float:
        """What no stage is charged for, such as messages on their way down."""
        return max(0.0, self.protection_seconds - sum(self.stage_seconds.values()))

    @property
    def round_seconds(self) -> float:
        """A whole round, with the training that was timed together."""
        return self.train_seconds + self.protection_seconds

    def to_json(self) -> dict[str, Any]:
        """Return plain types."""
        return asdict(self) | {"other_seconds": self.other_seconds, "round_seconds": self.round_seconds}


def compare_timings(methods: Sequence[MethodResult]) -> list[Timing]:
    """Return every method's costs; each must have a round."""
    alike: dict[str, list[MethodResult]] = {}
    for method in methods:
        alike.setdefault(method.training, []).append(method)
    return [_timing(method, alike[method.training]) for method in methods]


def _timing(method: MethodResult, alike: Sequence[MethodResult]) -> Timing:
    rounds = method.repeated_rounds
    first = method.rounds[0]
    stages = dict.fromkeys(stage for record in rounds for stage in record.stage_seconds if stage != "train")
    protection = fmean(map(_protection, rounds))
    up, down = fmean(record.bytes_up for record in rounds), fmean(record.bytes_down for record in rounds)
    alternates = method.alternates
    return Timing(
        trained_alike=tuple(other.method for other in alike),
        train_seconds=median(_mean_stage(other.repeated_rounds, "train") for other in alike),
        stage_seconds={stage: _mean_stage(rounds, stage) for stage in stages},
        protection_seconds=protection,
        setup_seconds=method.setup_seconds
        + (0.0 if alternates else max(0.0, _protection(first) - protection)),
        bytes_up=up,
        bytes_down=down,
        setup_bytes_up=0.0 if alternates else max(0.0, first.bytes_up - up),
        setup_bytes_down=0.0 if alternates else max(0.0, first.bytes_down - down),
        first_round_apart=alternates or len(method.rounds) > 1,
    )


def _protection(record: RoundRecord) -> float:
    return record.seconds - record.stage_seconds.get("train", 0.0)


def _mean_stage(rounds: Iterable[RoundRecord], stage: str) -> float:
    return fmean(record.stage_seconds.get(stage, 0.0) for record in rounds)
