"""Whether an epsilon that a method claims can be true: bounds from below, measured on the method as it runs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from shieldfl.audit.audit_config import AuditConfig
from shieldfl.audit.epsilon.bounds import EpsilonBound, Guesses, bound_from_one_run
from shieldfl.audit.epsilon.canary_federation import CanaryFederation, clipped_to
from shieldfl.audit.epsilon.config import EpsilonConfig
from shieldfl.audit.epsilon.guessing import SHARES, count_guesses
from shieldfl.errors import DisprovedError, ShieldError
from shieldfl.methods.discovery import checked_methods, method_class
from shieldfl.methods.settings import MethodSettings
from shieldfl.privacy.book import PrivacySpent
from shieldfl.settings import plain_settings, settings_of
from shieldfl.simulation.runner import describe_environment
from shieldfl.simulation.training_device import torch_threads

__all__ = ["ClaimedEpsilon", "EpsilonInterrupted", "EpsilonResult", "check_claims", "measure_epsilons"]

_DELTA = 1e-5
"""In the place of a delta of 1/N: with no other samples than canaries, that would be so large that nothing follows."""

Status = Literal["measured", "claims nothing", "not measured"]


@dataclass(frozen=True)
class ClaimedEpsilon:
    """What one method claims, and what was measured."""

    method: str
    status: Status
    reason: str = ""
    """Why nothing was measured; empty where something was."""
    unit: str | None = None
    adversary: str | None = None
    """Against whom the claim is. The aggregator, for whom it is measured, is always among these; where it reads nothing
    it is measured for one of the clients, who is."""
    neighbours: str | None = None
    canaries: int = 0
    federations: int = 0
    guesses: tuple[Guesses, ...] = ()
    """Of which the best counts; the chance to be wrong is shared out among them."""
    bound: EpsilonBound | None = None
    """With the claim, unit, delta and confidence; None where nothing was measured."""

    @property
    def is_disproved(self) -> bool:
        """Whether what was measured is above the claim."""
        return self.bound is not None and self.bound.contradicts_claim

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self) | {"is_disproved": self.is_disproved}


@dataclass
class EpsilonResult:
    """Every method's claim, and what it was measured on."""

    federation: dict[str, Any]
    measurement: dict[str, Any]
    environment: dict[str, Any]
    claims: list[ClaimedEpsilon] = field(default_factory=list)
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "federation": self.federation,
            "measurement": self.measurement,
            "environment": self.environment,
            "seconds": self.seconds,
            "claims": [claim.to_json() for claim in self.claims],
        }


def check_claims(result: EpsilonResult) -> None:
    """Raise DisprovedError where a claim is below what was measured, with the method and its figures."""
    told = [
        f"{claim.method} claims epsilon {bound.claimed:.2f} at delta {bound.delta:g} for each {bound.unit}, and at "
        f"least {bound.at_least:.2f} was measured at {bound.confidence:.0%} confidence"
        for claim in result.claims
        if (bound := claim.bound) is not None and claim.is_disproved
    ]
    if told:
        raise DisprovedError("; ".join(told))


class EpsilonInterrupted(KeyboardInterrupt):
    """Ctrl-C during a measurement: what had ended by then is in ``result``, the other methods are not measured."""

    def __init__(self, result: EpsilonResult) -> None:
        super().__init__("the measurement was interrupted")
        self.result = result


