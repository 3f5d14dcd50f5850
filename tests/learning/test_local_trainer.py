"""One client's training, and scores against their definitions: what it starts from, where its time goes."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from learning.second_order_oracle import second_order_sensitivity
from shieldfl.errors import ParameterError, RangeError
from shieldfl.learning.local_trainer import LocalTrainer, train_locally, training_seed
from shieldfl.learning.local_update import GradientNoise, StartingPoint
from shieldfl.learning.networks import VisionTransformer, build_model
from shieldfl.learning.scores import (
    FisherAccumulator,
    full_batch_fisher,
    full_batch_gradient,
    label_sensitivity,
    normalise_per_layer,
    per_sample_fisher,
    taylor_sensitivity,
)
from shieldfl.models.model_layout import ParameterLayout
from shieldfl.models.torch_bridge import flatten, flatten_buffers, load_flat, parameter_layout
from shieldfl.privacy.dp_sgd import train_privately
from shieldfl.settings import TrainingSettings

SHAPE = (1, 4, 4)
SETTINGS = TrainingSettings(local_epochs=2, batch_size=8, learning_rate=0.1)


def samples() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(4)
    return torch.randn(20, *SHAPE, generator=generator), torch.randint(0, 3, (20,), generator=generator)


def fresh(name: str = "simple-cnn", seed: int = 1):
    return build_model(name, SHAPE, 3, seed)


@pytest.mark.parametrize("kind", ["full-batch", "batch", "per-sample", "taylor", "label", "gradient", None])
def test_an_update_is_that_of_training_from_the_starting_point(kind):
    features, labels = samples()
    expected = fresh()
    start = StartingPoint(flatten(expected), flatten_buffers(expected), scores=kind)
    layout = parameter_layout(expected)
    fisher = FisherAccumulator(layout)
    at_the_start = full_batch_fisher(expected, features, labels)
    expected_loss = train_locally(expected, features, labels, SETTINGS, 7, fisher)
    # Fisher informations are normalised in each layer, the others are as they are.
    scores = {
        "full-batch": lambda: normalise_per_layer(at_the_start, layout),
        "batch": lambda: normalise_per_layer(fisher.scores(), layout),
        "per-sample": lambda: normalise_per_layer(per_sample_fisher(expected, features, labels), layout),
        "taylor": lambda: taylor_sensitivity(expected, features, labels),
        "label": lambda: label_sensitivity(expected, features, labels),
        "gradient": lambda: full_batch_gradient(expected, features, labels),
    }

    # The module holds other weights: what was left in it by the client before must not matter.
    trainer = LocalTrainer(fresh(seed=2), features, labels, SETTINGS)
    update, loss = trainer.train(start, 7)
    assert loss == expected_loss
    np.testing.assert_array_equal(update.parameters, flatten(expected))
    np.testing.assert_array_equal(update.buffers, flatten_buffers(expected))
    if kind is None:
        assert update.scores is None
    else:
        np.testing.assert_array_equal(update.scores, scores[kind]())
    seconds = trainer.clock.take()
    assert set(seconds) <= {"train", "score"}
    assert seconds["train"] > 0.0
    assert kind is None or seconds["score"] > 0.0


def test_samples_may_be_positions_in_those_of_all():
    features, labels = samples()
    own = torch.tensor([3, 17, 4, 11])
    start = StartingPoint(flatten(fresh()), flatten_buffers(fresh()))
    chosen = LocalTrainer(fresh(), features, labels, SETTINGS, samples=own)
    copied = LocalTrainer(fresh(), features[own], labels[own], SETTINGS)
    assert chosen.samples == copied.samples == 4
    (one, loss), (other, same_loss) = (trainer.train(start, 7) for trainer in (chosen, copied))
    assert loss == same_loss
    np.testing.assert_array_equal(one.parameters, other.parameters)


def test_the_starting_point_and_earlier_updates_are_left_alone():
    features, labels = samples()
    module = fresh("linear")
    start = StartingPoint(flatten(module), flatten_buffers(module), scores="batch")
    before = start.parameters.copy()
    trainer = LocalTrainer(module, features, labels, SETTINGS)
    first, _ = trainer.train(start, 0)
    kept = first.parameters.copy()
    trainer.train(start, 1)
    np.testing.assert_array_equal(start.parameters, before)
    np.testing.assert_array_equal(first.parameters, kept)


def test_every_client_and_round_has_a_seed_of_its_own():
    seeds = {
        training_seed(seed, number, client) for seed in (0, 1) for number in range(20) for client in range(20)
    }
    assert len(seeds) == 800
    assert training_seed(3, 4, 5) == training_seed(3, 4, 5)


def test_a_share_of_synthetic_samples_is_laid_beside_the_own():
    """A quarter of all is a third of 20 own ones, seven: of five that there are two come twice."""
    features, labels = samples()
    module = fresh("linear")
    start = StartingPoint(flatten(module), flatten_buffers(module), scores="gradient", synthetic_share=0.25)
    made = features[:5] + 1.0, (labels[:5] + 1) % 3
    trainer = LocalTrainer(fresh("linear"), features, labels, SETTINGS, made)
    update, _ = trainer.train(start, 7)
    both = [torch.cat([own, other, other[:2]]) for own, other in zip((features, labels), made, strict=True)]
    train_locally(module, *both, SETTINGS, 7)
    np.testing.assert_array_equal(update.parameters, flatten(module))
    np.testing.assert_array_equal(update.scores, full_batch_gradient(module, *both))
    # Where training is on synthetic samples alone nothing is laid beside them.
    alone, _ = trainer.train(replace(start, synthetic=True), 7)
    expected = fresh("linear")
    train_locally(expected, *made, SETTINGS, 7)
    np.testing.assert_array_equal(alone.parameters, flatten(expected))


def test_what_dp_sgd_is_charged_counts_synthetic_samples_too():
    features, labels = samples()
    module = fresh("linear")
    noise = GradientNoise(1.0, 1.0)
    start = StartingPoint(flatten(module), flatten_buffers(module), noise=noise, synthetic_share=0.5)
    trainer = LocalTrainer(module, features, labels, SETTINGS, (features + 1.0, labels))
    update, _ = trainer.train(start, 7)
    assert update.private_steps.sample_rate == pytest.approx(SETTINGS.batch_size / 40)


@pytest.mark.parametrize(
    ("asked", "synthetic", "words"),
    [
        ({"scores": "guess"}, None, "'guess'"),
        ({"synthetic": True}, None, "give the trainer some"),
        ({"synthetic_share": 0.25}, None, "give the trainer some"),
        (
            {"synthetic": True},
            (torch.zeros(0, *SHAPE), torch.zeros(0, dtype=torch.int64)),
            "give the trainer some",
        ),
        *(({"synthetic_share": share}, None, "synthetic_share must") for share in (1.0, -0.1, float("nan"))),
    ],
)
def test_what_cannot_be_had_is_refused(asked, synthetic, words):
    features, labels = samples()
    module = fresh("linear")
    start = StartingPoint(flatten(module), flatten_buffers(module), **asked)
    with pytest.raises(ParameterError, match=words):
        LocalTrainer(module, features, labels, SETTINGS, synthetic).train(start, 0)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize(("epochs", "batch_size", "samples"), [(1, 8, 8), (3, 4, 10)])
def test_the_noise_of_all_steps_is_what_is_left_of_it_in_the_end(momentum, epochs, batch_size, samples):
    training = TrainingSettings(
        local_epochs=epochs, batch_size=batch_size, learning_rate=0.3, momentum=momentum
    )
    model = nn.Linear(5000, 1, bias=False)
    before = flatten(model)
    # Samples of zeros have no gradient: noise alone moves the parameters.
    nothing = torch.zeros(samples, 5000), torch.zeros(samples, 1)
    train_privately(
        model,
        *nothing,
        training,
        noise_multiplier=0.7,
        max_grad_norm=2.0,
        loss=lambda outputs, targets: ((outputs - targets) ** 2).mean(),
    )
    stated = GradientNoise(0.7, 2.0).deviation(training, samples)
    assert np.std(flatten(model) - before) == pytest.approx(stated, rel=0.06)


SCORES = {
    "gradient": (full_batch_gradient, lambda weights, each: each.mean(0)),
    "taylor": (taylor_sensitivity, lambda weights, each: np.abs(weights * each.mean(0))),
    "full-batch": (full_batch_fisher, lambda weights, each: each.mean(0) ** 2),
    "per-sample": (per_sample_fisher, lambda weights, each: (each**2).mean(0)),
    "label": (label_sensitivity, lambda weights, each: np.abs(each).mean(0)),
}
every_kind = pytest.mark.parametrize("kind", SCORES)


def small_model(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))


def batch(count: int, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 5, generator=generator), torch.randint(0, 3, (count,), generator=generator)


def backward(model: nn.Module, features: torch.Tensor, labels: torch.Tensor) -> np.ndarray:
    model.zero_grad()
    nn.functional.cross_entropy(model(features), labels).backward()
    return torch.cat([parameter.grad.reshape(-1) for parameter in model.parameters()]).double().numpy()


@every_kind
@pytest.mark.parametrize("batch_size", [1, 4, 100])
def test_they_are_what_a_loop_over_samples_gives(kind: str, batch_size: int) -> None:
    model, (features, labels), (scores, by_hand) = small_model(), batch(11), SCORES[kind]
    each = np.stack([backward(model, features[[row]], labels[[row]]) for row in range(11)])
    found = scores(model, features, labels, batch_size=batch_size)
    assert found.dtype == np.float32
    expected = by_hand(flatten(model).astype(np.float64), each)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-8)


class HalfUsed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.idle, self.used = nn.Linear(5, 3), nn.Linear(5, 3)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.used(features)


@every_kind
@pytest.mark.parametrize("model", [small_model(), HalfUsed()], ids=["chain", "other"])
def test_frozen_and_unused_parameters_are_zero(kind: str, model: nn.Module) -> None:
    first, *_ = model.parameters()
    first.requires_grad_(False)
    count = 18 if isinstance(model, HalfUsed) else 20
    found = SCORES[kind][0](model, *batch(6))
    assert not found[:count].any()
    assert found[count:].any()


@every_kind
def test_a_model_is_scored_by_its_running_statistics_and_handed_back_as_it_came(kind: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 3))
    model(torch.randn(64, 5) * 3 + 1)
    model.train()
    model[2].eval()
    model[0].weight.grad = torch.full_like(model[0].weight, 7.0)
    statistics, (features, labels), scores = model[1].running_mean.clone(), batch(9), SCORES[kind][0]
    found = scores(model, features, labels, batch_size=4)
    assert [module.training for module in model] == [True, True, False, True]
    assert torch.equal(model[1].running_mean, statistics)
    assert (model[0].weight.grad == 7.0).all()
    assert model[3].weight.grad is None
    turned = scores(model, features.flip(0), labels.flip(0), batch_size=9)
    np.testing.assert_allclose(found, turned, rtol=1e-5, atol=1e-8)


@every_kind
def test_bad_input_is_refused(kind: str) -> None:
    model, (features, labels), scores = small_model(), batch(4), SCORES[kind][0]
    with pytest.raises(ParameterError, match="no data"):
        scores(model, features[:0], labels[:0])
    with pytest.raises(ParameterError, match="3 labels"):
        scores(model, features, labels[:3])
    with pytest.raises(ParameterError, match="batch_size"):
        scores(model, features, labels, batch_size=0)
    for bad in (float("nan"), float("inf")):
        features[2, 2] = bad
        with pytest.raises(RangeError, match=r"'0\.weight'"):
            scores(model, features, labels)
    assert model.training


def test_a_score_beyond_float32_names_its_layer() -> None:
    model = nn.Linear(5, 3, bias=False)
    with torch.no_grad():
        model.weight.fill_(1e20)
    with pytest.raises(RangeError, match="'weight'"):
        taylor_sensitivity(model, torch.full((1, 5), 1e19), torch.zeros(1, dtype=torch.int64))


def test_taylor_scores_are_the_change_of_the_loss_to_first_order() -> None:
    model, (features, labels) = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)), batch(40)
    weights, scores = flatten(model), taylor_sensitivity(model, features, labels)

    def loss(vector: np.ndarray) -> float:
        load_flat(model, vector)
        with torch.no_grad():
            return float(nn.functional.cross_entropy(model(features).double(), labels))

    for position in np.argsort(scores)[-8:]:
        moved = weights.copy()
        moved[position] *= 1.0 - 1e-2
        assert abs(loss(moved) - loss(weights)) / 1e-2 == pytest.approx(scores[position], rel=0.05)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))


def convolutions() -> nn.Module:
    layers = nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(8, 3))


@pytest.mark.parametrize(("build", "shape"), [(mlp, (6,)), (convolutions, (1, 4, 4))])
def test_label_scores_are_those_of_the_second_order_definition(build, shape) -> None:
    torch.manual_seed(3)
    model = build()
    model(torch.randn(32, *shape) * 2 + 1)  # BatchNorm's running statistics are not its initial ones
    model.eval()
    features, labels = torch.randn(5, *shape), torch.randint(0, 3, (5,))
    expected = second_order_sensitivity(model, features, labels)
    assert np.count_nonzero(expected) > expected.size / 2
    for batch_size in (1, 3, 100):
        scores = label_sensitivity(model, features, labels, batch_size=batch_size)
        np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-7)
    some = [0, 34, expected.size - 1]
    np.testing.assert_array_equal(second_order_sensitivity(model, features, labels, some), expected[some])
    # The oracle differentiates the gradient by the label: it is linear in y, so any difference quotient is exact.
    flat = []
    for moved in (0.75, 1.25):
        loss = nn.functional.cross_entropy(model(features[:1]), moved * torch.eye(3)[labels[:1]])
        flat.append(torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(model.parameters()))]))
    quotient = ((flat[1] - flat[0]) / 0.5).abs().numpy()
    found = second_order_sensitivity(model, features[:1], labels[:1])
    np.testing.assert_allclose(found, quotient, rtol=1e-4, atol=1e-6)


def test_fused_attention_is_differentiated_for_many_samples_at_once_and_without_a_warning() -> None:
    model = VisionTransformer((3, 8, 8), 10, width=16, depth=1)
    features, labels = torch.randn(4, 3, 8, 8), torch.arange(4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        together = label_sensitivity(model, features, labels, batch_size=4)
    one_by_one = [label_sensitivity(model, features[[i]], labels[[i]], batch_size=1) for i in range(4)]
    np.testing.assert_allclose(together, np.mean(one_by_one, axis=0), rtol=1e-4, atol=1e-7)


class _Wrapped(nn.Module):
    """Is no chain of layers: torch.func differentiates it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        return self.inner(samples)


