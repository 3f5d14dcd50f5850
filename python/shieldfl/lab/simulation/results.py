"""What a run measured, round by round, method by method: plain data, for tables, plots and machines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from statistics import fmean, median
from typing import Any

import msgspec

from shieldfl.array_view import as_count
from shieldfl.errors import DataError, ParameterError

STAGES = ("train", "score", "negotiate", "encrypt", "upload", "aggregate", "open", "merge")
"""Stages that a round's seconds are split into, in order. Client stages are sums over the clients."""
ZONES = ("encrypted", "personalised", "noise", "clear")
"""Keys of ``RoundRecord.zone_shares``, most protected first."""


@dataclass(frozen=True)
class RoundRecord:
    round: int
    """Number of the round, from 1."""
    participants: int
    dropped: int
    """Number of clients that began the round and left it.

    If ``participants`` is 0, the round was given up and the model stayed.
    """
    loss: float
    """Mean loss in the last local epoch, over the clients that trained."""
    accuracy: float
    """Accuracy of the global model on the test set, in [0, 1]; NaN if the task is measured otherwise.

    It is a mean over the clients if clusters have their own models or buffers stay with the clients.
    """
    personalised_accuracy: float
    """Mean accuracy of the measured clients' merged models on the test set, in [0, 1].

    It equals ``accuracy`` without personalisation.
    """
    zone_shares: dict[str, float]
    """Share of the parameters in each of :data:`ZONES`, summing to 1.

    It is a mean over the clients that sent values. ``noise`` is sent with noise added, ``clear`` is sent as
    it is, ``personalised`` is not sent.
    """
    stage_seconds: dict[str, float]
    bytes_up: float
    bytes_down: float
    epsilon: float
    """Epsilon spent so far: infinite if nothing bounds what was shown, NaN if all of it is encrypted."""
    epsilon_of_noise: float
    """Epsilon that the noise alone was charged so far, whatever else was shown; NaN without noise.

    Where noise of K clients adds up, it counts a single client's noise, of multiplier sigma: in
    SelectiveShield the paper's eq. 22.
    """
    epsilon_if_participants_true: float
    """As ``epsilon_of_noise``, with multiplier sigma * sqrt(K) for the K participants that the server stated.

    It holds only if K was true. It equals ``epsilon_of_noise`` where the method has one figure.
    """
    seconds: float
    """Wall-clock seconds of the round, without evaluation.

    What runs once for all clients, or in parallel, such as opening a total, counts for each client.
    """
    matched_accuracy: float = math.nan
    """Mean accuracy of clients' merged models, each on test data of its client's label distribution.

    NaN if targets are not classes, the task is measured otherwise, or the test set lacks a class of a client.
    """
    metrics: dict[str, float] = field(default_factory=dict)
    """Further figures of the global model on the test set, under the user's names."""
    personalised_metrics: dict[str, float] = field(default_factory=dict)
    epsilon_if_participation_hidden: float = math.nan
    """Epsilon spent so far against those alone who see global models and how many clients take part.

    They do not see which clients take part. It is NaN where nothing is proved of that.
    """

    def measured(self, name: str) -> float:
        return self.accuracy if name == "accuracy" else self.metrics.get(name, math.nan)

    def measured_by_clients(self, name: str) -> float:
        if name == "accuracy":
            return self.personalised_accuracy
        return self.personalised_metrics.get(name, math.nan)

    @property
    def protection_seconds(self) -> float:
        return self.seconds - self.stage_seconds.get("train", 0.0)


def has_own_figures(rounds: Sequence[RoundRecord], name: str) -> bool:
    """Return whether, in any round, the mean over clients' own models is not the global model's figure."""
    of_all = [record.measured(name) for record in rounds]
    # A mean of equal numbers may differ from them in its last digits.
    near = 1e-9 * max(map(abs, of_all), default=0.0)
    return not all(
        abs(one - two) <= near or math.isnan(one) >= math.isnan(two) > 0
        for one, two in zip(of_all, (record.measured_by_clients(name) for record in rounds), strict=True)
    )


