"""DP-SGD against its definition computed sample by sample, its noise and sampling, and what it refuses."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from learning.separable_samples import CLASSES, SHAPE, samples
from shieldfl.errors import ParameterError, RangeError
from shieldfl.learning.local_trainer import train_locally
from shieldfl.learning.networks import build_model
from shieldfl.models.sample_gradients import gradients_of_samples
from shieldfl.models.torch_bridge import flatten
from shieldfl.privacy.dp_sgd import train_privately
from shieldfl.settings import TrainingSettings, settings_of


def model(name: str = "mlp") -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        if name in ("tied", "one layer twice"):
            return Tied() if name == "tied" else OneLayerTwice()
        if name == "cnn":
            return nn.Sequential(
                nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(64, CLASSES)
            )
    return build_model(name, SHAPE, CLASSES, 3)


def train(
    network: nn.Module,
    features: torch.Tensor,
    labels: torch.Tensor,
    *,
    sampling_seed: int | None = 5,
    **changed: Any,
) -> tuple[float, int, float]:
    """Train on batches that a seed draws; None for the operating system."""
    plain: dict[str, Any] = {"local_epochs": 1, "batch_size": 8, "learning_rate": 0.1}
    plain |= {name: changed.pop(name) for name in settings_of(TrainingSettings) if name in changed}
    private = {"noise_multiplier": 0.0} | changed
    with pytest.MonkeyPatch.context() as patch:
        if sampling_seed is not None:
            patch.setattr("secrets.token_bytes", np.random.default_rng(sampling_seed).bytes)
        return train_privately(network, features, labels, TrainingSettings(**plain), **private)


def test_without_clipping_and_noise_full_batches_are_plain_sgd() -> None:
    features, labels = samples(20)
    private, plain = model(), model()
    done = train(
        private,
        features,
        labels,
        local_epochs=4,
        batch_size=20,
        momentum=0.9,
        weight_decay=1e-2,
        max_grad_norm=1e6,
        sampling_seed=None,
    )
    loss = train_locally(plain, features, labels, TrainingSettings(4, 20, 0.1, 0.9, 1e-2), 0)
    np.testing.assert_allclose(flatten(private), flatten(plain), rtol=1e-4, atol=1e-6)
    assert done == (pytest.approx(loss, rel=1e-4), 4, 1.0)


class Tied(nn.Module):
    """An autoencoder that decodes by the encoder's weight, to four of its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(36, 5)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        code = self.encoder(values.flatten(1)).tanh()
        return nn.functional.linear(code, self.encoder.weight.t())[:, :CLASSES]


class OneLayerTwice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(36, 36)
        self.again = self.first
        self.head = nn.utils.parametrizations.weight_norm(nn.Linear(36, CLASSES))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.head(self.again(self.first(values.flatten(1)).tanh()))
        return outputs


@pytest.mark.parametrize("name", ["mlp", "cnn", "tied", "one layer twice"])
@pytest.mark.parametrize("norm", [0.1, 2.0])
def test_a_step_is_the_sum_of_clipped_per_sample_gradients(name: str, norm: float) -> None:
    features, labels = samples(7)
    private, expected = model(name), model(name)
    train(private, features, labels, batch_size=100, max_grad_norm=norm)
    parameters = list(expected.parameters())
    total = [torch.zeros_like(parameter) for parameter in parameters]
    for feature, label in zip(features, labels, strict=True):
        loss = nn.functional.cross_entropy(expected(feature[None]), label[None])
        gradients = torch.autograd.grad(loss, parameters)
        length = math.sqrt(sum(float(gradient.square().sum()) for gradient in gradients))
        for entry, gradient in zip(total, gradients, strict=True):
            entry.add_(gradient, alpha=min(1.0, norm / length))
    with torch.no_grad():
        for parameter, entry in zip(parameters, total, strict=True):
            parameter.sub_(entry, alpha=0.1 / 7)
    np.testing.assert_allclose(flatten(private), flatten(expected), rtol=1e-4, atol=1e-6)


def test_noise_has_the_deviation_that_is_charged_for_and_no_seed_decides_it() -> None:
    sigma, norm, count = 1.5, 2.0, 10
    features, labels = torch.zeros(count, 2000), torch.zeros(count, dtype=torch.int64)
    draws = []
    for _ in range(2):
        network = nn.Linear(2000, 10, bias=False)
        before = flatten(network)
        torch.manual_seed(0)
        # Features of zero have no gradient, so what moves the weights is the noise alone.
        train(
            network,
            features,
            labels,
            batch_size=count,
            learning_rate=1.0,
            noise_multiplier=sigma,
            max_grad_norm=norm,
        )
        draws.append((before - flatten(network)) * count / (sigma * norm))
    for draw in draws:
        assert abs(float(draw.mean())) < 5 / math.sqrt(20000)
        assert float(draw.std()) == pytest.approx(1.0, abs=5 / math.sqrt(2 * 20000))
    assert abs(float(np.mean(draws[0] * draws[1]))) < 5 / math.sqrt(20000)


