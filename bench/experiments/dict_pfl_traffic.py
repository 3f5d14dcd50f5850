"""DictPFL's traffic at the shapes of large models, beside full encryption and FedML-HE's tenth, by drawn updates.

    python bench/experiments/dict_pfl_traffic.py [--rounds 10] [--clients 3] [--rank 4]

Updates are normal, with a deviation of each position's own that is log-normal: pruning finds the same positions small
in many rounds. Frames of ``dict-pfl`` are made and opened; bytes are up and down, a mean over the rounds. Those of full
encryption and of a tenth encrypted are computed: a model's values by bytes a value, and 4 bytes for those in the clear.
A model's first row trains only the tables of factorised weights, the second also its biases, norms and embeddings, as
the package does unless they are frozen. Models with more than 30 million trained values are not run.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

import shieldfl as sf
from shieldfl.cli.console import ResultConsole, result_table
from shieldfl.lab.simulation.federation import EmbeddedFederation
from shieldfl.learning.local_update import LocalUpdate, StageClock, StartingPoint
from shieldfl.methods.registry import MethodSettings, make_method
from shieldfl.rounds.plan import FederationPlan, GlobalModel

Shape = tuple[int, int]
"""Rows n and columns m of a weight: its table is r by m."""

VIT = [(2304, 768), (768, 768), (3072, 768), (768, 3072)] * 12 + [(768, 768), (1000, 768)]
BERT = [*[(768, 768)] * 4, (3072, 768), (768, 3072)] * 12 + [(768, 768)]
LLAMA = [*[(2048, 2048)] * 2, *[(256, 2048)] * 2, *[(5632, 2048)] * 2, (2048, 5632)] * 22 + [(32_000, 2048)]
MODELS: dict[str, tuple[list[Shape], int]] = {
    "ViT-B/16": (VIT, 86_567_656),
    "BERT-base": (BERT, 109_482_240),
    "TinyLlama": (LLAMA, 1_100_048_384),
}
"""Weights that are factorised, with the layers before and behind the blocks, and the number of all parameters."""


class Drawn:
    """A client whose updates are drawn."""

    def __init__(self, client: int, deviations: np.ndarray) -> None:
        self._draws, self._deviations = np.random.default_rng([1, client]), deviations
        self.clock = StageClock()
        self.kinds: set[str] = set()

    def train(self, start: StartingPoint, seed: int) -> tuple[LocalUpdate, float]:
        """Return a model that moved by a drawn update."""
        moved = self._draws.normal(size=self._deviations.size) * self._deviations
        return start.trained((start.parameters + moved).astype(np.float32), start.buffers), 0.0


def bytes_of(trained: int, clients: int, rounds: int) -> float:
    """Return a client's bytes of a round, both ways, with so many trained values."""
    plan = FederationPlan(clients, rounds, 2, 1.0, trained)
    method = make_method("dict-pfl", MethodSettings(), plan)
    deviations = np.exp(np.random.default_rng(0).normal(size=trained)) * 1e-3
    run = EmbeddedFederation(
        method,
        GlobalModel(np.zeros(trained, np.float32), np.zeros(0, np.float32)),
        [Drawn(client, deviations) for client in range(clients)],  # type: ignore[misc]
        0,
        shared_secret=bytes(32),
    )
    moved = [run.run_round(number, range(clients)) for number in range(1, rounds + 1)]
    return sum(one.bytes_up + one.bytes_down for one in moved) / clients / rounds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--rank", type=int, default=4)
    given = parser.parse_args()
    rows = []
    for name, (weights, values) in MODELS.items():
        of_value = sf.kahe.Parameters.plan(
            max_clients=given.clients, count=values, goal="size"
        ).bytes_per_value
        full = 2 * of_value * values
        tenth = 2 * (0.1 * of_value + 0.9 * 4) * values
        tables = sum(given.rank * m for _, m in weights)
        for what, trained in (("tables", tables), ("all", tables + values - sum(n * m for n, m in weights))):
            own = bytes_of(trained, given.clients, given.rounds) if trained < 3e7 else math.nan
            figures = (f"{own / 1e6:.2f}", f"{full / own:.0f}", f"{tenth / own:.0f}")
            rows.append([f"{name}, {what}", f"{trained:,}", *figures])
    heads = ("model", "trained values", "MB a round", "full / ours", "a tenth / ours")
    ResultConsole().print(result_table(heads, rows, words={"model"}))


if __name__ == "__main__":
    main()