@pytest.mark.parametrize("make", [mlp, _Wrapped])
@pytest.mark.parametrize("label", [3, -1])
def test_labels_without_an_output_are_named_and_not_the_model(make, label) -> None:
    labels = torch.tensor([0, 1, label])
    with pytest.raises(ParameterError, match=f"a label is {label}, and the model has 3 outputs: .* 0 to 2"):
        label_sensitivity(make(), torch.rand(3, 6), labels)


def test_an_accumulator_gives_the_square_of_the_mean_batch_gradient_so_far() -> None:
    model = small_model()
    model[0].bias.requires_grad_(False)
    accumulator, sums, found = FisherAccumulator(parameter_layout(model)), 0.0, []
    for seed in range(4):
        model[0].bias.requires_grad_(True)
        gradient = backward(model, *batch(7, seed))
        model[0].bias.grad = None
        gradient[20:24] = 0.0
        before = [None if one.grad is None else one.grad.clone() for one in model.parameters()]
        accumulator.update(model)
        for one, kept in zip(model.parameters(), before, strict=True):
            assert (one.grad is None) == (kept is None)
            assert kept is None or torch.equal(one.grad, kept)
        sums = sums + gradient
        found.append((accumulator.scores(), (sums / (seed + 1)) ** 2))
    for scores, expected in found:  # each stays as it was
        assert scores.dtype == np.float32
        np.testing.assert_allclose(scores, expected, rtol=2e-4, atol=1e-9)


