"""Searches for images: training simulated, L-BFGS from many starts beside torch's, and the attacks on both."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from lab.audit.updates import ONE_STEP, digits_range, drawn, relu_model, sigmoid_model, trained
from shieldfl.lab.audit.attack import matched, psnr
from shieldfl.lab.audit.attacks.searches import (
    Dlg,
    Idlg,
    Inverting,
    SimulatedTraining,
    least_of_many,
    total_variation,
)
from shieldfl.lab.audit.views.observed_update import ObservedUpdate
from shieldfl.learning.networks import build_model
from shieldfl.models.torch_bridge import flatten
from shieldfl.settings import TrainingSettings


@pytest.mark.parametrize(
    "training",
    [
        ONE_STEP,
        # One batch: in which order samples come within it does not matter.
        TrainingSettings(local_epochs=4, batch_size=8, learning_rate=0.3, momentum=0.9, weight_decay=0.05),
        TrainingSettings(local_epochs=3, batch_size=8, learning_rate=0.5, momentum=0.0),
    ],
)
def test_shows_the_gradient_that_the_client_shows(training):
    features, labels = drawn(6, seed=1)
    observed = trained(relu_model(), features, labels, training)
    simulated = SimulatedTraining(observed)
    torch.testing.assert_close(simulated.gradient(features, labels), simulated.observed, rtol=1e-3, atol=2e-6)


def test_takes_batches_as_they_stand():
    training = TrainingSettings(local_epochs=1, batch_size=2, learning_rate=0.5, momentum=0.9)
    features, labels = drawn(5, seed=2)
    observed = trained(relu_model(), features, labels, training)
    order = torch.randperm(5, generator=torch.Generator().manual_seed(0))  # as the client's, by its seed
    simulated = SimulatedTraining(observed)
    shown = simulated.observed
    torch.testing.assert_close(
        simulated.gradient(features[order], labels[order]), shown, rtol=1e-3, atol=2e-6
    )
    assert (simulated.gradient(features, labels) - shown).norm() > 0.01 * shown.norm()


def test_a_constant_gradient_is_told_whatever_the_steps_and_momentum():
    # The loss is linear in the bias where the probabilities do not move: a tiny rate.
    training = TrainingSettings(local_epochs=7, batch_size=8, learning_rate=1e-3, momentum=0.9)
    features, labels = drawn(8, seed=3)
    once, often = (trained(relu_model(), features, labels, one) for one in (ONE_STEP, training))
    assert often.steps == 7
    bias = slice(-10, None)
    np.testing.assert_allclose(often.gradient[bias], once.gradient[bias], rtol=0.02, atol=1e-4)


def test_only_known_positions_are_compared():
    features, labels = drawn(3, seed=4)
    whole = trained(sigmoid_model(), features, labels)
    known = np.random.default_rng(0).random(whole.change.size) < 0.3
    part = trained(sigmoid_model(), features, labels, known=known)
    everything, some = SimulatedTraining(whole), SimulatedTraining(part)
    places = torch.from_numpy(known)
    torch.testing.assert_close(some.observed, everything.observed[places])
    torch.testing.assert_close(some.gradient(features, labels), everything.gradient(features, labels)[places])


def test_slopes_are_those_of_differences():
    features, labels = drawn(2, seed=5)
    training = TrainingSettings(local_epochs=2, batch_size=2, learning_rate=0.5, momentum=0.9)
    simulated = SimulatedTraining(trained(sigmoid_model(), features, labels, training))
    direction = torch.randn(features.shape, generator=torch.Generator().manual_seed(0))

    def distance(samples: torch.Tensor) -> torch.Tensor:
        return (simulated.gradient(samples, labels) - 0.5 * simulated.observed).square().sum()

    samples = features.clone().requires_grad_()
    (slope,) = torch.autograd.grad(distance(samples), samples)
    ahead, behind = (distance(features + step * direction).item() for step in (1e-2, -1e-2))
    assert float((slope * direction).sum()) == pytest.approx((ahead - behind) / 2e-2, rel=0.02)


@pytest.mark.parametrize("name", ["tiny-vit", "simple-cnn"])
def test_models_with_attention_and_batch_norm_have_slopes_and_stay_as_they_are(name):
    model = build_model(name, (3, 32, 32), 10, seed=0)
    before = flatten(model), {key: value.clone() for key, value in model.state_dict().items()}
    size = before[0].size
    observed = ObservedUpdate(
        model, np.ones(size, np.float32), np.ones(size, bool), ONE_STEP, 2, (3, 32, 32), 10
    )
    samples = torch.rand(2, 3, 32, 32).requires_grad_()
    gradient = SimulatedTraining(observed).gradient(samples, torch.tensor([1, 7]))
    (slope,) = torch.autograd.grad(gradient.square().sum(), samples)
    assert slope.abs().sum() > 0
    assert all(torch.equal(value, before[1][key]) for key, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


class _Branching(nn.Module):
    """Looks at its samples' values, which torch.func cannot follow for several at once."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        flat = self.layer(samples.flatten(1))
        return -flat if float(flat.detach().sum()) > 1e9 else flat


