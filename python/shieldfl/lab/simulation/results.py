"""What one method's rounds measured: plain data, for tables, plots and machines."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from statistics import fmean
from typing import Any

from shieldfl.array_view import as_count
from shieldfl.errors import ParameterError

STAGES = ("train", "score", "negotiate", "encrypt", "upload", "aggregate", "open", "merge")
"""What a round's seconds are split into, in the order of a round. Client stages are sums over the clients."""


@dataclass(frozen=True)
class RoundRecord:
    """One round of one method."""

    round: int
    """From 1."""
    participants: int
    """Clients that went through the whole round."""
    dropped: int
    """Clients that began the round and left it. Where ``participants`` is 0 it was given up: the model stayed."""
    loss: float
    """Mean over the clients that trained of their loss in the last local epoch."""
    accuracy: float
    """The global model on the test set, in [0, 1]; where clusters have their own models, a mean over the clients.

    NaN where the task is measured by something else.
    """
    personalised_accuracy: float
    """Mean over all clients of their merged models on the test set; equals ``accuracy`` without personalisation."""
    zone_shares: dict[str, float]
    """Share of the parameters that is ``encrypted``, ``personalised``, ``noise`` and ``clear``, summing to 1.

    A mean over the clients that went through the whole round: zones differ between them. ``noise`` is what is sent with
    noise added, ``clear`` what is sent as it is; what is not sent is ``personalised``.
    """
    stage_seconds: dict[str, float]
    """Seconds for each of :data:`STAGES`."""
    bytes_up: float
    """Mean over the clients that began the round of all bytes that they sent."""
    bytes_down: float
    """Mean over the clients that began the round of all bytes that they received."""
    epsilon: float
    """Spent so far; infinite where nothing bounds what was shown, NaN where all that was shown is encrypted."""
    epsilon_of_noise: float
    """What the noise alone was charged so far, whatever else was shown; NaN without noise.

    Where noise of K clients counts together, this is with a single one's, of multiplier sigma: in SelectiveShield the
    paper's eq. 22.
    """
    epsilon_if_participants_true: float
    """The same with multiplier sigma * sqrt(K), which holds only if the number K of participants that the server stated
    was true; equal to ``epsilon_of_noise`` where the method has one figure."""
    seconds: float
    """Wall-clock time, evaluation excluded; a total that clients open counts for each, though it is opened once."""
    matched_accuracy: float = math.nan
    """Mean over all clients of their merged models on test data of each one's own label distribution.

    NaN where targets are no classes, or the test set lacks one.
    """
    metrics: dict[str, float] = field(default_factory=dict)
    """What else the global model was measured by on the test set, under the user's names."""
    personalised_metrics: dict[str, float] = field(default_factory=dict)
    """The same as a mean over all clients of their merged models."""
    epsilon_if_participation_hidden: float = math.nan
    """Spent so far against those alone who see global models and how many clients take part, and not which; NaN where
    nothing is proved of that."""

    def measured(self, name: str) -> float:
        """Return the accuracy, or another metric, of the global model; NaN for one that was not measured."""
        return self.accuracy if name == "accuracy" else self.metrics.get(name, math.nan)

    def measured_by_clients(self, name: str) -> float:
        """Return the same for the clients' merged models."""
        if name == "accuracy":
            return self.personalised_accuracy
        return self.personalised_metrics.get(name, math.nan)


