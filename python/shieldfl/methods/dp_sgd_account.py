"""What rounds of DP-SGD have cost the clients of one federation."""

from __future__ import annotations

import math
from typing import Any

from shieldfl.errors import ParameterError
from shieldfl.methods.alt_fl_settings import AltFlSettings, DpSgdSettings
from shieldfl.methods.federation import Federation
from shieldfl.methods.method import GradientNoise, LocalUpdate, PrivateSteps
from shieldfl.privacy.dp_sgd_ledger import DpSgdLedger, check_sampled_steps
from shieldfl.privacy.events import DataRelease, Noise, PrivacyEvents, PrivacySpent

__all__ = ["DpSgdAccount"]


class DpSgdAccount:
    """Charges a client's steps when its update leaves; what was trained and never sent costs nothing.

    Parameters
    ----------
    settings : noise, clipping norm and delta.
    federation : knows N, of delta = 1/N.

    Raises ParameterError where neither says what delta is.
    """

    def __init__(self, settings: AltFlSettings | DpSgdSettings, federation: Federation) -> None:
        if settings.delta is None and federation.samples is None:
            raise ParameterError("delta is 1/N by default: say how many samples there are, or set delta")
        self.noise = GradientNoise(settings.noise_multiplier, settings.max_grad_norm)
        self.delta = settings.delta or 1 / max(federation.samples or 0, 2)
        self._clients = federation.clients
        self._ledger = DpSgdLedger(self.delta)

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

    def charge(self, client: int, done: PrivateSteps) -> None:
        """Charge a round of DP-SGD whose result this client sends."""
        self._ledger.charge(
            client,
            noise_multiplier=self.noise.noise_multiplier,
            sample_rate=done.sample_rate,
            steps=done.steps,
        )

    def charge_release(self, noise_multiplier: float, events: PrivacyEvents) -> None:
        """Charge every client for one release of something computed from the samples of all, and record it."""
        events.add(DataRelease(Noise(noise_multiplier, "sample")))
        for client in range(self._clients):
            self._ledger.charge(client, noise_multiplier=noise_multiplier, sample_rate=1.0, steps=1)

    def steps(self, client: int) -> int:
        """Return the steps and releases charged to a client so far."""
        return self._ledger.steps(client)

    def spent(self, rounds: int, events: PrivacyEvents) -> PrivacySpent:
        """Return what the run has spent after so many rounds; of the noise, the largest figure of all clients.

        Neighbours differ in one sample.
        """
        charged = self._ledger.spent()
        of_noise = charged.epsilon if charged.epsilon_by_client else math.nan
        return events.spent(of_noise, of_noise, self.delta, rounds)

    def settings(self) -> dict[str, Any]:
        """Return what was charged, as plain data for reports."""
        return {
            "delta": self.delta,
            "epsilon_of_what_was_charged": self._ledger.spent().epsilon,
            "most_steps_charged_to_a_client": max(map(self.steps, range(self._clients))),
        }
