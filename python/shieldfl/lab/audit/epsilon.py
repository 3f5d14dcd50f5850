"""Whether an epsilon that a method claims can be true: lower bounds, measured on the method as it runs.

An (epsilon, delta)-private mechanism bounds how often guesses about single members can be right. Guesses that
were right more often disprove so small an epsilon, with a stated confidence. Guesses that were not right more
often prove nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, takewhile
from typing import Any, Literal, cast

import numpy as np
import torch
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import binom
from torch import Tensor, nn

from shieldfl.array_view import FloatVector
from shieldfl.errors import DisprovedError, ParameterError, PolicyError, ShieldError
from shieldfl.lab.audit.attack import AuditInterrupted, OnFederation
from shieldfl.lab.audit.audit_config import AuditConfig, EpsilonConfig
from shieldfl.lab.audit.views.observed_update import Flags, Floats
from shieldfl.lab.audit.views.view import KnownChange, RecordedFederation, View, party_named, planned
from shieldfl.lab.simulation.federation import torch_threads
from shieldfl.lab.simulation.runner import describe_environment
from shieldfl.learning.local_trainer import LocalTrainer, Objective
from shieldfl.learning.local_update import LocalUpdate, StartingPoint
from shieldfl.methods.registry import MethodSettings, checked_methods, method_class
from shieldfl.models.torch_bridge import flatten, flatten_buffers
from shieldfl.rounds.plan import GlobalModel
from shieldfl.settings import TrainingSettings, plain_settings

_LARGEST = 64.0
"""Largest epsilon that is tried; guesses are then never wrong, to the last digit of a float64."""


@dataclass(frozen=True)
class EpsilonBound:
    at_least: float
    """The mechanism is not (epsilon, delta)-private for any smaller epsilon; 0 disproves nothing."""
    delta: float
    confidence: float
    """Confidence of ``at_least``: it exceeds a mechanism's epsilon in at most 1 - confidence of audits."""
    unit: Literal["sample", "client"]
    source: str
    claimed: float | None = None
    """Epsilon that the mechanism's accountant claims for the same unit and delta; None without a claim."""

    @property
    def contradicts_claim(self) -> bool:
        return self.claimed is not None and self.at_least > self.claimed


@dataclass(frozen=True)
class Guesses:
    made: int
    right: int


def bound_from_one_run(
    canaries: int,
    guesses: Sequence[Guesses],
    *,
    delta: float,
    unit: Literal["sample", "client"],
    confidence: float = 0.95,
    claimed: float | None = None,
) -> EpsilonBound:
    """Bound epsilon by guesses about canaries that a coin put in or left out.

    Source: Steinke, Nasr and Jagielski 2023, "Privacy auditing with one (1) training run", corollary 5.4.
    Canaries of independent runs may be counted together, since each was in one run alone. ``canaries`` counts
    all of them, also those without a guess. Of several ``guesses`` the best counts: the chance to be wrong is
    split evenly among them.
    """
    error = (1 - confidence) / len(guesses)

    def excess(epsilon: float, guessed: Guesses) -> float:
        return one_run_p_value(canaries, guessed, epsilon, delta) - error

    disproved = [
        float(brentq(excess, 0.0, _LARGEST, args=(guessed,), xtol=1e-6))
        for guessed in guesses
        if excess(0.0, guessed) < 0 < excess(_LARGEST, guessed)
    ]
    source = "Steinke, Nasr and Jagielski 2023, corollary 5.4"
    return EpsilonBound(max(disproved, default=0.0), delta, confidence, unit, source, claimed)


def one_run_p_value(canaries: int, guesses: Guesses, epsilon: float, delta: float) -> float:
    """Bound the chance, in [0, 1], of so many right guesses if the mechanism is (epsilon, delta)-private."""
    made, right = guesses.made, guesses.right
    accuracy = expit(epsilon)  # of randomised response, which is the best that there is at delta = 0
    p_value = binom.sf(right - 1, made, accuracy)
    if delta > 0 and right > 0:
        fewer = np.arange(1, right + 1)
        between = np.cumsum(binom.pmf(right - fewer, made, accuracy))
        p_value += 2 * canaries * delta * (between / fewer).max()
    return float(min(p_value, 1.0))