@dataclass(frozen=True)
class MethodResult:
    method: str
    settings: dict[str, Any]
    parameters: int
    """Number of trained parameters: fewer than the model has if the method freezes or factorises layers."""
    delta: float
    rounds: list[RoundRecord] = field(default_factory=list)
    seconds: float = 0.0
    """Wall-clock seconds of all rounds, without evaluation and set-up."""
    notes: list[str] = field(default_factory=list)
    """Notes that a reader needs: first what epsilon counts, then others such as a fallback."""
    averaging_window: int = 10
    privacy_unit: str | None = None
    """Unit whose contribution epsilon hides, ``"client"`` or ``"sample"``; None if no setting adds noise."""
    privacy_adversary: str | None = None
    privacy_neighbours: str | None = None
    """The two neighbouring runs that the proof compares, in words; None if no setting adds noise."""
    aggregator_sees: str = ""
    readable_parts: list[str] = field(default_factory=list)
    """Names of what became readable without noise besides values of updates, such as a mask."""

    training: str = ""
    """How the method trains; methods with the same text train alike, so their training is timed together."""
    alternates: bool = False
    """Whether kinds of rounds alternate, so that the first round is like some of the later ones."""
    scheme: str | None = None
    """Encryption scheme of updates, with its packing; None for a method without keys."""
    opened_by: str = "nobody"
    setup_seconds: float = 0.0
    """Wall-clock seconds until the first round: making the model, keys and clients."""

    @property
    def last(self) -> RoundRecord:
        return self.rounds[-1]

    @property
    def best_accuracy(self) -> float:
        """The largest accuracy of a round, in [0, 1]; NaN if a round has NaN."""
        accuracies = [record.accuracy for record in self.rounds]
        return math.nan if any(map(math.isnan, accuracies)) else max(accuracies)

    @property
    def repeated_rounds(self) -> list[RoundRecord]:
        """All rounds but the first, which also sets up; all rounds if kinds alternate or there is one."""
        return self.rounds if self.alternates or len(self.rounds) == 1 else self.rounds[1:]

    @property
    def converged_in_round(self) -> int | None:
        """The round by which accuracy stopped growing by Alt-FL's rule; None if not, or without accuracy."""
        accuracies = [record.accuracy for record in self.rounds]
        return None if any(map(math.isnan, accuracies)) else converged_at(accuracies, self.averaging_window)

    @property
    def hidden_share(self) -> float:
        """The encrypted share of all values that were sent; NaN if none were."""
        encrypted, noised, clear = map(self.zone_share, ("encrypted", "noise", "clear"))
        sent = encrypted + noised + clear
        return encrypted / sent if sent > 0.0 else math.nan

    def zone_share(self, zone: str) -> float:
        return fmean(record.zone_shares.get(zone, 0.0) for record in self.rounds)

    def stage_seconds(self, stage: str) -> float:
        return fmean(record.stage_seconds.get(stage, 0.0) for record in self.repeated_rounds)


def averaging_window(ratio: Fraction | None) -> int:
    """Return the number of rounds that the accuracy is averaged over to tell convergence.

    8 for Alt-FL's interleaving ratios 1/4 and 3/4, 10 for all others and for methods that do not interleave
    (None). For the paper's ratios this is a whole number of periods, so that both kinds of rounds weigh alike
    in every average.
    """
    return 8 if ratio in (Fraction(1, 4), Fraction(3, 4)) else 10


_LEAST_GAIN = 0.001
_PATIENCE_ROUNDS = 10


def converged_at(accuracies: Sequence[float], window: int = 10) -> int | None:
    """Return the first round, from 1, that ends 10 consecutive gains below 0.1 %; None if there is none yet.

    Source: Alt-FL, section VII: a moving average of the accuracy over ``window`` rounds, and convergence once
    its improvement stays below 0.1 % for 10 rounds. The paper does not say what the improvement is measured
    against. Here it is the average one round before, and 0.1 % are 0.001 of an accuracy that is a share of 1.
    An accuracy that falls does not improve, and counts too.

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


@dataclass(frozen=True)
class Timing:
    """One method's costs. Means over ``MethodResult.repeated_rounds``; seconds add up the clients.

    Training is timed once for all methods that train alike: differences between them are noise of the
    machine, which would hide the cost of protection. One-time work, such as making keys, is left out of the
    means.
    """

    trained_alike: tuple[str, ...]
    train_seconds: float
    """Seconds of training in a round, the median over ``trained_alike``."""
    stage_seconds: dict[str, float]
    protection_seconds: float
    """Seconds of a round without training; in a method without protection, of plain averaging."""
    setup_seconds: float
    """Seconds of making keys and clients, and of the first round beyond later ones, without training."""
    bytes_up: float
    bytes_down: float
    setup_bytes_up: float
    setup_bytes_down: float
    first_round_apart: bool
    """Whether there are later rounds; if not, means are of the first round with its one-time costs."""
    other_seconds: float
    """Seconds of a round that no stage is charged for, such as messages on their way down."""
    round_seconds: float
    """Seconds of a whole round, with ``train_seconds`` for its training."""


def compare_timings(methods: Sequence[MethodResult]) -> list[Timing]:
    alike: dict[str, list[MethodResult]] = {}
    for method in methods:
        alike.setdefault(method.training, []).append(method)
    timings = []
    for method in methods:
        same = alike[method.training]
        rounds, first = method.repeated_rounds, method.rounds[0]
        train = median(other.stage_seconds("train") for other in same)
        names = dict.fromkeys(
            stage for record in rounds for stage in record.stage_seconds if stage != "train"
        )
        stages = {stage: method.stage_seconds(stage) for stage in names}
        costs = {
            name: fmean(getattr(record, name) for record in rounds)
            for name in ("protection_seconds", "bytes_up", "bytes_down")
        }
        once = {
            name: 0.0 if method.alternates else max(0.0, getattr(first, name) - mean)
            for name, mean in costs.items()
        }
        timing = Timing(
            trained_alike=tuple(other.method for other in same),
            train_seconds=train,
            stage_seconds=stages,
            setup_seconds=method.setup_seconds + once["protection_seconds"],
            setup_bytes_up=once["bytes_up"],
            setup_bytes_down=once["bytes_down"],
            first_round_apart=method.alternates or len(method.rounds) > 1,
            other_seconds=max(0.0, costs["protection_seconds"] - sum(stages.values())),
            round_seconds=train + costs["protection_seconds"],
            **costs,
        )
        timings.append(timing)
    return timings


NO_RUN = "this is no run: give what `shieldfl run --json FILE` wrote, read by json"
"""Message about a file that is not a run's JSON."""


