"""Who takes part in each round of ``distributed_noise_accuracy.py``, known before anything is trained."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shieldfl.lab.simulation.federation import EmbeddedFederation


class ExactDraws(EmbeddedFederation):
    """Draws as many clients for each round, of whom nothing is counted as hidden."""

    def draw(self, sample_rate: float, min_clients: int) -> list[int]:
        """Draw ``min_clients`` of the clients."""
        chosen = self._draws["sampling"].choice(len(self.clients), min_clients, replace=False)
        self.account.charge_draw(len(chosen))
        return sorted(int(index) for index in chosen)


@dataclass(frozen=True)
class Draws:
    """How clients are drawn: each with a probability, or exactly as many as shares of noise are sized for."""

    name: str
    """``each`` or ``exactly``."""
    min_clients: int
    """The fewest of a round, for whom shares of noise are sized."""
    clients: int = 1_000
    share: float = 0.1
    rounds: int = 100

    @property
    def federation(self) -> type[EmbeddedFederation]:
        """What draws so."""
        return ExactDraws if self.name == "exactly" else EmbeddedFederation

    @property
    def max_clients(self) -> int | None:
        """The most of a round; None for all that there are."""
        return self.min_clients if self.name == "exactly" else None

    def schedule(self, seed: int) -> list[np.ndarray]:
        """Return who takes part in each round, as :attr:`federation` draws them."""
        generator = np.random.default_rng([seed, self.clients])
        found: list[np.ndarray] = []
        while len(found) < self.rounds:
            if self.name == "exactly":
                chosen = np.zeros(self.clients, bool)
                chosen[generator.choice(self.clients, self.min_clients, replace=False)] = True
            else:
                chosen = generator.random(self.clients) < self.share
            if chosen.sum() >= self.min_clients:
                found.append(chosen)
        return found


DRAWS = {draws.name: draws for draws in (Draws("each", 90), Draws("exactly", 100))}