def test_a_sampling_seed_repeats_the_batches_and_nothing_else_does() -> None:
    features, labels = samples(40)
    results = []
    for seed in (1, 1, 2, None, None):
        network = model("linear")
        torch.manual_seed(0)
        np.random.seed(0)
        done = train(network, features, labels, local_epochs=2, sampling_seed=seed)
        assert done[1:] == (10, 0.2)
        results.append(flatten(network).tobytes())
    assert results[0] == results[1]
    assert len(set(results)) == 4


@pytest.mark.parametrize("seed", [None, 11])
def test_every_sample_joins_each_batch_independently_at_the_stated_rate(
    seed: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, epochs = 50, 60
    batches: list[torch.Tensor] = []

    def recorded(*given: Any) -> Any:
        gradients = gradients_of_samples(*given)

        def record(features: torch.Tensor, labels: torch.Tensor) -> Any:
            batches.append(features.argmax(dim=1))
            return gradients(features, labels)

        return record

    monkeypatch.setattr("shieldfl.privacy.dp_sgd.gradients_of_samples", recorded)
    done = train(
        nn.Linear(count, 2),
        torch.eye(count),
        torch.zeros(count, dtype=torch.int64),
        local_epochs=epochs,
        batch_size=17,
        sampling_seed=seed,
    )
    assert done[1:] == (3 * epochs, pytest.approx(1 / 3))
    joined = torch.zeros(3 * epochs, count)
    for row, batch in zip(joined, batches, strict=False):
        assert len(set(batch.tolist())) == len(batch)
        row[batch] = 1.0
    assert float(joined.mean()) == pytest.approx(1 / 3, abs=6 * math.sqrt(2 / 9 / joined.numel()))
    # Sizes vary as a binomial's do; fixed batches would not vary at all.
    assert 0.5 < float(joined.sum(dim=1).var()) / (count * 2 / 9) < 2.0
    assert bool((joined.sum(dim=0) > 0).all())


@pytest.mark.parametrize("name", ["linear", "cnn"])
def test_an_empty_batch_is_a_step_of_noise_alone(name: str) -> None:
    features, labels = samples(2)
    start = flatten(model(name))

    def trained(seed: int, sigma: float) -> tuple[np.ndarray, tuple[float, int, float]]:
        network = model(name)
        done = train(network, features, labels, batch_size=1, noise_multiplier=sigma, sampling_seed=seed)
        return flatten(network), done

    # Both steps are empty for one seed in 16.
    seed = next(seed for seed in range(1000) if np.array_equal(trained(seed, 0.0)[0], start))
    after, done = trained(seed, 1.0)
    assert np.count_nonzero(after != start) == start.size
    assert done[1] == 2
    with torch.no_grad():
        over_all = float(nn.functional.cross_entropy(model(name)(features), labels))
    assert trained(seed, 0.0)[1][0] == pytest.approx(over_all)


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_the_module_stays_plain(name: str) -> None:
    features, labels = samples(20)
    network = model(name).eval()
    network[-1].bias.requires_grad_(False)
    attributes = [set(vars(module)) for module in network.modules()]
    frozen = network[-1].bias.clone()
    identities = [id(parameter) for parameter in network.parameters()]
    train(network, features, labels, noise_multiplier=1.0)
    assert [set(vars(module)) for module in network.modules()] == attributes
    assert [id(parameter) for parameter in network.parameters()] == identities
    assert not any(module.training or module._forward_hooks or module._backward_hooks for module in network)
    for parameter in network.parameters():
        assert parameter.grad is None
        assert not vars(parameter)
    assert torch.equal(network[-1].bias, frozen)
    twin = pickle.loads(pickle.dumps(network))
    for each in (network, twin):
        train_locally(each, features, labels, TrainingSettings(1, 8), 0)
    assert np.array_equal(flatten(network), flatten(twin))


@pytest.mark.parametrize(
    ("poison", "changed"),
    [
        (math.nan, {}),
        (math.inf, {}),
        (0.0, {"learning_rate": 1e38, "local_epochs": 3, "noise_multiplier": 10.0}),
        (0.0, {"learning_rate": 1e38, "noise_multiplier": 1e6}),
    ],
)
def test_divergence_is_reported_and_leaves_the_model_as_it_was(
    poison: float, changed: dict[str, Any]
) -> None:
    features, labels = samples(10)
    features = features.clone()
    features[3] += poison
    network = model()
    before = flatten(network).tobytes()
    with pytest.raises(RangeError, match="learning rate"):
        train(network, features, labels, batch_size=10, **changed)
    assert flatten(network).tobytes() == before


class Computed(nn.Module):
    """What a function makes of a batch."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.forward = function


def centred(values: torch.Tensor) -> torch.Tensor:
    return values - values.mean(dim=0)


def attended(values: torch.Tensor) -> torch.Tensor:
    """Attention among the samples of a batch."""
    flat = values.flatten(1)
    return (flat @ flat.T / 36).softmax(dim=1) @ flat


class Mixed(nn.Module):
    """Adds a sample that is drawn from the batch, in training."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values + 0.1 * values[torch.randperm(len(values))] if self.training else values


class Ruled(torch.autograd.Function):
    """Mixes samples by a vmap rule of its own, as it does in a batch."""

    @staticmethod
    def forward(values: torch.Tensor) -> torch.Tensor:
        return centred(values)

    @staticmethod
    def setup_context(*arguments: Any) -> None:
        pass

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        return centred(gradient)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int], values: torch.Tensor) -> tuple[torch.Tensor, int]:
        return Ruled.apply(values.movedim(in_dims[0], 0).squeeze(1)).unsqueeze(1), 0