@pytest.mark.parametrize("make", [sigmoid_model, _Branching])
def test_distances_of_several_are_those_of_each_also_where_they_cannot_be_run_at_once(make):
    model = make()
    simulated = SimulatedTraining(trained(model, *drawn(1, seed=7)))
    samples, targets = (one[:, None] for one in drawn(3, seed=8))
    samples.requires_grad_()
    for _ in range(2):  # once it has been tried, too
        found = simulated.distances(samples, targets)
        for distance, *one in zip(found, samples, targets, strict=True):
            alone = (simulated.gradient(*one) - simulated.observed).square().sum()
            torch.testing.assert_close(distance, alone, rtol=1e-4, atol=1e-6)
    (slopes,) = torch.autograd.grad(found.sum(), samples)
    assert (slopes.flatten(1).abs().sum(dim=1) > 0).all()


SIZE = 12


def bowls(points: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Values and gradients of a smooth function with its least value, 0, at 1: curved by 1 to 20, and a little more."""
    curved = torch.linspace(1, 20, SIZE, dtype=points.dtype)
    away = points - 1
    return (curved * away**2 + away**4).sum(dim=1), 2 * curved * away + 4 * away**3


def starts(count: int) -> torch.Tensor:
    return torch.randn(count, SIZE, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


def by_two_loops(point: torch.Tensor, steps: int) -> float:
    """Return the least value of one start, by L-BFGS as textbooks have it (Nocedal, Wright, algorithm 7.4)."""
    history: list[tuple[torch.Tensor, torch.Tensor]] = []
    value, gradient = (one[0] for one in bowls(point[None]))
    least = float(value)
    for _ in range(steps):
        direction, shares = gradient.clone(), []
        for s, y in reversed(history):
            shares.append((s @ direction) / (s @ y))
            direction -= shares[-1] * y
        if history:
            s, y = history[-1]
            direction *= (s @ y) / (y @ y)
        else:
            direction /= max(1.0, float(gradient.abs().sum()))
        for (s, y), share in zip(history, reversed(shares), strict=True):
            direction += (share - (y @ direction) / (s @ y)) * s
        point = point - direction
        before = gradient
        value, gradient = (one[0] for one in bowls(point[None]))
        history.append((-direction, gradient - before))
        least = min(least, float(value))
    return least


def test_steps_are_those_of_the_textbook():
    first = starts(3)
    for steps in (1, 2, 7, 19):
        values, points, _ = least_of_many(bowls, first, steps)
        for value, begins in zip(values, first, strict=True):
            assert math.isclose(float(value), by_two_loops(begins, steps), rel_tol=1e-6, abs_tol=1e-20)
        assert torch.allclose(bowls(points)[0], values)


def test_starts_do_not_depend_on_each_other_nor_on_how_long_the_history_is():
    first = starts(4)
    values, _, steps = least_of_many(noisy, first, 350)
    alone = [least_of_many(noisy, one[None], 350)[0] for one in first]
    assert steps == 350  # the window of the history has moved to the front more than once
    assert torch.allclose(values, torch.cat(alone), rtol=1e-5)


def noisy(points: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Bowls on a slope that is not smooth, where descent goes on."""
    values, gradients = bowls(points)
    return values + points.abs().sum(dim=1), gradients + points.sign()


def test_a_start_that_comes_to_no_number_is_left_and_others_go_on():
    def broken(points: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values, gradients = bowls(points)
        return torch.where(points[:, 0] > 5, math.nan, values), gradients

    first = starts(3)
    first[1, 0] = 6.0
    values, points, _ = least_of_many(broken, first, 50)
    assert values[1] == math.inf
    assert points[1].equal(first[1])
    assert float(values[[0, 2]].max()) < 1e-12


def test_once_one_has_found_it_the_others_are_left():
    first = starts(3)
    first[2] = 1.01
    asked: list[int] = []

    def counted(points: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        asked.append(len(points))
        return bowls(points)

    values, _, _ = least_of_many(counted, first, 100, found=0.1, exact=1e-9)
    assert asked[0] == 3
    assert set(asked[1:]) == {1}
    assert values[2] <= 1e-9 < values[:2].min()


def test_a_start_without_progress_runs_out_of_patience():
    def flat(points: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.ones(len(points)), torch.full_like(points, 1e-6)

    assert least_of_many(flat, starts(2), 1000, patience=20)[2] == 20


@pytest.mark.parametrize(
    ("attack", "least"),
    [
        (Dlg(iterations=40, starts=2), 25),
        (Idlg(iterations=40, starts=1), 25),
        (Inverting(iterations=1), -math.inf),
    ],
)
def test_finds_image_and_label(attack, least):
    features, labels = drawn(1, seed=2)
    found = attack.recover(trained(sigmoid_model(), features, labels), seed=0)
    assert found.label_counts[labels[0]] == found.label_counts.sum() == 1
    assert float(psnr(found.images, features, digits_range())) > least


@pytest.mark.parametrize(
    ("attack", "least"), [(Idlg(iterations=30, starts=1), 15), (Inverting(iterations=20), -100)]
)
def test_what_is_unknown_has_no_say(attack, least):
    features, labels = drawn(1, seed=2)
    known = np.ones(trained(sigmoid_model(), features, labels).change.size, dtype=bool)
    known[:72] = False  # the convolution's weight
    observed = trained(sigmoid_model(), features, labels, known=known)
    first = attack.recover(observed, seed=0).images
    observed.change[:72] = np.nan
    assert first.equal(attack.recover(observed, seed=0).images)
    assert float(psnr(first, features, digits_range())) > least


def test_positions_count_by_how_little_noise_they_have():
    """Half of the last layer has noise of twice the gradient's size, and the attacker knows where."""
    features, labels = drawn(1, seed=2)
    clean = trained(sigmoid_model(), features, labels)
    noise = np.zeros(clean.change.size, np.float32)
    noise[-2560:] = 2 * np.sqrt(np.mean(clean.change**2))
    drawn_noise = np.random.default_rng(0).normal(size=noise.size).astype(np.float32) * noise
    attack = Idlg(iterations=40, starts=2)

    def found(told: np.ndarray) -> float:
        observed = replace(clean, change=clean.change + drawn_noise, noise_deviation=told)
        return float(psnr(attack.recover(observed, seed=0).images, features, digits_range()))

    assert found(noise) > found(np.zeros_like(noise)) + 5


def test_says_where_it_cannot_be_tried():
    features, labels = drawn(2, seed=0)
    first = features[:1], labels[:1]
    tail = nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.Tanh())
    flat = trained(nn.Sequential(nn.Linear(64, 10)), features.flatten(1), labels)
    for attack, observed, why in (
        (Idlg(), trained(relu_model(), features, labels), "one label"),
        (Idlg(), trained(tail, *first), "Linear"),
        (Inverting(), trained(tail, *first), "Linear"),
        (Inverting(), trained(tail, features, labels), "Linear"),
        (Inverting(), flat, "images"),
    ):
        assert why in attack.inapplicable(observed)
    assert Idlg().inapplicable(trained(relu_model(), *first)) is None
    assert Dlg().inapplicable(trained(tail, features, labels)) is None
    assert Inverting().inapplicable(trained(sigmoid_model(), features, labels)) is None


def test_a_model_on_channels_last_memory_is_searched_too():
    model = build_model("lenet5", (3, 12, 12), 10, 0)
    update = trained(model, torch.rand(1, 3, 12, 12), torch.tensor([4]))
    assert Dlg(iterations=1, starts=1).recover(update, seed=0).images.shape == (1, 3, 12, 12)


ATTACK = Inverting(iterations=120, smoothness=1e-4)


def quality(observed: ObservedUpdate, features: torch.Tensor, attack: Inverting = ATTACK) -> float:
    """Mean PSNR of the images that were found, dB."""
    images = attack.recover(observed, seed=0).images
    low, high = digits_range()
    assert images.min() >= low
    assert images.max() <= high
    rows, columns = matched(images, features)
    return float(psnr(images[rows], features[columns], digits_range()).mean())


@pytest.mark.parametrize(("size", "seed", "least"), [(1, 1, 20), (2, 3, 14)])
def test_finds_one_image_and_a_batch(size, seed, least):
    features, labels = drawn(size, seed)
    assert quality(trained(sigmoid_model(), features, labels), features) > least


def test_sees_through_several_steps():
    # Large steps: what the client changes is far from a multiple of the first gradient.
    training = TrainingSettings(local_epochs=3, batch_size=1, learning_rate=0.3, momentum=0.0)
    features, labels = drawn(2, seed=4)
    observed = trained(sigmoid_model(), features, labels, training)
    as_one_step = replace(observed, change=-observed.gradient, training=ONE_STEP)
    assert quality(observed, features) > quality(as_one_step, features) + 4


def test_the_variation_is_that_of_neighbours():
    image = torch.tensor([[0.0, 1.0], [3.0, 7.0]]).reshape(1, 1, 2, 2)
    assert float(total_variation(image)) == pytest.approx((3 + 6) / 2 + (1 + 4) / 2)
