"""What fixed point leaves of fine-tuning's small updates: the error of an encrypted mean of four kinds of them.

    SHIELDFL_DATA=... python bench/experiments/fine_tuning_precision.py --json precision.json

A CNN of 527,902 parameters is trained for a while on one part of MNIST; then eight clients with 120 to 900 other
samples train one pass each from there, with AdamW at 1e-5 and SGD at 1e-3 and 1e-4, and are averaged with weights n /
50,000: divided by the largest number of samples that a client could possibly have. The fourth case needs no training:
normal updates of deviation 1e-6, all clients alike. Errors are relative, in the L2 norm, against the mean in float64.
Each case runs with default parameters and with those that ``Parameters.fit`` chooses from an update on public data:
300 samples that no client has.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import shieldfl as sf
from shieldfl.lab.simulation.data import Dataset, load_dataset
from shieldfl.models.torch_bridge import flatten, load_flat

SAMPLES = (120, 180, 250, 330, 420, 550, 700, 900)
"""Of the clients."""
MOST_SAMPLES = 50_000
"""That any client could have: what users divide weights by."""
PUBLIC_SAMPLES = 300
"""For the update that a scale is fitted to."""
BATCH_SIZE = 32

Updates = list[NDArray[np.float32]]


@dataclass(frozen=True)
class Row:
    """What came of one case with some parameters."""

    case: str
    relative_error: float
    warnings: int
    underflowed: float
    """The share of the values that are not zero and quantise to zero."""
    value_bits: int
    fraction_bits: int
    bytes_per_value: float
    rms: float
    log2_magnitude: tuple[float, float]
    """Mean and deviation of log2 |value| where a value is not zero."""
    zeros: float


def build_cnn(seed: int) -> nn.Module:
    """Make a convolutional network of 527,902 parameters for images of 28 x 28."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(1600, 316), nn.ReLU(), nn.Linear(316, 10),
    )  # fmt: skip


def train_pass(
    model: nn.Module, optimizer: torch.optim.Optimizer, dataset: Dataset, samples: NDArray[np.int64]
) -> None:
    """Train one pass over these samples."""
    for some in torch.from_numpy(samples).split(BATCH_SIZE):
        optimizer.zero_grad()
        images = dataset.train_features[some].reshape(-1, 1, 28, 28)
        nn.functional.cross_entropy(model(images), torch.as_tensor(dataset.train_labels)[some]).backward()
        optimizer.step()


def fine_tune(
    initial: nn.Module,
    make: Callable[[nn.Module], torch.optim.Optimizer],
    dataset: Dataset,
    parts: list[NDArray[np.int64]],
) -> Updates:
    """Return each client's update after one pass from the same model."""
    start = flatten(initial).copy()
    model = build_cnn(0)
    updates = []
    for part in parts:
        load_flat(model, start)
        train_pass(model, make(model), dataset, part)
        updates.append((flatten(model) - start).astype(np.float32))
    return updates


def trained_cases(dataset: Dataset, pretraining: int, seed: int) -> dict[str, Updates]:
    """Pre-train, then fine-tune in three ways. The last update of each is on public data."""
    order = np.random.default_rng(seed).permutation(len(dataset.train_labels))
    model = build_cnn(seed)
    train_pass(model, torch.optim.AdamW(model.parameters(), 1e-3), dataset, order[:pretraining])
    sizes = (*SAMPLES, PUBLIC_SAMPLES)
    parts = np.split(order[pretraining : pretraining + sum(sizes)], np.cumsum(sizes)[:-1])
    return {
        "AdamW 1e-5": fine_tune(model, lambda m: torch.optim.AdamW(m.parameters(), 1e-5), dataset, parts),
        "SGD 1e-3": fine_tune(model, lambda m: torch.optim.SGD(m.parameters(), 1e-3), dataset, parts),
        "SGD 1e-4": fine_tune(model, lambda m: torch.optim.SGD(m.parameters(), 1e-4), dataset, parts),
    }