class Following(nn.Module):
    """Statistics by hand."""

    mean: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(SHAPE))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * values.detach().mean(dim=0)
        return values - self.mean


class Remembering(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bank: list[torch.Tensor] = []

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        self.bank.append(values.detach().mean(dim=0))
        return values - self.bank[0] * len(self.bank)


class Spare(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.spare = nn.Linear(3, 3)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values


class Last(nn.Module):
    """The last outputs of a recurrent layer."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.layer(values)[0][:, -1]  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (nn.BatchNorm2d(1), "BatchNorm2d.*GroupNorm"),
        (nn.BatchNorm2d(1, affine=False), "BatchNorm2d.*GroupNorm"),
        (nn.BatchNorm2d(1, affine=False, track_running_stats=False), "BatchNorm2d.*GroupNorm"),
        (nn.InstanceNorm2d(1, track_running_stats=True), "InstanceNorm2d.*GroupNorm"),
        (
            nn.Sequential(nn.Flatten(1, 2), Last(nn.GRU(6, 36, batch_first=True))),
            "'0.1.layer' .GRU.*on its own",
        ),
        (Computed(centred), "gives a sample other outputs beside others"),
        (
            Computed(lambda values: nn.functional.batch_norm(values.flatten(1), None, None, training=True)),
            "on its own|beside others",
        ),
        (Computed(attended), "gives a sample other outputs beside others"),
        (
            Computed(lambda values: centred(values) if len(values) > 2 else values),
            "gives a sample other outputs beside others",
        ),
        (Mixed(), "gives a sample other outputs beside others"),
        (Computed(Ruled.apply), "'2.weight' of a sample depends on the others"),
        (Following(), "buffer '0.mean' keeps a statistic"),
        (Remembering(), "keeps something from one batch to the next"),
        (Spare(), "'0.spare.weight' is trained, and the loss does not depend on it"),
        (nn.Flatten(), "no parameter"),
    ],
)
def test_what_cannot_be_trained_privately_is_refused(layer: nn.Module, message: str) -> None:
    features, labels = samples(10)
    rest = [] if message == "no parameter" else [nn.Flatten(), nn.Linear(36, CLASSES)]
    network = nn.Sequential(layer, *rest)
    state = copy.deepcopy(network.state_dict())
    with pytest.raises(ParameterError, match=message):
        train(network, features, labels)
    assert all(torch.equal(value, state[key]) for key, value in network.state_dict().items())


@pytest.mark.parametrize(
    "changed",
    [
        {"noise_multiplier": -1.0},
        {"noise_multiplier": math.nan},
        {"noise_multiplier": math.inf},
        {"max_grad_norm": 0.0},
        {"max_grad_norm": math.nan},
    ],
)
def test_impossible_settings_are_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        train(model("linear"), *samples(5), **changed)


def test_a_model_that_was_trained_on_one_sample_is_tried_again_on_more() -> None:
    features, labels = samples(6)
    mixing = nn.Sequential(Computed(centred), nn.Flatten(), nn.Linear(math.prod(SHAPE), CLASSES))
    train(mixing, features[:1], labels[:1])
    with pytest.raises(ParameterError, match="beside others than alone"):
        train(mixing, features, labels)
