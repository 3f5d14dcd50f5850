"""Accuracy of SelectiveShield over the privacy budget, at the settings of a row of its table 8 (MNIST).

    SHIELDFL_DATA=... python bench/experiments/epsilon_curve.py --json curve.json --plot curve.png

Epsilon is the total over all rounds for one client (its updates zeroed out), at delta = 1e-5, by its eq. 22, of
the noise alone; the column beside it is that of sigma * sqrt(K), if the stated K was true. A run whose training
diverges has no accuracy: it is reported with the round in which it broke down.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import sys
from pathlib import Path

from shieldfl.errors import RangeError
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.lab.simulation.results import RoundRecord
from shieldfl.lab.simulation.runner import run_seeds
from shieldfl.methods.registry import MethodSettings
from shieldfl.methods.selective_shield.method import SelectiveShieldSettings
from shieldfl.privacy.accountant import noise_multiplier_for

BUDGETS = (math.inf, 1e5, 1e4, 1e3, 100.0, 10.0, 1.0)
NO_NOISE = 1e-9  # a noise multiplier that clips and adds nothing worth mentioning: the control


def run(config: RunConfig, settings: SelectiveShieldSettings) -> list[RoundRecord]:
    """Return the rounds, also those before a run broke down."""
    records: list[RoundRecord] = []
    with contextlib.suppress(RangeError):  # the number of records tells in which round
        run_seeds(
            config,
            ["selective-shield"],
            [config.seed],
            MethodSettings(selective_shield=settings),
            on_round=lambda seed, method, record: records.append(record),
        )
    return records


def row(config: RunConfig, epsilon: float | str, settings: SelectiveShieldSettings) -> dict[str, object]:
    records = run(config, settings)
    last = records[-1] if records else None
    whole = len(records) == config.rounds
    return {
        "epsilon": epsilon,
        "noise_multiplier": settings.noise_multiplier,
        "epsilon_if_participants_true": last.epsilon_if_participants_true if last and whole else None,
        "accuracy": last.accuracy if last and whole else None,
        "personalised_accuracy": last.personalised_accuracy if last and whole else None,
        "broke_down_in_round": None if whole else len(records) + 1,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="mnist")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--momentum", type=float, default=RunConfig.momentum)
    parser.add_argument("--server-learning-rate", type=float, default=RunConfig.server_learning_rate)
    parser.add_argument("--clip-norm", type=float, default=4.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    config = RunConfig(
        dataset=options.dataset,
        rounds=options.rounds,
        momentum=options.momentum,
        server_learning_rate=options.server_learning_rate,
        seed=options.seed,
    )
    # Noised models make large updates: 12 bits before the point, so that the encrypted zone has room for them.
    common = {"clip_norm": options.clip_norm, "value_bits": 32, "fraction_bits": 20}
    rows = []
    cases: list[tuple[float | str, SelectiveShieldSettings]] = [
        ("clipping alone", SelectiveShieldSettings(noise_multiplier=NO_NOISE, **common))
    ]
    for epsilon in BUDGETS:
        finite = math.isfinite(epsilon)
        sigma = noise_multiplier_for(epsilon, 1e-5, config.rounds) if finite else 0.0
        cases.append((epsilon, SelectiveShieldSettings(noise_multiplier=sigma, **common)))
    print(f"{'epsilon':>15} {'if K true':>10} {'sigma':>10} {'global':>8} {'merged':>8}")
    for epsilon, settings in cases:
        rows.append(row(config, epsilon, settings))
        last = rows[-1]
        shown = f"broke down in round {last['broke_down_in_round']}"
        if last["accuracy"] is not None:
            shown = f"{last['accuracy']:8.4f} {last['personalised_accuracy']:8.4f}"
        if_true = last["epsilon_if_participants_true"]
        print(
            f"{epsilon!s:>15} {'-' if if_true is None else f'{if_true:10.3g}':>10} "
            f"{settings.noise_multiplier:10.4g} {shown}"
        )
        sys.stdout.flush()
    if options.json:
        options.json.write_text(json.dumps([{k: _plain(v) for k, v in r.items()} for r in rows], indent=1))
    if options.plot:
        plot(rows, options.plot)


def _plain(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def plot(rows: list[dict[str, object]], path: Path) -> None:
    """Accuracy over epsilon, both on the same picture; runs that broke down at the bottom."""
    from matplotlib import pyplot

    finite = [r for r in rows if isinstance(r["epsilon"], float) and math.isfinite(r["epsilon"])]
    figure, axes = pyplot.subplots(figsize=(7, 4), constrained_layout=True)
    for name, style in (("accuracy", "o-"), ("personalised_accuracy", "s--")):
        known = [r for r in finite if r[name] is not None]
        axes.semilogx(
            [r["epsilon"] for r in known], [r[name] for r in known], style, label=name.replace("_", " ")
        )
    broken = [r["epsilon"] for r in finite if r["accuracy"] is None]
    axes.semilogx(broken, [0.0] * len(broken), "x", color="black", label="training broke down")
    free = next((r["accuracy"] for r in rows if r["epsilon"] == math.inf), None)
    if isinstance(free, float):
        axes.axhline(free, color="grey", linewidth=1, label="no noise")
    axes.set(
        xlabel="total epsilon of a client (eq. 22, delta 1e-5)", ylabel="test accuracy", ylim=(-0.03, 1.0)
    )
    axes.legend(frameon=False)
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    main()