def normal_updates(size: int, seed: int) -> Updates:
    """Return updates of deviation 1e-6, and one more for the scale."""
    rng = np.random.default_rng(seed)
    return [rng.normal(0.0, 1e-6, size).astype(np.float32) for _ in (*SAMPLES, PUBLIC_SAMPLES)]


def measure(case: str, parameters: sf.ckks.Parameters, updates: Updates, weights: list[float] | None) -> Row:
    """Average under encryption."""
    authority = sf.KeyAuthority(parameters, min_clients=3, weight_bounds=(2.0**-10, 1.0))
    encryptor = sf.ckks.Encryptor(authority.public_key)
    aggregator = sf.ckks.Aggregator(authority.public_key)
    underflowed = 0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for number, update in enumerate(updates):
            batch = encryptor.encrypt(update, weight=None if weights is None else weights[number])
            underflowed += batch.underflowed or 0
            aggregator.add(batch)
    opened = authority.open_mean(aggregator.total())
    exact = np.average(np.stack(updates).astype(np.float64), axis=0, weights=weights)
    values = np.concatenate(updates).astype(np.float64)
    log2 = np.log2(np.abs(values[values != 0]))
    return Row(
        case=case,
        relative_error=float(np.linalg.norm(opened - exact) / np.linalg.norm(exact)),
        warnings=len(caught),
        underflowed=underflowed / np.count_nonzero(values),
        value_bits=parameters.value_bits,
        fraction_bits=parameters.fraction_bits,
        bytes_per_value=parameters.bytes_per_value,
        rms=float(np.sqrt(np.mean(values**2))),
        log2_magnitude=(float(log2.mean()), float(log2.std())),
        zeros=1.0 - np.count_nonzero(values) / values.size,
    )


def measure_both(case: str, updates: Updates, weights: list[float] | None) -> list[Row]:
    """Average with default parameters, and with those that are fitted to the last update, which no client sends."""
    *sent, public = updates
    clients = len(sent)
    bounds = None if weights is None else (min(weights), max(weights))
    fitted = sf.ckks.Parameters.fit(public, max_clients=clients, weights=bounds, goal="size")
    default = sf.ckks.Parameters.plan(max_clients=clients, goal="size")
    return [
        measure(f"{case}, default", default, sent, weights),
        measure(f"{case}, fit", fitted, sent, weights),
    ]


def main() -> None:
    """Train, average and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data-dir", help="the folder with mnist in it (default: the variable SHIELDFL_DATA)"
    )
    parser.add_argument("--pretraining", type=int, default=3_000, help="samples to train on first")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dataset = load_dataset("mnist", arguments.data_dir)
    cases = trained_cases(dataset, arguments.pretraining, arguments.seed)
    weights = [samples / MOST_SAMPLES for samples in SAMPLES]
    rows = [
        row
        for case, updates in cases.items()
        for row in measure_both(f"{case}, weights n/50,000", updates, weights)
    ]
    size = next(iter(cases.values()))[0].size
    rows += measure_both("sigma = 1e-6, no weights", normal_updates(size, arguments.seed), None)
    print(f"{size:,} parameters, {len(SAMPLES)} clients of {min(SAMPLES)} to {max(SAMPLES)} samples")
    print(
        f"{'case':<36} {'error':>8} {'warnings':>9} {'lost':>7} {'bits':>9} {'bytes':>6}   rms, log2 |value|, zeros"
    )
    for row in rows:
        print(
            f"{row.case:<36} {row.relative_error:>8.3%} {row.warnings:>9} {row.underflowed:>7.2%} "
            f"{f'{row.value_bits}, {row.fraction_bits}':>9} {row.bytes_per_value:>6.2f}   "
            f"{row.rms:.2e}, {row.log2_magnitude[0]:.1f} +- {row.log2_magnitude[1]:.1f}, {row.zeros:.1%}"
        )
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
