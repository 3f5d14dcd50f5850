"""DP-SGD in rounds of one federation: what is asked of training, and what rounds of it have cost the clients."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from shieldfl.errors import ParameterError
from shieldfl.methods.noised_average.settings import DpSgdSettings
from shieldfl.methods.protocol.account import Account
from shieldfl.methods.protocol.local_update import GradientNoise, LocalUpdate, PrivateSteps
from shieldfl.methods.protocol.plan import FederationPlan
from shieldfl.methods.protocol.reports import Report
from shieldfl.privacy.dp_sgd_ledger import DpSgdLedger, check_sampled_steps
from shieldfl.privacy.events import Noise, SampledSteps

__all__ = ["DpSgdAccount", "DpSgdRounds"]


@dataclass(frozen=True)
class DpSgdRounds:
    """What rounds of DP-SGD ask of clients."""

    noise: GradientNoise
    delta: float
    """What their epsilon belongs to."""

    @classmethod
    def of(cls, settings: DpSgdSettings, plan: FederationPlan) -> DpSgdRounds:
        """Read settings; delta is 1/N by default. Raises ParameterError where N is not known."""
        if settings.delta is None and plan.samples is None:
            raise ParameterError("delta is 1/N by default: say how many samples there are, or set delta")
        noise = GradientNoise(settings.noise_multiplier, settings.max_grad_norm)
        return cls(noise, settings.delta or 1 / max(plan.samples or 0, 2))

    @property
    def added_noise(self) -> Noise | None:
        """What values of a round of DP-SGD have; None without noise."""
        multiplier = self.noise.noise_multiplier
        return Noise(multiplier, "sample") if multiplier > 0.0 else None

    def check_steps(self, update: LocalUpdate) -> PrivateSteps:
        """Return what training did. Raises ParameterError where it was no DP-SGD, or none that there can be."""
        done = update.private_steps
        if done is None:
            raise ParameterError(
                "this round trains by DP-SGD: pass what it did as LocalUpdate.private_steps, see StartingPoint.noise"
            )
        check_sampled_steps(done.sample_rate, done.steps)
        return done

    def event(self, round_number: int, client: int, done: PrivateSteps) -> SampledSteps:
        """Return the record of a round of DP-SGD whose result this client sends."""
        return SampledSteps(round_number, client, self.noise.noise_multiplier, done.sample_rate, done.steps)


class DpSgdAccount(Account):
    """Charges a client's steps when its update has left; what was trained and never sent costs nothing.

    Parameters
    ----------
    notes, delta : as for :class:`Account`.
    clients : how many there are.
    """

    def __init__(self, notes: Iterable[str], delta: float, clients: int) -> None:
        super().__init__(notes, delta)
        self._clients = clients
        self._ledger = DpSgdLedger(delta)

    def take(self, report: Report) -> None:
        """Add what a role tells, and charge its client's steps."""
        super().take(report)
        for event in report.events:
            if isinstance(event, SampledSteps):
                self._ledger.charge(
                    event.client,
                    noise_multiplier=event.noise_multiplier,
                    sample_rate=event.sample_rate,
                    steps=event.steps,
                )

    def charge_release(self, noise_multiplier: float) -> None:
        """Charge every client for one release of something computed from the samples of all."""
        super().charge_release(noise_multiplier)
        for client in range(self._clients):
            self._ledger.charge(client, noise_multiplier=noise_multiplier, sample_rate=1.0, steps=1)

    def steps(self, client: int) -> int:
        """Return the steps and releases charged to a client so far."""
        return self._ledger.steps(client)

    def _of_noise(self) -> tuple[float, float]:
        """Return the largest figure of all clients. Neighbours differ in one sample."""
        charged = self._ledger.spent()
        of_noise = charged.epsilon if charged.epsilon_by_client else math.nan
        return of_noise, of_noise

    def settings(self) -> dict[str, Any]:
        """Return what was charged, as plain data for reports."""
        return {
            "delta": self.delta,
            "epsilon_of_what_was_charged": self._ledger.spent().epsilon,
            "most_steps_charged_to_a_client": max(map(self.steps, range(self._clients))),
        }
