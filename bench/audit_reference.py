"""Attacks of the audit on updates without protection, against what their papers, or another library, reach.

Each figure has the bar that it is to reach; the exit status is 1 if one is missed.

SHIELDFL_DATA=data python bench/audit_reference.py                      # all: more than half an hour on one core
SHIELDFL_DATA=data python bench/audit_reference.py labels inverting     # some

``breaching``, where it is installed, is run on the same gradients; without it, two of the figures have no bar.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import nn

from attack_references.label_floors import label_floors
from attack_references.structural_similarity import ssim
from breaching_baseline import Breaching
from paper_attacks.gradient_updates import Batch, as_update, gradient_of
from shieldfl.lab.audit.attack import UpdateAttack, bootstrap_interval, label_scores, psnr
from shieldfl.lab.audit.attacks.labels import Ilrg, only_label
from shieldfl.lab.audit.attacks.searches import Dlg, Idlg, Inverting
from shieldfl.lab.audit.views.observed_update import ObservedUpdate
from shieldfl.lab.simulation.data import load_dataset
from shieldfl.learning.networks import build_model

_COMPARED = importlib.util.find_spec("breaching") is not None
_LNACC_BARS = {1: 1.0, 2: 1.0, 4: 1.0, 8: 1.0, 16: 1.0, 32: 0.75, 64: 0.55}
_BATCHES = 100
_CHANNELS = [0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]  # CIFAR-10's means and deviations
_UNIT = (0.0, 1.0)


@dataclass(frozen=True)
class Figure:
    """What was measured, and the least that it is to be; None where it stands for comparison."""

    name: str
    value: float
    bar: float | None = None

    @property
    def missed(self) -> bool:
        return self.bar is not None and not self.value >= self.bar


def observed_gradient(
    model: nn.Module, samples: torch.Tensor, labels: torch.Tensor, value_range: tuple[float, float]
) -> ObservedUpdate:
    """One batch's gradient as it is, without what a small step loses to the rounding of parameters."""
    batch = Batch(samples, labels)
    return as_update(model, batch, gradient_of(model, batch), value_range)


def fcn3(seed: int) -> nn.Module:
    """784-512-512-10; the paper of iLRG does not name the widths of its FCN-3."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        widths = ((784, 512), (512, 512), (512, 10))
        first, second, third = (nn.Linear(*width) for width in widths)
        return nn.Sequential(nn.Flatten(), first, nn.ReLU(), second, nn.ReLU(), third)


def sigmoid_lenet(seed: int) -> nn.Module:
    """The LeNet of DLG: strides instead of poolings, sigmoids, weights and biases from U(-0.5, 0.5)."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers: list[nn.Module] = []
        for channels, stride in ((3, 2), (12, 2), (12, 1)):
            layers += [nn.Conv2d(channels, 12, kernel_size=5, padding=2, stride=stride), nn.Sigmoid()]
        model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(768, 10))
        for parameter in model.parameters():
            nn.init.uniform_(parameter, -0.5, 0.5)
        return model


def labels_figures(_images: int) -> Iterator[Figure]:
    """iLRG on MNIST and an untrained FCN-3, batches drawn uniformly; beside it, a rule of breaching's."""
    data = load_dataset("mnist")
    rng = np.random.default_rng(0)
    other = Breaching([0.1307], [0.3081]) if _COMPARED else None
    for size, bar in _LNACC_BARS.items():
        scores, literal, floors, others = [], [], [], []
        for trial in range(_BATCHES):
            drawn = torch.from_numpy(rng.choice(len(data.train_labels), size, replace=False))
            labels = data.train_labels[drawn]
            observed = observed_gradient(fcn3(trial), data.train_features[drawn], labels, (-0.43, 2.83))
            true = np.bincount(labels.numpy(), minlength=10).astype(np.int64)
            for attack, reached in ((Ilrg(), scores), (Ilrg(longest=None), literal)):
                counts = attack.recover(observed, 0).label_counts
                assert counts is not None
                reached.append(label_scores(counts, true))
            floors.append(max(number for _, number in label_floors(true).values()))
            if other is not None:
                guessed = other.labels(observed, "bias-corrected", trial).numpy().ravel()
                others.append(label_scores(np.bincount(guessed, minlength=10).astype(np.int64), true)[1])
        mean = float(np.mean([number for _, number in scores]))
        yield Figure(f"ilrg, batch {size}: mean LnAcc", mean, bar)
        yield Figure(
            f"ilrg, batch {size}: mean LeAcc", float(np.mean([existence for existence, _ in scores]))
        )
        yield Figure(
            f"ilrg, the paper's equations alone, batch {size}: mean LnAcc",
            float(np.mean([number for _, number in literal])),
        )
        yield Figure(
            f"no attack, batch {size}: mean of the higher LnAcc of two floors", float(np.mean(floors))
        )
        if others:
            yield Figure(f"breaching, bias-corrected, batch {size}: mean LnAcc", float(np.mean(others)))


