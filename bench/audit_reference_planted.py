"""Attacks of planted models, on membership, on a claimed epsilon and on labels, beside what papers and formulas say.

    SHIELDFL_DATA=DIR python bench/audit_reference_planted.py [robbing traps membership epsilon labels] [--json FILE]

Real data: CIFAR-10 in [0, 1] and lenet5 for planted models; MNIST and mlp elsewhere. Clients' samples
are of the training set, the attacker's own of the test set. It takes some eight minutes on one core.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import torch

from attack_references.label_views import infer_labels, update_view
from attack_references.mechanism_canaries import DiracCanaries, audit_sum, audit_uploads
from attack_references.membership import offline, update_alignment
from shieldfl.lab.audit.attack import ModelPlantingAttack
from shieldfl.lab.audit.attacks.membership import (
    Rate,
    likelihood_ratios,
    mask_view,
    membership_figures,
    train_shadows,
)
from shieldfl.lab.audit.attacks.planted_layers import CuriousAbandonHonesty, RobbingTheFed
from shieldfl.lab.audit.epsilon import Guesses, bound_from_one_run
from shieldfl.lab.audit.views.observed_update import ObservedUpdate
from shieldfl.lab.simulation.data import Dataset, load_dataset
from shieldfl.learning.local_trainer import train_locally
from shieldfl.learning.networks import build_model
from shieldfl.learning.scores import taylor_sensitivity
from shieldfl.masks import top_k
from shieldfl.models.torch_bridge import parameter_layout
from shieldfl.privacy.accountant import epsilon_of
from shieldfl.privacy.events import Noise
from shieldfl.privacy.noise import clip_and_noise, gaussian_noise
from shieldfl.settings import TrainingSettings
from target import Target, at_most

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from lab.audit.updates import best_psnr, observed_step, positions_of, unit_images

RECOVERED_DB = 40.0
"""An image in [0, 1] is recovered at this peak signal-to-noise ratio: a hundredth of the range."""
DELTA = 1e-5


@cache
def dataset(name: str) -> Dataset:
    return load_dataset(name)


def planted_trials(
    attack: ModelPlantingAttack,
    samples: int,
    trials: int,
    hidden: Callable[[ObservedUpdate], np.ndarray] | None = None,
    training: TrainingSettings | None = None,
) -> np.ndarray:
    """The best peak signal-to-noise ratio of each image of so many clients, (trials, samples)."""
    cifar = dataset("cifar10")
    images, public = unit_images(cifar)
    shape = cifar.feature_shape
    planted = attack.planted(build_model("lenet5", shape, 10, 0), shape, public, seed=0)
    generator = np.random.default_rng(1)
    ratios = []
    for _ in range(trials):
        own = generator.choice(len(images), samples, replace=False)
        observed = observed_step(planted, images[own], cifar.train_labels[own], training=training)
        if hidden is not None:
            observed = replace(observed, known=~hidden(observed))
        ratios.append(best_psnr(attack.recover(observed, 0).images, images[own]).numpy())
    return np.stack(ratios)


def share_line(figure: str, ratios: np.ndarray, expected: float, most: float, note: str) -> Target:
    """How far a share of recovered images is from what is expected, in points."""
    recovered = ratios > RECOVERED_DB
    shares = recovered.mean(axis=1)
    error = 196 * shares.std(ddof=1) / math.sqrt(len(shares))
    share = 100 * shares.mean()
    text = f"{share:.1f} % ± {error:.1f} of {recovered.size:,} images beside {100 * expected:.1f} %{note}"
    return at_most(figure, abs(share - 100 * expected), most, unit="points off", note=text)


def plain(figure: str, measured: float, note: str = "") -> Target:
    """A figure of which nothing is asked."""
    return at_most(figure, measured, None, unit="", note=note)


def robbing() -> Iterator[Target]:
    for bins, samples, measured in (
        (50, 8, "brightness"),
        (100, 8, "brightness"),
        (100, 20, "brightness"),
        (100, 64, "brightness"),
        (500, 64, "brightness"),
        (100, 20, "random"),
    ):
        ratios = planted_trials(
            RobbingTheFed(bins, measured=measured), samples, trials=max(60, 3000 // samples)
        )
        name = f"robbing-the-fed, {bins} bins by {measured}, {samples} images"
        yield share_line(name, ratios, (1 - 1 / bins) ** (samples - 1), 3, " by (1 - 1/K)^(n-1)")
    for shrunk in (1 / 32, 1 / 4):
        yield from several_steps_lines(RobbingTheFed(100, shrunk=shrunk), f"rows shrunk to {shrunk:g}")
    yield from hidden_lines(RobbingTheFed(100))


def traps() -> Iterator[Target]:
    for samples, paper in ((20, 0.68), (100, 0.54)):
        ratios = planted_trials(CuriousAbandonHonesty(), samples, trials=20)
        name = f"curious-abandon-honesty, 1,000 rows, batch {samples}"
        yield share_line(name, ratios, paper, 10, " in the paper")
    yield from several_steps_lines(CuriousAbandonHonesty(), "1,000 rows")
    yield from hidden_lines(CuriousAbandonHonesty())


def several_steps_lines(attack: ModelPlantingAttack, note: str) -> Iterator[Target]:
    """What is recovered of 20 images of a client that takes several steps."""
    for epochs, batch in ((5, 20), (1, 5)):
        training = TrainingSettings(local_epochs=epochs, batch_size=batch)
        recovered = planted_trials(attack, 20, 10, training=training) > RECOVERED_DB
        figure = f"{attack.name}, {epochs} epochs of 20 images in batches of {batch}"
        yield at_most(figure, 100 * recovered.mean(), None, unit="% recovered", note=note)


def hidden_lines(attack: ModelPlantingAttack) -> Iterator[Target]:
    """What is recovered of 20 images where positions are hidden: at random, those that change most, or all biases."""
    generator = np.random.default_rng(3)

    def at_random(observed: ObservedUpdate, share: float) -> np.ndarray:
        return generator.random(observed.change.size) < share

    def largest(observed: ObservedUpdate, share: float) -> np.ndarray:
        return top_k(np.abs(observed.change), round(share * observed.change.size)).to_bool()

    def biases(observed: ObservedUpdate, share: float) -> np.ndarray:
        return positions_of(observed, *(name for name in observed.layout.names if name.endswith("bias")))

    for hide, share in (
        (at_random, 0.1),
        (at_random, 0.5),
        (at_random, 0.9),
        (largest, 0.05),
        (largest, 0.2),
        (largest, 0.4),
        (largest, 0.7),
        (biases, 1.0),
    ):
        ratios = planted_trials(
            attack, 20, 10, lambda observed, hide=hide, share=share: hide(observed, share)
        )
        figure = f"{attack.name}, {share:.0%} of positions hidden, {hide.__name__}"
        note = f"above 20 dB {100 * (ratios > 20).mean():.1f} %, median {np.median(ratios):.1f} dB"
        yield at_most(figure, 100 * (ratios > RECOVERED_DB).mean(), None, unit="% recovered", note=note)


def rate_text(rate: Rate) -> str:
    return "{:.3f} [{:.3f}, {:.3f}]".format(*rate)


def membership() -> Iterator[Target]:
    """Shadow models of 500 MNIST samples each: every one of 20 is the target of all others."""
    mnist = dataset("mnist")
    own = np.random.default_rng(0).choice(len(mnist.train_features), 1000, replace=False)
    features, labels = mnist.train_features[own], mnist.train_labels[own]
    settings = TrainingSettings(local_epochs=30, batch_size=32, learning_rate=0.02)

    def train(chosen: torch.Tensor, seed: int) -> torch.nn.Module:
        model = build_model("mlp", mnist.feature_shape, 10, seed)
        train_locally(model, features[chosen], labels[chosen], settings, seed)
        return model

    shadows, included = train_shadows(train, features, labels, models=66, seed=0)
    for kind, score in (("online", likelihood_ratios), ("offline", offline)):
        scores = [
            score(np.delete(shadows, i, axis=0), np.delete(included, i, axis=0), shadows[i])
            for i in range(20)
        ]
        area, advantage, at = membership_figures(np.concatenate(scores), included[:20].ravel())
        note = ", ".join(
            [f"area {rate_text(area)}", f"advantage {rate_text(advantage)}"]
            + [f"at {share:.1%} {rate_text(rate)}" for share, rate in at.items()]
        )
        least = at[0.01][0]
        yield Target(f"LiRA {kind}, TPR at 1 % FPR", 100 * least, 5, None, "%", True, note)
    yield from update_membership(mnist)


def update_membership(mnist: Dataset) -> Iterator[Target]:
    """One step on 32 samples, 20 clients: 32 candidates that were in the batch, and 32 that were not."""
    model = build_model("mlp", mnist.feature_shape, 10, 0)
    size = parameter_layout(model).size
    for share, noise in ((1.0, 0.0), (0.1, 0.0), (0.01, 0.0), (1.0, 1e-4), (1.0, 1e-2), (1.0, 1.0)):
        scores, generator = [], np.random.default_rng(2)
        for _ in range(20):
            own = generator.choice(len(mnist.train_features), 64, replace=False)
            features, labels = mnist.train_features[own], mnist.train_labels[own]
            known = generator.random(size) < share
            observed = observed_step(model, features[:32], labels[:32], known=known, noise_deviation=noise)
            scores.append(update_alignment(observed, features, labels))
        area, _, at = membership_figures(np.concatenate(scores), np.tile(np.arange(64) < 32, 20))
        note = f"{rate_text(area)}, TPR at 1 % {rate_text(at[0.01])}"
        yield plain(f"update of 32 samples, {share:.0%} known, noise {noise:g}: area", area[0], note)


def epsilon() -> Iterator[Target]:
    generator = np.random.default_rng(0)
    accuracy = 1 / (1 + math.exp(-1.0))
    bounds = [
        bound_from_one_run(
            2000, [Guesses(2000, int(generator.binomial(2000, accuracy)))], delta=0.0, unit="sample"
        ).at_least
        for _ in range(2000)
    ]
    above = 100 * float(np.mean([bound > 1.0 for bound in bounds]))
    note = f"median bound {np.median(bounds):.3f} of 1"
    yield at_most("randomised response, epsilon 1: bounds above it", above, 5 + 1.5, unit="%", note=note)
    claimed = epsilon_of({Noise(1.0, "client"): 1}, DELTA)
    amplified = epsilon_of({Noise(1.0, "sample", sample_rate=0.01): 1}, DELTA)
    for name, multiplier, claim, caught in (
        ("noise as claimed", 1.0, claimed, False),
        ("a tenth of the noise", 0.1, claimed, True),
        ("amplification by 1 % that does not hold", 1.0, amplified, True),
    ):
        audits = [
            audit_sum(
                lambda updates, noise=multiplier: noised_sum(updates, noise),
                DiracCanaries.drawn(2000, 2000, 1.0, seed),
                delta=DELTA,
                unit="client",
                claimed=claim,
            )
            for seed in range(20)
        ]
        yield caught_line(f"Gaussian sum, {name}", audits, caught)
    for told in (4, 0):
        audits = [
            audit_uploads(
                lambda update, told=told: clip_and_noise(update, 1.0, math.sqrt(told))[0],
                count=2000,
                size=10,
                norm=1.0,
                seed=seed,
                delta=DELTA,
                claimed=claimed,
            )
            for seed in range(20)
        ]
        yield caught_line(f"uploads of clients that are told K = {told}", audits, told == 0)


def noised_sum(updates: Iterator[np.ndarray], multiplier: float) -> np.ndarray:
    total = np.zeros(2000, dtype=np.float32)
    for update in updates:
        total += clip_and_noise(update, 1.0, 0.0)[0]
    return gaussian_noise(total, multiplier)


def caught_line(figure: str, audits: list, caught: bool) -> Target:
    """Of how many audits the outcome is wrong: 5 % of sound mechanisms may be contradicted, no broken one missed."""
    wrong = 100 * float(np.mean([audit.contradicts_claim != caught for audit in audits]))
    bounds = [audit.at_least for audit in audits]
    note = f"bounds {min(bounds):.2f} to {max(bounds):.2f}, claimed {audits[0].claimed:.2f}"
    verb = "missed" if caught else "wrongly contradicted"
    return at_most(f"{figure}: {verb}", wrong, 0 if caught else 5, unit="%", note=note)


def labels() -> Iterator[Target]:
    mnist = dataset("mnist")
    model = build_model("mlp", mnist.feature_shape, 10, 0)
    layout = parameter_layout(model)

    def by_sensitivity(features: torch.Tensor, targets: torch.Tensor, seed: int) -> np.ndarray:
        scores = taylor_sensitivity(model, features, targets)
        return mask_view(top_k(scores, layout.size // 10).to_bool(), layout, 10)

    def at_random(features: torch.Tensor, targets: torch.Tensor, seed: int) -> np.ndarray:
        return mask_view(np.random.default_rng(seed).random(layout.size) < 0.1, layout, 10)

    def last_layer(features: torch.Tensor, targets: torch.Tensor, seed: int) -> np.ndarray:
        return update_view(observed_step(model, features, targets))

    def above_threshold(features: torch.Tensor, targets: torch.Tensor, seed: int) -> np.ndarray:
        """The size of a message that holds what is more sensitive than a threshold that all share."""
        return np.array([4.0 * (taylor_sensitivity(model, features, targets) > 1e-5).sum()])

    private = (mnist.train_features, mnist.train_labels)
    public = (mnist.test_features, mnist.test_labels)
    for name, view in (
        ("a tenth of all positions, by sensitivity", by_sensitivity),
        ("a tenth of all positions, at random", at_random),
        ("the size of what is above a threshold", above_threshold),
        ("the last layer of an update", last_layer),
    ):
        (correlation, least, most), error, without = infer_labels(view, public, private, 10)
        note = f"error {error:.4f} beside {without:.4f}"
        yield plain(f"labels from {name}: correlation", correlation, f"[{least:.3f}, {most:.3f}], {note}")


PARTS = {part.__name__: part for part in (robbing, traps, membership, epsilon, labels)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[], help="by default all")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    lines = []
    for part in arguments.parts or PARTS:
        for line in PARTS[part]():
            asked = "" if line.target is None else f" (asked {line.target:g}: {line.verdict})"
            print(f"{line.figure}: {line.measured:.3g} {line.unit}{asked}; {line.note}", flush=True)
            lines.append(line)
    if arguments.json:
        arguments.json.write_text(json.dumps([line.to_json() for line in lines], indent=1) + "\n")
    return int(any(line.verdict == "missed" for line in lines))


if __name__ == "__main__":
    raise SystemExit(main())
