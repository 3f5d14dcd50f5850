"""FedML-HE's sensitivity of MNIST models: in one pass, and by second derivatives as it is defined.

    python bench/experiments/fedml_sensitivity.py [--dataset mnist] [--json FILE]

The definition takes one backward pass for each parameter and sample. Only some parameters of one sample are timed that
way, drawn at random, and the time of the rest is extrapolated. Their values are compared with those of the one pass.
Samples are random numbers unless a data set is named; times do not depend on it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from shieldfl.lab.simulation.data import load_dataset
from shieldfl.learning.networks import build_model
from shieldfl.learning.scores import label_sensitivity
from shieldfl.models.torch_bridge import parameter_layout

sys.path.append(str(Path(__file__).parents[2] / "tests"))
from sensitivity.second_order_oracle import second_order_sensitivity

# SenseCrypt, table 4: FedML-HE on 200 samples with five threads.
PAPER_SECONDS = {50_890: 17_214.75}


@dataclass(frozen=True)
class Figures:
    """What one model measured; the definition's figures are of ``oracle_parameters`` parameters of one sample."""

    model: str
    parameters: int
    samples: int
    threads: int
    one_pass_seconds: float
    oracle_parameters: int
    oracle_seconds: float
    oracle_extrapolated_seconds: float
    paper_seconds: float | None
    largest_relative_difference: float


def models(seed: int) -> dict[str, nn.Module]:
    torch.manual_seed(seed)
    return {
        "784-256-128-10": build_model("mlp", (1, 28, 28), 10, seed).eval(),
        "784-64-10": nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10)).eval(),
    }


def samples_of(dataset: str | None, count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    if dataset is None:
        generator = torch.Generator().manual_seed(seed)
        images = torch.randn(count, 1, 28, 28, generator=generator)
        return images, torch.randint(0, 10, (count,), generator=generator)
    data = load_dataset(dataset)
    return (
        torch.as_tensor(data.train_features[:count]),
        torch.as_tensor(data.train_labels[:count]).long(),
    )


def measure(
    name: str, model: nn.Module, features: torch.Tensor, labels: torch.Tensor, options: argparse.Namespace
) -> Figures:
    parameters = parameter_layout(model).size
    label_sensitivity(model, features[:1], labels[:1])  # loads what the first call loads
    seconds = []
    for _ in range(options.repetitions):
        begin = time.perf_counter()
        label_sensitivity(model, features, labels, options.batch_size)
        seconds.append(time.perf_counter() - begin)
    drawn = np.random.default_rng(options.seed).choice(parameters, options.oracle_parameters, replace=False)
    begin = time.perf_counter()
    exact = second_order_sensitivity(model, features[:1], labels[:1], drawn.tolist())
    oracle_seconds = time.perf_counter() - begin
    ours = label_sensitivity(model, features[:1], labels[:1])[drawn]
    return Figures(
        model=name,
        parameters=parameters,
        samples=len(features),
        threads=torch.get_num_threads(),
        one_pass_seconds=float(np.median(seconds)),
        oracle_parameters=drawn.size,
        oracle_seconds=oracle_seconds,
        oracle_extrapolated_seconds=oracle_seconds / drawn.size * parameters * len(features),
        paper_seconds=PAPER_SECONDS.get(parameters),
        largest_relative_difference=float(np.max(np.abs(ours - exact)) / np.max(exact)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", choices=("mnist", "fashion-mnist"), help="instead of random samples")
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--oracle-parameters", type=int, default=1000)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    features, labels = samples_of(options.dataset, options.samples, options.seed)
    print(f"{len(features)} samples, {options.threads} thread(s), seconds")
    print(
        f"{'model':<16} {'P':>8} {'one pass':>10} {'by definition*':>16} {'the paper':>12} {'difference**':>13}"
    )
    rows = []
    for name, model in models(options.seed).items():
        row = measure(name, model, features, labels, options)
        paper = "-" if row.paper_seconds is None else f"{row.paper_seconds:,.0f}"
        print(
            f"{name:<16} {row.parameters:>8,} {row.one_pass_seconds:10.3f} {row.oracle_extrapolated_seconds:16,.0f} "
            f"{paper:>12} {row.largest_relative_difference:13.1e}",
            flush=True,
        )
        rows.append(row)
    print(f"*  extrapolated from {options.oracle_parameters:,} parameters of one sample")
    print("** largest, of those parameters, relative to the most sensitive one of them")
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