def test_an_accumulator_refuses_what_it_cannot_add() -> None:
    model = small_model()
    accumulator = FisherAccumulator(parameter_layout(model))
    with pytest.raises(ParameterError, match="update"):
        accumulator.scores()
    with pytest.raises(ParameterError, match="no gradient"):
        accumulator.update(model)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf"), 1e30])
def test_a_bad_gradient_names_its_layer_even_rounds_later(bad: float) -> None:
    model = small_model()
    accumulator = FisherAccumulator(parameter_layout(model))
    for seed in range(3):
        backward(model, *batch(6, seed))
        if not seed:
            model[2].bias.grad[1] = bad
        accumulator.update(model)
    with pytest.raises(RangeError, match=r"'2\.bias'"):
        accumulator.scores()


def layers(*sizes: int) -> ParameterLayout:
    return ParameterLayout.of((f"layer{number}", (size,)) for number, size in enumerate(sizes))


@given(st.lists(st.lists(st.floats(0, 2.0**127, width=32), min_size=1, max_size=9), min_size=1, max_size=5))
def test_normalised_scores_keep_order_and_reach_both_ends_of_each_layer(values: list[list[float]]) -> None:
    layout = layers(*(len(layer) for layer in values))
    scores = np.array([value for layer in values for value in layer], dtype=np.float32)
    kept, normalised = scores.copy(), normalise_per_layer(scores, layout)
    np.testing.assert_array_equal(scores, kept)
    for _, piece in layout.slices():
        before, after = scores[piece], normalised[piece]
        if before.min() == before.max():
            assert not after.any()
            continue
        assert (after.min(), after.max()) == (0.0, 1.0)
        assert (np.diff(after[np.argsort(before, kind="stable")]) >= 0).all()


def test_normalisation_is_linear_and_refuses_nan() -> None:
    scores, layout = np.array([1, 3, 2, 5, 5, 100, 300], dtype=np.float32), layers(3, 2, 2)
    np.testing.assert_array_equal(normalise_per_layer(scores, layout), [0, 1, 0.5, 0, 0, 0, 1])
    scores[6] = np.nan
    with pytest.raises(RangeError, match="'layer2'"):
        normalise_per_layer(scores, layout)