SHARES = (0.02, 0.1, 0.5, 1.0)
"""Shares of the canaries to guess: few where a mechanism reveals little, all where it reveals all."""


def count_guesses(evidence: Floats, included: Flags, shares: Sequence[float] = SHARES) -> list[Guesses]:
    """Guess a share of the canaries, for each of several shares, and count the right guesses.

    ``evidence`` (m,) is positive where presence is likelier than absence. The canaries with the strongest
    evidence are guessed, by its sign. Shares, in (0, 1], are settled before the run.

    Source: Steinke, Nasr and Jagielski 2023, "Privacy auditing with one (1) training run", algorithm 1.
    """
    strongest = np.argsort(-np.abs(evidence), kind="stable")
    right = ((evidence > 0) == included)[strongest]
    counts = [max(1, round(share * len(evidence))) for share in shares]
    return [Guesses(count, int(right[:count].sum())) for count in counts]


_TARGET = 100.0
"""Target of a canary's output, in clipping norms: so far off that every round clips its gradient."""
_MOVED = 1.0
"""Unclipped change of the client's model by a canary sample; schemes encrypt changes up to 8."""
_WITNESSES = 2000
"""Samples of the witness for all canaries together; more of them show a canary's effect more clearly."""
_MOST_SAMPLES = 1000
"""Most canaries of a federation whose canaries are samples; its model has one parameter for each."""


def clipped_to(settings: Mapping[str, Any]) -> float | None:
    """Return the norm that a method with these settings clips to, gradients in DP-SGD; None without one."""
    names = ("clip_norm", "max_grad_norm", "sum_clip_norm")
    return next((float(settings[name]) for name in names if name in settings), None)


def _squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    return 0.5 * (outputs - targets).square().mean()


class _CanaryClient(LocalTrainer):
    """A client that is a canary: training moves the model by the same change (P,), from any start."""

    def __init__(self, model: nn.Module, change: FloatVector) -> None:
        super().__init__(model, torch.zeros(1, change.size), torch.zeros(1, 1), TrainingSettings())
        self._change = change

    def train(self, start: StartingPoint, seed: int) -> tuple[LocalUpdate, float]:
        scores = None if start.scores is None else np.zeros_like(self._change)
        return start.trained(start.parameters + self._change, start.buffers, scores), 0.0


_Samples = tuple[Tensor, Tensor]
"""Features (N, P) and targets (N, 1), both float32."""


def _trainer(
    model: nn.Module, own: _Samples, batches: int, step: float, synthetic: _Samples | None
) -> LocalTrainer:
    size = math.ceil(len(own[0]) / batches)
    settings = TrainingSettings(local_epochs=1, batch_size=size, learning_rate=step * size, momentum=0.0)
    return LocalTrainer(model, *own, settings, synthetic, Objective(loss=_squared_error))