@dataclass(frozen=True)
class Interruption:
    """Where a run was stopped from outside, or ended by an error."""

    method: str
    round: int
    """Round that was under way or just finished; 0 if an error came before the method's first round."""
    not_begun: tuple[str, ...]
    error: str | None = None

    def __str__(self) -> str:
        where = f"in round {self.round} of" if self.round else "before the first round of"
        later = f", before {', '.join(self.not_begun)}" if self.not_begun else ""
        return f"{'interrupted' if self.error is None else 'failed'} {where} {self.method}{later}"


@dataclass(frozen=True)
class RunResult:
    dataset: str
    model: str
    config: dict[str, Any]
    environment: dict[str, Any]
    parameters: int
    methods: list[MethodResult] = field(default_factory=list)
    metrics: tuple[str, ...] = ("accuracy",)
    """Names of what models are measured by; the first one is shown where there is room for one figure."""
    interrupted: Interruption | None = None
    """Where the run was stopped; some methods then have fewer rounds, or are missing. None if it ended."""
    audit: dict[str, Any] | None = None
    """Result of attacks on federations of the same methods, as ``AuditResult.to_json`` returns it."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types: an undefined number becomes None, an infinite one the text ``"Infinity"``.

        JSON has neither; Python's ``float`` and JavaScript's ``Number`` read that text as infinity. Each
        method has its ``timing``, see :class:`Timing`; for this each must have a round.
        """
        cleaned: dict[str, Any] = plain_json(asdict(self))
        timings = compare_timings(self.methods)
        for entry, method, timing in zip(cleaned["methods"], self.methods, timings, strict=True):
            entry["hidden_share"] = plain_json(method.hidden_share)
            entry["timing"] = plain_json(asdict(timing))
        return cleaned

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> RunResult:
        """Return what :meth:`to_json` wrote. Raises DataError for anything else."""
        try:
            methods = [
                one | {name: _number(one[name]) for name in ("delta", "rounds")} for one in facts["methods"]
            ]
            return msgspec.convert({**facts, "methods": methods}, cls)
        except (AttributeError, KeyError, TypeError, ValueError, msgspec.ValidationError) as error:
            raise DataError(NO_RUN) from error


def _number(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _number(one) for name, one in value.items()}
    if isinstance(value, list):
        return list(map(_number, value))
    return math.nan if value is None else float(value) if isinstance(value, str) else value


@dataclass(frozen=True)
class EndedRuns:
    result: RunResult
    """Result of the seed that ran: each method has at least one round, and ``interrupted`` is set."""
    earlier: tuple[RunResult, ...] = ()


class RunInterrupted(KeyboardInterrupt):
    """Ctrl-C while methods ran: ``ended``, or ``result`` and ``earlier``, has what was finished by then."""

    def __init__(self, ended: EndedRuns) -> None:
        super().__init__(str(ended.result.interrupted))
        self.ended = ended
        self.result, self.earlier = ended.result, ended.earlier


def plain_json(value: Any) -> Any:
    """Return None for an undefined number, ``"Infinity"`` for infinity."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else f"{'-' * (value < 0.0)}Infinity"
    if isinstance(value, dict):
        return {str(key): plain_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_json(item) for item in value]
    return value