def only_label_figures(_images: int) -> Iterator[Figure]:
    """iDLG's rule on 1,000 images of CIFAR-10, batch 1."""
    data = load_dataset("cifar10")
    models = {
        "DLG's LeNet": sigmoid_lenet,
        "lenet5": lambda seed: build_model("lenet5", data.feature_shape, 10, seed),
    }
    for name, make in models.items():
        right = 0
        for image in range(1000):
            label = data.test_labels[image : image + 1]
            observed = observed_gradient(
                make(image % 20), data.test_features[image : image + 1], label, _UNIT
            )
            right += only_label(observed) == int(label)
        yield Figure(f"idlg on {name}: share of exact labels in 1,000", right / 1000, 1.0)


def matching_figures(attack: UpdateAttack, images: int, bar: float | None) -> Iterator[Figure]:
    """DLG or iDLG on DLG's LeNet, CIFAR-10 in [0, 1], batch 1."""
    data = load_dataset("cifar10")
    assert data.feature_range is not None
    low, high = data.feature_range
    true = (data.test_features[:images] - low) / (high - low)
    found, others = [], []
    other = Breaching([0.0] * 3, [1.0] * 3) if _COMPARED and attack.name == "dlg" else None
    for image in range(images):
        label = data.test_labels[image : image + 1]
        observed = observed_gradient(sigmoid_lenet(image), true[image : image + 1], label, _UNIT)
        recovered = attack.recover(observed, image).images
        assert recovered is not None
        found.append(recovered)
        if other is not None:
            others.append(other.dlg(observed, 300, image).clamp(*_UNIT))
        print_figure(
            Figure(
                f"{attack.name}, image {image}: PSNR", float(psnr(found[-1], true[image : image + 1], _UNIT))
            )
        )
    yield from image_figures(attack.name, torch.cat(found), true, bar)
    if others:
        yield from image_figures("breaching, deepleakage, one start", torch.cat(others), true, None)


def inverting_figures(images: int) -> Iterator[Figure]:
    """Inverting on lenet5, CIFAR-10 normalised, batch 1: 1,000 iterations, breaching's weight of the variation."""
    data = load_dataset("cifar10")
    assert data.feature_range is not None
    low, high = data.feature_range
    value_range = (float(low.min()), float(high.max()))
    attack = Inverting(iterations=1000, smoothness=0.2)
    other = Breaching(*_CHANNELS) if _COMPARED else None
    found, others = [], []
    for image in range(images):
        sample, label = data.test_features[image : image + 1], data.test_labels[image : image + 1]
        observed = observed_gradient(
            build_model("lenet5", (3, 32, 32), 10, image), sample, label, value_range
        )
        recovered = attack.recover(observed, image).images
        assert recovered is not None
        found.append(recovered)
        if other is not None:
            others.append(other.inverting(observed, label, attack.iterations, attack.smoothness, image))

    def to_unit(normalised: list[torch.Tensor]) -> torch.Tensor:
        return ((torch.cat(normalised) - low) / (high - low)).clamp(*_UNIT)

    true = to_unit([data.test_features[:images]])
    bar = None
    if others:
        theirs = list(image_figures("breaching, invertinggradients", to_unit(others), true, None))
        yield from theirs
        bar = theirs[0].value - 1.0
    yield from image_figures("inverting", to_unit(found), true, bar)


def image_figures(name: str, found: torch.Tensor, true: torch.Tensor, bar: float | None) -> Iterator[Figure]:
    """Median PSNR, with the ends of its interval, and median SSIM."""
    values = psnr(found, true, _UNIT).tolist()
    low, high = bootstrap_interval(values, 0, np.median)
    yield Figure(f"{name}: median PSNR of {len(values)} images, dB", float(np.median(values)), bar)
    yield Figure(f"{name}: lower end of its 95 % interval", low)
    yield Figure(f"{name}: upper end of its 95 % interval", high)
    yield Figure(f"{name}: median SSIM", float(ssim(found, true, _UNIT).median()))


def print_figure(figure: Figure) -> None:
    """One line at once: the whole takes long."""
    bar = (
        ""
        if figure.bar is None
        else f"  (at least {figure.bar:.3f}: {'MISSED' if figure.missed else 'reached'})"
    )
    print(f"{figure.name}: {figure.value:.3f}{bar}", flush=True)


_PARTS = {
    "labels": labels_figures,
    "only-label": only_label_figures,
    "dlg": lambda images: matching_figures(Dlg(), images, 20.0),
    "idlg": lambda images: matching_figures(Idlg(), images, None),
    "inverting": inverting_figures,
}


def main() -> int:
    """Print every figure; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(_PARTS)}; default all")
    parser.add_argument(
        "--images", type=int, default=20, help="of the attacks that recover some (default 20)"
    )
    parser.add_argument("--json", metavar="FILE", help="write the figures")
    arguments = parser.parse_args()
    if not set(arguments.parts) <= set(_PARTS):
        parser.error(f"choose parts of {', '.join(_PARTS)}")
    torch.set_num_threads(1)
    figures = []
    for part in arguments.parts or _PARTS:
        for figure in _PARTS[part](arguments.images):
            figures.append(figure)
            print_figure(figure)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump([asdict(figure) for figure in figures], file, indent=1)
    return int(any(figure.missed for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