class CanaryFederation:
    """A federation of one method, run on canaries, with the messages of all its roles recorded.

    Canaries are samples or clients, as is the unit of the method's claim. A coin keeps each or zeroes it out,
    as the claim's neighbours differ. A canary's contribution is above the norm that the method clips to, and
    alone at its position. Its data stay the same in every round.

    If canaries are samples, one client has none of them: the witness. Everybody knows its samples, which have
    a gradient only where the model has moved at a canary's position. Its messages show by how much sums have
    moved the model. So do messages of rounds on synthetic data, which are of the same kind: public, and not
    released by anybody. If canaries are clients, there is no witness. Sums are then measured on the models
    that all clients get, if nothing but ciphertexts leaves a client.

    A federation has as many of the ``wanted`` canaries as fit; its ``number`` decides its coins. The method
    must state a norm that it clips to. Raises as making a method and its roles does.
    """

    def __init__(
        self,
        name: str,
        settings: MethodSettings,
        audit: AuditConfig,
        config: EpsilonConfig,
        wanted: int,
        number: int,
    ) -> None:
        self._audit, self._config = audit, config
        coins = np.random.default_rng([audit.seed, number, 11])
        first = planned(name, settings, audit, rounds=audit.rounds, parameters=audit.clients, samples=1)
        self._has_witness = first.privacy_reading.unit == "sample"
        owners = audit.clients - self._has_witness
        count = min(wanted, _MOST_SAMPLES if self._has_witness else owners)
        self.included: Flags = coins.random(count) < 0.5
        # Canaries go to clients in turn; a canary that is a client is its own owner.
        self._owners = np.arange(count) % owners
        parameters = max(count, audit.clients)
        samples = count + _WITNESSES if self._has_witness else audit.clients
        self.method = planned(
            name, settings, audit, rounds=audit.rounds, parameters=parameters, samples=samples
        )
        if self.method.own_settings.get("synthetic_share"):
            raise ParameterError(
                f"{name} also trains on synthetic samples, for which canaries cannot be measured: set "
                "synthetic_share to 0"
            )
        self._norm = cast(float, clipped_to(self.method.own_settings))
        model = nn.Linear(parameters, 1, bias=False)
        nn.init.zeros_(model.weight)
        initial, trainers = GlobalModel(flatten(model), flatten_buffers(model)), list(self._trainers(model))
        federation = RecordedFederation(
            self.method, initial, trainers, audit.seed + number, threads=audit.threads or 1
        )
        for round_number in range(1, audit.rounds + 1):
            try:
                drawn = federation.draw(config.sample_rate, audit.min_clients)
            except PolicyError:  # a target epsilon is reached: its claim is for the rounds before
                break
            federation.run_round(round_number, drawn, audit.min_clients)
        self.account, self._record = federation.account, federation.record

    def _trainers(self, model: nn.Linear) -> Iterator[LocalTrainer]:
        canaries = np.eye(len(self.included), model.in_features, dtype=np.float32) * self.included[:, None]
        if not self._has_witness:
            blank = np.zeros((self._audit.clients - len(canaries), model.in_features), dtype=np.float32)
            for change in np.concatenate([canaries * np.float32(2.0 * self._norm), blank]):
                yield _CanaryClient(model, change)
            return
        target, steps = _TARGET * self._norm, self._config.steps
        synthetic = self._witness(model.in_features, 1) if self.method.synthetic_demand is not None else None
        for client in range(self._audit.clients - 1):
            own = torch.from_numpy(canaries[self._owners == client])
            # A client that no canary is left for has one sample without any effect.
            own = own if len(own) else torch.zeros(1, model.in_features)
            data = own, torch.full((len(own), 1), target)
            yield _trainer(model, data, steps, _MOVED / target, synthetic)
        shown = self._witness(model.in_features, max(1, _WITNESSES // len(canaries)))
        yield _trainer(model, shown, steps, _MOVED / target, synthetic)

    def _witness(self, parameters: int, of_each: int) -> _Samples:
        """Return samples whose gradient is twice the clipping norm if a sum moved the model by a canary."""
        moved = _MOVED / self._audit.clients
        one = torch.eye(len(self.included), parameters) * math.sqrt(2.0 * self._norm / moved)
        features = one.repeat(of_each, 1)
        return features, torch.zeros(len(features), 1)

    def evidence(self) -> list[Floats]:
        """Return, (m,) each, what the aggregator's messages tell of every canary's presence.

        The first is from the canary's own client; if canaries are samples, the second is from the witness. If
        canaries are clients that send ciphertexts alone, the evidence is what another client can tell from
        models. It is positive where presence is likelier, 0 where no number came.
        """
        if self._has_witness:
            return [self._of_owners(), self._of_witness()]
        return [self._of_sums() if self.method.hides_all else self._of_owners()]

    def _of_owners(self) -> Floats:
        # What an included canary adds to one message, after clipping.
        added = _MOVED / _TARGET if self._has_witness else self._norm
        evidence: Floats = np.zeros(len(self.included))
        for client in range(self._audit.clients - self._has_witness):
            positions = np.flatnonzero(self._owners == client)
            for seen in self._messages_of(client):
                if self._record.disclosures[client, seen.round].synthetic:
                    continue  # its own data make no difference
                there = seen.change[positions].astype(np.float64) / added
                evidence[positions] += np.where(seen.known[positions], there - 0.5, 0.0)
        return evidence

    def _of_sums(self) -> Floats:
        evidence: Floats = np.zeros(len(self.included))
        for canary in range(len(self.included)):
            for seen in View(self._record, self.method, party_named("client"), canary).changes():
                # The change is a mean over the others, of whom this one alone moves its position.
                there = float(seen.change[canary]) * len(seen.clients) / self._norm
                evidence[canary] += there - 0.5 if seen.known[canary] else 0.0
        return evidence

    def _of_witness(self) -> Floats:
        total: Floats = np.zeros(len(self.included))
        for seen in self._messages_of(self._audit.clients - 1):
            total -= seen.change[: total.size]
        # Half of the canaries are in, so that the median lies between those in and those out.
        return np.asarray(total - np.median(total))

    def _messages_of(self, client: int) -> Iterator[KnownChange]:
        view = View(self._record, self.method, party_named("aggregator"), client)
        return takewhile(lambda known: known.source == "message", view.changes())


_DELTA = 1e-5
"""Delta instead of 1/N, which is so large without samples besides canaries that no bound follows."""

Status = Literal["measured", "claims nothing", "not measured"]


@dataclass(frozen=True)
class ClaimedEpsilon:
    method: str
    status: Status
    reason: str = ""
    unit: str | None = None
    adversary: str | None = None
    """Adversary that the claim holds against; None before a federation has run, or without a claim.

    The aggregator, for whom epsilon is measured, is always part of it. Where the aggregator reads nothing,
    epsilon is measured for one of the clients, who is part of it too.
    """
    neighbours: str | None = None
    canaries: int = 0
    federations: int = 0
    guesses: tuple[Guesses, ...] = ()
    """Guesses by each evidence and share of canaries; the best counts, and all split the error chance."""
    bound: EpsilonBound | None = None
    """Measured bound with the claim, unit, delta and confidence; None if nothing was measured."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"is_disproved": self.bound is not None and self.bound.contradicts_claim}


@dataclass
class EpsilonResult:
    federation: dict[str, Any]
    measurement: dict[str, Any]
    environment: dict[str, Any]
    claims: list[ClaimedEpsilon] = field(default_factory=list)
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return vars(self) | {"claims": [claim.to_json() for claim in self.claims]}


def check_claims(result: EpsilonResult) -> None:
    """Raise DisprovedError if a claim is below its measured bound, with the method and its figures."""
    told = [
        f"{claim.method} claims epsilon {bound.claimed:.2f} at delta {bound.delta:g} for each {bound.unit}, "
        f"and at least {bound.at_least:.2f} was measured at {bound.confidence:.0%} confidence"
        for claim in result.claims
        if (bound := claim.bound) is not None and bound.contradicts_claim
    ]
    if told:
        raise DisprovedError("; ".join(told))


def measure_epsilons(
    audit: AuditConfig,
    config: EpsilonConfig,
    methods: Sequence[str],
    settings: MethodSettings,
    on_federation: OnFederation = lambda method, number: None,
) -> EpsilonResult:
    """Run each method on canaries and bound its epsilon from below, beside what its own account claims.

    ``audit`` gives the numbers of clients and rounds, seed, threads, and the time for all methods; its data
    set and model are not used. A delta of None, 1/N, becomes 1e-5. ``on_federation`` is called before each
    federation with its method and number.

    A method without a claim, or with a claim that cannot be measured so, has the reason instead; that never
    means that a claim holds. Each bound is wrong with a chance of 5 % at most. Raises ParameterError for
    unknown methods, AuditInterrupted.
    """
    names = checked_methods(methods)
    federation = {name: getattr(audit, name) for name in ("clients", "min_clients", "rounds", "opener")}
    measurement = asdict(config) | {"seed": audit.seed}
    result = EpsilonResult(federation, measurement, describe_environment())
    began = time.monotonic()
    ends = began + 60 * audit.budget_minutes
    try:
        with torch_threads(audit.threads or 1):
            for name in names:
                given = settings
                if getattr(settings.of(name), "delta", _DELTA) is None:
                    given = settings.changed(name, {"delta": _DELTA})
                try:
                    claim = _measured(name, given, audit, config, on_federation, ends)
                except ShieldError as error:
                    claim = ClaimedEpsilon(name, "not measured", f"the federation stopped: {error}")
                result.claims.append(claim)
    except KeyboardInterrupt as error:
        # A method that is cut off has no result: fewer canaries would give another bound.
        why = "the measurement was interrupted before it had ended"
        left = names[len(result.claims) :]
        result.claims += [ClaimedEpsilon(name, "not measured", why) for name in left]
        raise AuditInterrupted("measurement", result) from error
    finally:
        result.seconds = time.monotonic() - began
    return result


def _measured(
    name: str,
    settings: MethodSettings,
    audit: AuditConfig,
    config: EpsilonConfig,
    on_federation: OnFederation,
    ends: float,
) -> ClaimedEpsilon:
    reading = method_class(name).reading_with(settings.of(name))
    claim = ClaimedEpsilon(name, "not measured", unit=reading.unit, neighbours=reading.neighbours)
    if reading.unit is None:
        return replace(claim, status="claims nothing", reason="epsilon is infinite: it adds no noise")
    if clipped_to(plain_settings(settings.of(name))) is None:
        # Before anything runs: keys alone may take a minute.
        return replace(claim, reason="it states no norm that updates are clipped to, so that no canary fits")
    included: list[Flags] = []
    evidence: list[list[Floats]] = []
    claimed, delta, left = 0.0, _DELTA, config.canaries
    while left > 0 and time.monotonic() < ends:
        on_federation(name, len(included))
        federation = CanaryFederation(name, settings, audit, config, left, len(included))
        left -= len(federation.included)
        spent = federation.account.spent()
        claim = replace(claim, adversary=federation.method.adversary)
        if not math.isfinite(spent.epsilon):
            why = spent.reason or "there is no epsilon: nothing that had noise has left a client"
            reason = why.replace("ε is ∞ because", "epsilon is infinite:")
            return replace(claim, status="claims nothing", reason=reason)
        found = federation.evidence()
        if not any(map(np.any, found)):
            why = "the aggregator received no value of an update, and no client received a model"
            return replace(claim, reason=why)
        included.append(federation.included)
        evidence.append(found)
        claimed, delta = max(claimed, spent.epsilon), spent.delta
    if not included:
        return replace(claim, reason="the time was over before its first federation")
    together = np.concatenate(included)
    # Each evidence is guessed by with every share; the number of guesses does not depend on the coins.
    every = map(np.concatenate, zip(*evidence, strict=True))
    guesses = list(chain.from_iterable(count_guesses(one, together) for one in every))
    unit = cast(Literal["sample", "client"], reading.unit)
    bound = bound_from_one_run(len(together), guesses, delta=delta, unit=unit, claimed=claimed)
    claim = replace(claim, canaries=len(together), federations=len(included), bound=bound)
    return replace(claim, status="measured", guesses=tuple(guesses))