@dataclass(frozen=True)
class MethodResult:
    """One method over all rounds."""

    method: str
    settings: dict[str, Any]
    parameters: int
    """How many parameters it trains: fewer than the model has where it freezes or factorises layers."""
    delta: float
    rounds: list[RoundRecord] = field(default_factory=list)
    seconds: float = 0.0
    """Wall-clock time of all rounds, evaluation and set-up excluded."""
    notes: list[str] = field(default_factory=list)
    """What a reader must know to read the figures right, such as a fallback that was taken."""
    averaging_window: int = 10
    """Rounds that the accuracy is averaged over to say when it has converged."""
    privacy_unit: str | None = None
    """Whose contribution epsilon hides, ``"client"`` or ``"sample"``; None where no setting of the method adds noise.

    What is counted and what is not is in the first of ``notes``.
    """
    privacy_adversary: str | None = None
    """Against whom a finite epsilon holds."""
    privacy_neighbours: str | None = None
    """Between which two runs: the relation that is proved."""
    aggregator_sees: str = ""
    """What the aggregator can read, in words."""
    readable_parts: list[str] = field(default_factory=list)
    """What became readable without noise beside values of updates, such as a mask."""

    training: str = ""
    """How it trains: methods in which this is the same train alike, so that their training can be timed together."""
    alternates: bool = False
    """Whether kinds of rounds alternate, so that the first is like some of the later ones."""
    scheme: str | None = None
    """By which updates are encrypted, with its packing; None for a method without keys."""
    opened_by: str = "nobody"
    """Who opens sums, in words."""
    setup_seconds: float = 0.0
    """Wall-clock time until the first round: making the model, keys and clients."""

    @property
    def last(self) -> RoundRecord:
        """The last round."""
        return self.rounds[-1]

    @property
    def best_accuracy(self) -> float:
        """That of the round in which it was largest, in [0, 1]; NaN where one is."""
        accuracies = [record.accuracy for record in self.rounds]
        return math.nan if any(map(math.isnan, accuracies)) else max(accuracies)

    @property
    def repeated_rounds(self) -> list[RoundRecord]:
        """The rounds that stand for all: all but the first, which also sets up.

        All, where kinds of rounds alternate, since the first is one of them, or where there is but one.
        """
        return self.rounds if self.alternates or len(self.rounds) == 1 else self.rounds[1:]

    @property
    def converged_in_round(self) -> int | None:
        """The round by which the accuracy had stopped to grow, by Alt-FL's rule; None if it has not, or for none."""
        accuracies = [record.accuracy for record in self.rounds]
        return None if any(map(math.isnan, accuracies)) else converged_at(accuracies, self.averaging_window)

    @property
    def converged_round(self) -> float:
        """:attr:`converged_in_round` as a number: NaN for a run that has not converged."""
        return math.nan if self.converged_in_round is None else float(self.converged_in_round)

    @property
    def bytes_to_convergence(self) -> float:
        """All bytes that a client sent and received until the run had converged; NaN where it has not."""
        return self._until_converged(lambda record: record.bytes_up + record.bytes_down)

    @property
    def seconds_to_convergence(self) -> float:
        """Seconds of all rounds until the run had converged, evaluation excluded; NaN where it has not."""
        return self._until_converged(lambda record: record.seconds)

    def _until_converged(self, figure: Callable[[RoundRecord], float]) -> float:
        until = self.converged_in_round
        return math.nan if until is None else sum(map(figure, self.rounds[:until]))

    @property
    def hidden_share(self) -> float:
        """The share that was encrypted of all parameters' values that were sent; NaN where none were.

        What was sent with noise, and updates from synthetic data, are not hidden.
        """
        encrypted, noised, clear = (
            sum(record.zone_shares.get(zone, 0.0) for record in self.rounds)
            for zone in ("encrypted", "noise", "clear")
        )
        sent = encrypted + noised + clear
        return encrypted / sent if sent > 0.0 else math.nan

    def mean_stage_seconds(self) -> dict[str, float]:
        """Seconds a round for each stage, a mean over the rounds after the first, which also sets up."""
        return {
            stage: fmean(record.stage_seconds.get(stage, 0.0) for record in self.repeated_rounds)
            for stage in STAGES
        }


def averaging_window(ratio: Fraction | None) -> int:
    """Return the rounds that the accuracy is averaged over to say when it has converged.

    8 for Alt-FL's interleaving ratios 1/4 and 3/4, 10 for all others and for methods that do not interleave (None): for
    the paper's ratios a whole number of periods, so that both kinds of rounds weigh alike in every average.
    """
    return 8 if ratio in (Fraction(1, 4), Fraction(3, 4)) else 10


_LEAST_GAIN = 0.001
_PATIENCE_ROUNDS = 10


def converged_at(accuracies: Sequence[float], window: int = 10) -> int | None:
    """Return the first round, from 1, that ends 10 consecutive gains below 0.1 %; None if there is none yet.

    Source: Alt-FL, section VII: a moving average of the accuracy over ``window`` rounds, and convergence once its
    improvement stays below 0.1 % for 10 rounds. The paper does not say what the improvement is measured against. Here
    it is the average one round before, and 0.1 % are 0.001 of an accuracy that is a share of 1. An accuracy that falls
    does not improve, and counts too.

    Raises ParameterError for an accuracy that is NaN or outside [0, 1], or a window below 1.
    """
    window = as_count(window, "window")
    if not all(0.0 <= accuracy <= 1.0 for accuracy in accuracies):
        raise ParameterError("accuracies must be shares in [0, 1]")
    quiet_rounds = 0
    for index in range(window, len(accuracies)):
        # Two averages one round apart share all but the newest and the oldest value.
        gain = (accuracies[index] - accuracies[index - window]) / window
        quiet_rounds = quiet_rounds + 1 if gain < _LEAST_GAIN else 0
        if quiet_rounds == _PATIENCE_ROUNDS:
            return index + 1
    return None