def measure_epsilons(
    audit: AuditConfig,
    config: EpsilonConfig,
    methods: Sequence[str],
    settings: MethodSettings | None = None,
    on_federation: Callable[[str, int], None] = lambda method, number: None,
) -> EpsilonResult:
    """Run each method on canaries and bound its epsilon from below, beside what its own account claims.

    Parameters
    ----------
    audit : clients, rounds, seed and threads of a federation, and the time for all; its data set and model are not
        used.
    config : of the measurement.
    methods : by name.
    settings : of the methods; None for their defaults. A delta of None, 1/N, becomes 1e-5.
    on_federation : told, before it begins, of each federation: method and number.

    A method that claims nothing, or whose claim cannot be measured so, comes with the reason, and that never means that
    it holds. Each bound is wrong with a chance of 5 % at most. Raises ParameterError for unknown methods, and
    EpsilonInterrupted.
    """
    names = checked_methods(methods)
    settings = settings or MethodSettings()
    federation = {name: getattr(audit, name) for name in ("clients", "min_clients", "rounds", "opener")}
    measurement = asdict(config) | {"seed": audit.seed}
    result = EpsilonResult(federation, measurement, describe_environment())
    began = time.monotonic()
    ends = began + 60 * audit.budget_minutes
    try:
        with torch_threads(audit.threads or 1):
            for name in names:
                result.claims.append(_claim(name, settings, audit, config, on_federation, ends))
    except KeyboardInterrupt as error:
        # Of a method that is cut off amid its federations nothing is told: fewer canaries would give another bound.
        ended = {claim.method for claim in result.claims}
        why = "the measurement was interrupted before it had ended"
        result.claims += [ClaimedEpsilon(name, "not measured", why) for name in names if name not in ended]
        result.seconds = time.monotonic() - began
        raise EpsilonInterrupted(result) from error
    result.seconds = time.monotonic() - began
    return result


def _claim(
    name: str,
    settings: MethodSettings,
    audit: AuditConfig,
    config: EpsilonConfig,
    on_federation: Callable[[str, int], None],
    ends: float,
) -> ClaimedEpsilon:
    try:
        return _measured(name, _with_delta(name, settings), audit, config, on_federation, ends)
    except ShieldError as error:
        return ClaimedEpsilon(name, "not measured", f"the federation stopped: {error}")


def _with_delta(name: str, settings: MethodSettings) -> MethodSettings:
    entry = settings.of(name)
    has_none = entry is not None and "delta" in settings_of(type(entry)) and entry.delta is None
    return settings.changed(name, {"delta": _DELTA}) if has_none else settings


def _measured(
    name: str,
    settings: MethodSettings,
    audit: AuditConfig,
    config: EpsilonConfig,
    on_federation: Callable[[str, int], None],
    ends: float,
) -> ClaimedEpsilon:
    reading = method_class(name).reading_with(settings.of(name))
    claim = ClaimedEpsilon(name, "not measured", unit=reading.unit, neighbours=reading.neighbours)
    if reading.unit is None:
        return replace(claim, status="claims nothing", reason="epsilon is infinite: it adds no noise")
    if clipped_to(plain_settings(settings.of(name))) is None:
        # Before anything runs: keys alone may take a minute.
        return replace(claim, reason="it states no norm that updates are clipped to, so that no canary fits")
    included: list[NDArray[np.bool_]] = []
    evidence: list[list[NDArray[np.float64]]] = []
    claimed, delta, left = 0.0, _DELTA, config.canaries
    while left > 0 and time.monotonic() < ends:
        on_federation(name, len(included))
        federation = CanaryFederation(name, settings, audit, config, left, len(included))
        left -= len(federation.included)
        spent = federation.spent
        claim = replace(claim, adversary=federation.method.adversary)
        if (reason := _nothing_claimed(spent)) is not None:
            return replace(claim, status="claims nothing", reason=reason)
        found = federation.evidence()
        if not any(map(np.any, found)):
            why = (
                "no number of a client's update came to the aggregator in a message, and no model to a client"
            )
            return replace(claim, reason=why)
        included.append(federation.included)
        evidence.append(found)
        claimed, delta = max(claimed, spent.epsilon), spent.delta
    if not included:
        return replace(claim, reason="the time was over before its first federation")
    together = np.concatenate(included)
    # Each way to tell is guessed by with every share; which of them there are does not depend on the coins.
    guesses = [
        guessed
        for one in map(np.concatenate, zip(*evidence, strict=True))
        for guessed in count_guesses(one, together, SHARES)
    ]
    unit = cast(Literal["sample", "client"], reading.unit)
    bound = bound_from_one_run(len(together), guesses, delta=delta, unit=unit, claimed=claimed)
    return replace(
        claim,
        status="measured",
        canaries=len(together),
        federations=len(included),
        guesses=tuple(guesses),
        bound=bound,
    )


def _nothing_claimed(spent: PrivacySpent) -> str | None:
    if math.isfinite(spent.epsilon):
        return None
    if spent.reason is None:
        return "there is no epsilon: nothing that had noise has left a client"
    return f"epsilon is infinite: {spent.reason.removeprefix('ε is ∞ because ')}"
